"""Kernels of a small model that Python launches one by one wait for the CPU; as one CUDA graph they do not.

A decode step of Qwen3-0.6B is {launches_eager:.0f} launches under `enforce_eager`, {launches_piecewise:.0f} with graphs
between attentions and {launches_full:.0f} with a graph of the whole model: one user waits {tpot_eager_ms:.1f},
{tpot_piecewise_ms:.1f} and {tpot_full_ms:.1f} ms for a token. Eager, the GPU idles {gpu_idle_eager:.0%} of the
time. The larger the model, the more of the launches hide behind its kernels; tensor parallelism makes kernels shorter
and launches no cheaper.

Graphs are captured for some batch sizes: {batch_padded:.0f} sequences run as {padded_to:.0f}, and more than
{largest_graph:.0f} run without one. All of them take {graph_memory_gib:.2f} GiB; captured up to 8 only they take
{graph_memory_up_to_8_gib:.2f} GiB, and 32 users wait {tpot_of_32_users_up_to_8_ms:.1f} ms, not
{tpot_of_32_users_ms:.1f} ms. Run kernel by kernel (`run.resolution: kernels`), the eager TPOT is
{tpot_eager_by_kernels_ms:.1f} ms again.

A forward pass that asks the GPU for a value (`.item()`) cannot be captured, and its launches cannot run ahead. Where
every layer does (`engine.host_sync: layer`), a token of Llama-3.1-8B takes {tpot_8b_waiting_ms:.1f} ms, eager without
the waits {tpot_8b_eager_ms:.1f} ms, with graphs {tpot_8b_full_ms:.1f} ms, all of them scheduled synchronously.
"""

from typing import TYPE_CHECKING, Any

from notebooks.gallery._runs import scenario, summary
from simserve.cost.build import modelled_step_cost
from simserve.cost.memory import memory_ledger
from simserve.engine.gpu.timeline import step_timeline
from simserve.report.plots.style import BLUE, GREEN, GREY, INK, RED, YELLOW
from simserve.spec.timeline import StepTimeline

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

USERS = (1, 4, 16, 64, 256, 512)
GRAPHS = "engine.enforce_eager=false"
UP_TO_8 = "engine.cuda_graph.capture_sizes=[1, 2, 4, 8]"
MODES = {
    "eager": ("engine.enforce_eager=true",),
    "compiled": (GRAPHS, "engine.cuda_graph.mode=none"),
    "piecewise": (GRAPHS, "engine.cuda_graph.mode=piecewise"),
    "full": (GRAPHS,),
}
LOOKS = {
    "eager": ("eager", RED),
    "compiled": ("compiled, no graphs", YELLOW),
    "piecewise": ("graphs between attentions", GREEN),
    "full": ("one graph", BLUE),
}
DEPLOYMENTS = {
    "Qwen3\n0.6B": ("model=qwen3-0.6b",),
    "Llama-3.1\n8B": ("model=llama-3.1-8b",),
    "Qwen3\n32B": ("model=qwen3-32b", "engine.max_model_len=4096"),
    "Llama-3.1\n70B, TP 8": ("model=llama-3.1-70b", "cluster.tensor_parallel=8"),
}
CONTEXT = 200
BATCH = 130
WINDOW = 150e-6


def tpot(users: int, *overrides: str) -> float:
    """Mean TPOT, in milliseconds, of so many users, two requests each."""
    load = (f"workload.arrivals.users={users}", f"workload.num_requests={2 * users}")
    time: float = summary("launch_bound", *load, *overrides)["mean_tpot_ms"]
    return time


def timeline(mode: str) -> StepTimeline:
    """A decode step of one user, kernel by kernel."""
    return step_timeline(scenario("launch_bound", MODES[mode]), [], 1, CONTEXT, 1)


def launches(mode: str) -> int:
    """Launches of a decode step of one user."""
    return len(modelled_step_cost(scenario("launch_bound", MODES[mode])).launches([], 1, CONTEXT, 1))


def graph_memory(*overrides: str) -> float:
    """GiB that captured graphs take."""
    return memory_ledger(scenario("launch_bound", (*MODES["full"], *overrides))).cuda_graphs / 2**30


def idle(step: StepTimeline) -> float:
    """Share of a step in which the GPU waits for a launch."""
    span = step.kernels[-1].end - step.launches[0].start
    return 1 - sum(kernel.end - kernel.start for kernel in step.kernels) / span


def measure() -> dict[str, Any]:
    """Time of a token by how its kernels are launched, over users and over models; sizes and memory of graphs."""
    policy = modelled_step_cost(scenario("launch_bound", MODES["full"])).policy
    by_mode = {mode: [tpot(users, *overrides) for users in USERS] for mode, overrides in MODES.items()}
    by_model = {
        mode: [tpot(1, *deployment, *MODES[mode]) for deployment in DEPLOYMENTS.values()] for mode in ("eager", "full")
    }
    slower = [eager / full for eager, full in zip(by_model["eager"], by_model["full"], strict=True)]
    synchronous = ("model=llama-3.1-8b", "engine.async_scheduling=false")
    return {
        **{f"launches_{mode}": launches(mode) for mode in MODES},
        **{f"tpot_{mode}_ms": times[0] for mode, times in by_mode.items()},
        "tpot_eager_by_kernels_ms": tpot(1, *MODES["eager"], "run.resolution=kernels"),
        "gpu_idle_eager": idle(timeline("eager")),
        "gpu_idle_full": idle(timeline("full")),
        "eager_over_graphs_0.6b": slower[0],
        "eager_over_graphs_8b": slower[1],
        "eager_over_graphs_32b": slower[2],
        "eager_over_graphs_70b_tp8": slower[3],
        "batch_padded": BATCH,
        "padded_to": policy.choose(BATCH, decode_only=True)[1],
        "largest_graph": policy.sizes[-1],
        "graph_memory_gib": graph_memory(),
        "graph_memory_up_to_8_gib": graph_memory(UP_TO_8),
        "tpot_of_32_users_ms": tpot(32, *MODES["full"]),
        "tpot_of_32_users_up_to_8_ms": tpot(32, *MODES["full"], UP_TO_8),
        "tpot_8b_full_ms": tpot(1, *synchronous, *MODES["full"]),
        "tpot_8b_eager_ms": tpot(1, *synchronous, *MODES["eager"]),
        "tpot_8b_waiting_ms": tpot(1, *synchronous, *MODES["eager"], "engine.host_sync=layer"),
        "by_mode": list(by_mode.values()),
        "by_model": list(by_model.values()),
    }


def draw(measured: dict[str, Any], figure: "Figure") -> None:
    """TPOT over users and over models, and the first launches of two steps."""
    figure.set_size_inches(7.2, 5.0)
    grid = figure.add_gridspec(2, 2, height_ratios=[2, 1])
    left, right, below = (figure.add_subplot(grid[place]) for place in ((0, 0), (0, 1), (1, slice(None))))
    for (label, colour), times in zip(LOOKS.values(), measured["by_mode"], strict=True):
        left.plot(USERS, times, color=colour, marker="o", markersize=3, label=label)
    left.set(title="Qwen3-0.6B", xlabel="users at once", ylabel="TPOT, ms", ylim=(0, None))
    left.set_xscale("log")
    left.set_xticks(USERS, [f"{users}" for users in USERS])
    left.minorticks_off()
    left.legend()
    eager, full = measured["by_model"]
    places = range(len(DEPLOYMENTS))
    right.bar([place - 0.2 for place in places], eager, 0.38, color=RED, label="eager")
    right.bar([place + 0.2 for place in places], full, 0.38, color=BLUE, label="one graph")
    for place, (slow, fast) in enumerate(zip(eager, full, strict=True)):
        right.text(place, max(slow, fast), f"{slow / fast:.1f}x", size=7, ha="center", va="bottom")
    right.set_xticks(places, list(DEPLOYMENTS), size=7)
    right.grid(visible=False, axis="x")
    right.set(title="One user, by model", ylabel="TPOT, ms")
    right.legend()
    draw_steps(below)


def draw_steps(axes: "Axes") -> None:
    """Launches on the CPU and kernels on the GPU of the first moments of an eager step and of a graph."""
    lanes = []
    for row, mode in enumerate(("full", "eager")):
        step = timeline(mode)
        start = step.launches[0].start
        for spans, lane, colour in ((step.kernels, 2 * row, BLUE), (step.launches, 2 * row + 1, GREY)):
            seen = [span for span in spans if span.start - start < WINDOW]
            width = [(span.end - span.start) * 1e6 for span in seen]
            at = [(span.start - start) * 1e6 for span in seen]
            axes.barh(lane, width, left=at, height=0.7, color=colour, edgecolor="white", linewidth=0.4)
        lanes += [f"{LOOKS[mode][0]}: GPU", f"{LOOKS[mode][0]}: CPU"]
    axes.set_yticks(range(4), lanes)
    axes.tick_params(axis="y", length=0)
    axes.grid(visible=False, axis="y")
    axes.set(xlabel="µs after the first launch", xlim=(0, WINDOW * 1e6))
    axes.set_title("The first launches and kernels of a step of one user", color=INK)
