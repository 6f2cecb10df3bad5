"""Where PCIe links four GPUs, stages read long prompts several times as fast as slices; but a token of an answer passes
all stages, and requests that came together leave all stages but one idle.

Tensor parallelism sums over all GPUs twice a layer, stages hand on one state: on L40S four stages read
{prompts_of_stages_over_slices_pcie:.1f} times as many prompt tokens as four slices, on H100 with NVLink
{prompts_of_stages_over_slices_nvlink:.1f} times. A token of an answer takes {token_of_stages_over_slices_nvlink:.1f}
times as long over NVLink, since one stage works on it at a time. A micro-batch is whoever was ready: 32 requests that
came at once stay one, and a stage works {busy_together:.0%} of the time. A budget of 800 tokens a step cuts them into
four, which keep the stages busy for {busy_in_four:.0%}, and make {tokens_in_four_over_together:.2f} times as many
tokens: a small micro-batch reads the weights as a large one does.
"""

from typing import TYPE_CHECKING, Any

from notebooks.gallery._runs import scenario, summary
from simserve.cluster.pool import Pool
from simserve.cost.pipeline import PipelineCost
from simserve.engine.ledger import Fetch
from simserve.engine.pace.stages import MicroBatch, Stages
from simserve.engine.replica import Listener, Replica
from simserve.engine.request_wise import RequestWise
from simserve.report.plots.style import BLUE, GREEN, PURPLE, RED
from simserve.simulation import Simulation, scheduler_config
from simserve.spec.ticks import to_seconds

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

STAGES = 4
CUTS = {"4 slices": (4, 1), "2 x 2": (2, 2), "4 stages": (1, 4)}
LINKS = {"PCIe": "l40s-48gb", "NVLink": "h100-sxm-80gb"}
CHAT = ("workload.input=100", "workload.output=200")
TOGETHER = (*CHAT, "workload.arrivals={process: all_at_once}", "workload.num_requests=32", "cluster.gpu=h100-sxm-80gb")
IN_FOUR = (*TOGETHER, "engine.max_num_batched_tokens=800")
SHOWN = (0.9, 1.05)
"""Seconds of the run that the picture shows."""


class Watched(Stages):
    """Stages that keep the micro-batches that have passed them."""

    def __init__(self, cost: PipelineCost) -> None:
        super().__init__(cost)
        self.passed: list[MicroBatch] = []

    def _know_tokens(self, batch: MicroBatch) -> None:
        self.passed.append(batch)
        super()._know_tokens(batch)


class Watching(Simulation):
    """A run whose stages keep their micro-batches."""

    def _replicas(self, pool: Pool, listener: Listener | None, fetch: Fetch | None) -> list[Replica]:
        assert isinstance(pool.cost, PipelineCost)
        scheduler = RequestWise(scheduler_config(pool.scenario, pool.ledger.num_gpu_blocks), fetch=fetch)
        return [Replica(self.clock, scheduler, Watched(pool.cost), listener=listener)]


def stays(*overrides: str) -> list[list[tuple[float, float]]]:
    """Of each micro-batch: seconds of its work on each stage, as (start, end)."""
    simulation = Watching(scenario("pipeline_parallel", overrides))
    simulation.run()
    (replica,) = simulation.replicas
    assert isinstance(replica.pace, Watched)
    return [
        [(to_seconds(end - time.gpu), to_seconds(end)) for end, time in zip(batch.ends, batch.times, strict=True)]
        for batch in replica.pace.passed
    ]


def busy_share(batches: list[list[tuple[float, float]]]) -> float:
    """Share of the time from first to last in which an average stage worked."""
    work = sum(end - start for batch in batches for start, end in batch)
    return work / STAGES / (batches[-1][-1][1] - batches[0][0][0])


def measure() -> dict[str, Any]:
    """Prompt tokens a second and time of a token, by cut and link; how busy stages are."""
    numbers: dict[str, Any] = {}
    for link, gpu in LINKS.items():
        for cut, (slices, stages) in CUTS.items():
            how = (f"cluster.gpu={gpu}", f"cluster.tensor_parallel={slices}", f"cluster.pipeline_parallel={stages}")
            numbers[f"prompts {link} {cut}"] = [summary("pipeline_parallel", *how)["total_token_throughput"]]
            numbers[f"token {link} {cut}"] = [summary("pipeline_parallel", *how, *CHAT)["mean_tpot_ms"]]
    together, in_four = stays(*TOGETHER), stays(*IN_FOUR)
    one, other = (summary("pipeline_parallel", *how)["output_throughput"] for how in (TOGETHER, IN_FOUR))
    return numbers | {
        "prompts_of_stages_over_slices_pcie": _ratio(numbers, "prompts PCIe"),
        "prompts_of_stages_over_slices_nvlink": _ratio(numbers, "prompts NVLink"),
        "token_of_stages_over_slices_nvlink": _ratio(numbers, "token NVLink"),
        "busy_together": busy_share(together),
        "busy_in_four": busy_share(in_four),
        "tokens_in_four_over_together": other / one,
        "together": together,
        "in_four": in_four,
    }


def _ratio(numbers: dict[str, Any], what: str) -> float:
    (stages,), (slices,) = numbers[f"{what} 4 stages"], numbers[f"{what} 4 slices"]
    return float(stages / slices)


def draw(measured: dict[str, Any], figure: "Figure") -> None:
    """Micro-batches on the stages, above; throughput of prompts and time of a token, below."""
    figure.set_size_inches(7.2, 4.4)
    grid = figure.add_gridspec(2, 2)
    for column, (name, title) in enumerate((("together", "one micro-batch"), ("in_four", "four micro-batches"))):
        _draw_stages(figure.add_subplot(grid[0, column]), measured[name], f"32 requests in {title}")
    for column, (what, unit) in enumerate((("prompts", "prompt tokens/s"), ("token", "ms a token"))):
        axes = figure.add_subplot(grid[1, column])
        for place, (cut, color) in enumerate(zip(CUTS, (RED, GREEN, BLUE), strict=True)):
            heights = [measured[f"{what} {link} {cut}"][0] for link in LINKS]
            axes.bar([index + (place - 1) * 0.26 for index in range(2)], heights, 0.24, color=color, label=cut)
        axes.set_xticks(range(2), [f"{link} ({gpu.split('-')[0].upper()})" for link, gpu in LINKS.items()])
        axes.set(ylabel=unit, yscale="log" if what == "prompts" else "linear")
        if column:
            axes.legend()


def _draw_stages(axes: "Axes", batches: list[list[tuple[float, float]]], title: str) -> None:
    first, last = SHOWN
    for index, batch in enumerate(batches):
        for stage, (start, end) in enumerate(batch):
            if end > first and start < last:
                shade = (BLUE, GREEN, RED, PURPLE)[index % STAGES]
                axes.barh(stage, (end - start) * 1e3, left=(start - first) * 1e3, color=shade, height=0.8, linewidth=0)
    axes.set(title=title, xlabel="ms", xlim=(0, (last - first) * 1e3), ylabel="stage", ylim=(STAGES - 0.5, -0.5))
    axes.set_yticks(range(STAGES), [str(stage + 1) for stage in range(STAGES)])
