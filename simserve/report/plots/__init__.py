"""Pictures of runs and of sweeps: one function each, which takes a run or a table and returns a matplotlib `Figure`."""

from simserve.report.plots.curves import latency_throughput_plot, pareto_plot
from simserve.report.plots.latency import latency_cdf_plot
from simserve.report.plots.launches import launches_plot
from simserve.report.plots.parts import memory_plot, step_time_plot
from simserve.report.plots.style import save_figure
from simserve.report.plots.timeline import gantt_plot, timeline_plot
from simserve.report.plots.traffic import traffic_plot

__all__ = [
    "gantt_plot",
    "latency_cdf_plot",
    "latency_throughput_plot",
    "launches_plot",
    "memory_plot",
    "pareto_plot",
    "save_figure",
    "step_time_plot",
    "timeline_plot",
    "traffic_plot",
]
