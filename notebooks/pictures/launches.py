"""Draws launches.png beside this file: `python notebooks/pictures/launches.py`.

One decode step of one user, launched kernel by kernel and as a CUDA graph, and of 64 users as a CUDA graph.
"""

from pathlib import Path

from simserve.engine.gpu.timeline import step_timeline
from simserve.report.plots import launches_plot, save_figure
from simserve.spec.load import parse_scenario
from simserve.spec.timeline import StepTimeline

SCENARIO = """
name: a decode step
model: qwen3-0.6b
workload: {arrivals: {process: all_at_once}, input: 2048, output: 2, num_requests: 1}
cluster: {gpu: b200-sxm-180gb}
"""
CONTEXT = 2048
WINDOW = 180e-6


def decode_step(users: int, eager: bool) -> StepTimeline:
    """A step in which each user gets a token."""
    scenario = parse_scenario(SCENARIO, [f"engine.enforce_eager={str(eager).lower()}"])
    return step_timeline(scenario, [], users, users * CONTEXT, users)


def title(what: str, step: StepTimeline) -> str:
    """What a panel shows, in numbers of the whole step."""
    span = step.kernels[-1].end - step.launches[0].start
    busy = sum(kernel.end - kernel.start for kernel in step.kernels)
    used = sum(kernel.bytes for kernel in step.kernels) / step.hbm_bandwidth
    return f"{what}, {span * 1e3:.2f} ms, GPU idle {1 - busy / span:.0%}, HBM in use {used / span:.0%}"


def main() -> None:
    """Draw and write the picture."""
    steps = {
        "Launch-bound: one user, eager": decode_step(1, eager=True),
        "The same step as a CUDA graph": decode_step(1, eager=False),
        "Bandwidth-bound: 64 users": decode_step(64, eager=False),
    }
    titles = [title(what, step) for what, step in steps.items()]
    svg, _ = save_figure(launches_plot(list(steps.values()), titles, WINDOW), Path(__file__).with_suffix(""))
    svg.unlink()  # twice the size of the other, and a page shows one


if __name__ == "__main__":
    main()
