"""The page of a run: the question, the answer, the why, and how far to trust it, in one self-contained file."""

from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

from simserve.report.explain import explanations
from simserve.report.metrics import METRICS, metrics_in
from simserve.report.page import figure_block, numbers, page, table
from simserve.report.plots import gantt_plot, latency_cdf_plot, memory_plot, save_figure, step_time_plot, timeline_plot
from simserve.report.plots.style import inline_svg
from simserve.report.plots.timeline import MAX_BARS
from simserve.report.question import question_facts
from simserve.report.summary import Summary
from simserve.report.text import count, first_upper, limit_ms, ms, number, percent

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from simserve.report.run_folder import RunFolder

STATISTICS = ("mean", "median", "std", "p90", "p95", "p99")
TILES = ("ttft", "tpot", "e2el")
"""Metrics whose p95 stands on top."""
OF_CLASSES = (("p50", "ttft"), ("p95", "ttft"), ("p50", "tpot"), ("p95", "tpot"), ("p95", "e2el"))
"""Statistics of metrics that are shown for each class."""
CAPTIONS = {
    "latency": "How latencies spread: the share of requests (for ITL: of gaps) that took at most so long.",
    "timeline": "The run over time, summed over replicas, as means over short stretches.",
    "step_time": "What the GPU's time went into; host is time in which the GPU waited for the engine.",
    "memory": "What one GPU's memory holds. What is left of the budget becomes KV blocks.",
    "requests": "Each request from arrival to last token.",
}


def write_report(run: "RunFolder") -> Path:
    """Write report.html and plots/*.svg, *.png into the folder of a run; return the page."""
    plots = run.path / "plots"
    plots.mkdir(exist_ok=True)
    pictures = {}
    for name, drawn in report_figures(run).items():
        svg, _ = save_figure(drawn, plots / name)
        pictures[name] = inline_svg(svg.read_text(encoding="utf-8"), name, CAPTIONS[name])
    path = run.path / "report.html"
    partial = path.with_suffix(".partial")
    partial.write_text(report_page(run, pictures), encoding="utf-8")
    return partial.replace(path)


def report_figures(run: "RunFolder") -> "dict[str, Figure]":
    """The pictures of a run by name."""
    figures = {
        "latency": latency_cdf_plot(run.result),
        "timeline": timeline_plot(run.result),
        "step_time": step_time_plot(run.summary.get("step_time_breakdown") or {}),
        "memory": memory_plot(run.result.memory),
    }
    if 0 < run.result.requests["arrival"].size <= MAX_BARS:
        figures["requests"] = gantt_plot(run.result)
    return figures


def report_page(run: "RunFolder", pictures: dict[str, str]) -> str:
    """The page as text; `pictures` are SVG elements by name."""
    summary = run.summary
    blocks = {name: figure_block(picture, CAPTIONS[name]) for name, picture in pictures.items()}
    facts = question_facts(run.result.scenario, summary)
    return page(
        {
            "title": escape(str(summary["label"])),
            "description": escape(run.result.scenario.description),
            "verdict": _verdict(summary),
            "tiles": numbers(_tiles(summary)),
            "question": table(["", ""], [[name, value] for name, value in facts.items()], headless=True),
            "scenario": escape(run.result.scenario.to_yaml()),
            "metrics": _metric_tables(summary),
            "objectives": _objective_table(summary),
            "classes": _class_table(summary),
            "latency_picture": blocks.pop("latency"),
            "why": "".join(f"<li>{escape(line)}</li>" for line in explanations(summary)),
            "counters": numbers(_counters(summary)),
            "pictures": "".join(blocks.values()),
            "trust": escape(first_upper(summary["trust"])),
            "notes": "".join(f"<li>{escape(first_upper(note))}</li>" for note in summary.get("notes", ())),
            "definitions": "".join(
                f"<dt>{escape(first_upper(metric.name))}</dt><dd>{escape(metric.text)}</dd>"
                for metric in metrics_in(summary)
            ),
        }
    )


def _verdict(summary: Summary) -> str:
    """The first line: was the objective met, and does the load last."""
    if summary["slo_met"] is None:
        kind, text = "plain", "No objective was set."
    else:
        kind = "good" if summary["slo_met"] else "bad"
        text = f"{'Meets' if summary['slo_met'] else 'Misses'} the objective"
        if summary["slo_attainment"] is not None:
            text += f": {percent(summary['slo_attainment'])} of requests were within all limits."
    if summary["saturation"] not in (None, "stable"):
        kind = "bad"
        text += f" The fleet was {summary['saturation']}."
    return f'<p class="verdict {kind}">{escape(text)}</p>'


def _tiles(summary: Summary) -> dict[str, str]:
    tiles = {
        **{f"p95 {METRICS[key].name}": ms(summary[METRICS[key].key_of("p95")]) for key in TILES},
        "output tokens/s": number(summary["output_throughput"]),
        "requests/s": number(summary["request_throughput"]),
        "tokens/s for a user": number(summary["tokens_per_s_per_user"]),
        "load": str(summary["saturation"] or "unknown"),
    }
    if summary["request_goodput"] is not None:
        tiles["goodput, requests/s"] = number(summary["request_goodput"])
    if summary["cost_per_million_output_tokens"] is not None:
        tiles["per million output tokens"] = f"$ {summary['cost_per_million_output_tokens']:.2f}"
    return tiles


def _metric_tables(summary: Summary) -> str:
    """A row a metric; those in one unit stand in one table."""
    tables: dict[str, list[list[str]]] = {}
    for metric in metrics_in(summary):
        values = [number(summary[metric.key_of(statistic)]) for statistic in STATISTICS]
        row = [first_upper(metric.name), *values, count(summary[f"n_{metric.key}"])]
        tables.setdefault(metric.unit.symbol, []).append(row)
    return "".join(table([symbol, *STATISTICS, "n"], rows) for symbol, rows in tables.items())


def _objective_table(summary: Summary) -> str:
    rows = [
        [
            *([", ".join(verdict["classes"])] if len(summary["class_names"]) > 1 else []),
            f"p{verdict['percentile']:g} {METRICS[key].name}",
            limit_ms(limit["limit_ms"]),
            ms(limit["value_ms"]),
            "met" if limit["met"] else "missed",
        ]
        for verdict in summary["slo"]
        for key, limit in verdict["limits"].items()
    ]
    heads = [*(["classes"] if len(summary["class_names"]) > 1 else []), "objective", "limit", "found", ""]
    return table(heads, rows) if rows else ""


def _class_table(summary: Summary) -> str:
    shown = [(statistic, METRICS[key]) for statistic, key in OF_CLASSES]
    rows = [
        [
            name,
            count(found["completed"]),
            count(found["num_prompts"] - found["completed"]),
            *(number(found[metric.key_of(statistic)]) for statistic, metric in shown),
            number(found["output_throughput"]),
            percent(found["slo_attainment"]),
        ]
        for name, found in summary["classes"].items()
    ]
    heads = ["class", "completed", "other", *(f"{statistic} {metric.name}" for statistic, metric in shown)]
    return "<h3>By class (latencies in ms)</h3>" + table([*heads, "tokens/s", "within limits"], rows) if rows else ""


def _counters(summary: Summary) -> dict[str, str]:
    statuses = {name.replace("_", " "): count(value) for name, value in summary["statuses"].items() if value}
    return {
        **statuses,
        "duration": f"{number(summary['duration'])} s",
        "left out as warm-up": count(summary["window"]["excluded_requests"]),
        "preemptions": count(summary["num_preemptions"]),
        "prefix cache hits": percent(summary["prefix_cache_hit_rate"]),
        "peak KV usage": percent(summary["kv_cache_usage_peak"]),
        "peak output tokens/s": number(summary["max_output_tokens_per_s"]),
        "peak requests at once": count(summary["max_concurrent_requests"]),
    }
