"""Steps taken kernel by kernel end where the closed form says, to the tick; copies beside them cost what they take."""

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from random_scenarios import scenarios
from scenario_text import scenario

from simserve.cluster.pool import Pool
from simserve.cost.build import build_step_cost
from simserve.cost.kernels import StepLaunch
from simserve.cost.operators import Kernel
from simserve.engine.clock import Clock
from simserve.engine.gpu.device import LAUNCH_QUEUE_DEPTH, Gpu
from simserve.engine.gpu.timeline import Copy, step_timeline
from simserve.engine.ledger import Fetch
from simserve.engine.pace.kernels import Kernels
from simserve.engine.policies.vllm_v1 import VllmV1
from simserve.engine.replica import Listener, Replica
from simserve.simulation import Simulation, scheduler_config, simulate
from simserve.spec.load import load_scenario
from simserve.spec.resources import find
from simserve.spec.result import Result
from simserve.spec.scenario import Scenario
from simserve.spec.ticks import TICKS_PER_SECOND

# -- launch queue and stream -------------------------------------------------------------------------------------------


def launch(cpu: int, *ticks: int) -> StepLaunch:
    return StepLaunch(cpu, tuple(Kernel("kernel", "linear", 0.0, 0.0, each, "floor") for each in ticks))


def launched(launches: Sequence[StepLaunch], depth: int = LAUNCH_QUEUE_DEPTH) -> tuple[int, int, int]:
    """When the CPU is done with its launches, when the GPU has executed them, and how long it worked."""
    clock = Clock()
    gpu = Gpu(clock, bandwidth=1e12, queue_depth=depth)
    seen: list[int] = []

    def cpu():
        done = yield from gpu.launch(launches)
        seen.append(int(clock.now))
        end, busy = yield done
        assert end == clock.now
        seen.extend((end, busy))

    clock.process(cpu())
    clock.run()
    cpu_done, end, busy = seen
    return cpu_done, end, busy


def test_slow_launches_leave_the_gpu_idle_between_kernels() -> None:
    assert launched([launch(6, 2)] * 3) == (18, 20, 6)


def test_the_cpu_runs_ahead_of_long_kernels() -> None:
    assert launched([launch(1, 10)] * 3) == (3, 31, 30)


def test_a_graph_is_one_launch_that_starts_all_its_kernels() -> None:
    assert launched([launch(5, 2, 3, 4)]) == (5, 14, 9)


def test_the_cpu_waits_while_the_launch_queue_is_full() -> None:
    """One may wait. The third launch is ready at 3 and gets in at 11, as the second starts; the fourth at 21."""
    assert launched([launch(1, 10)] * 4, depth=1) == (21, 41, 40)
    assert launched([launch(1, 10)] * 4) == (4, 41, 40)


def test_a_full_queue_keeps_the_cpu_from_getting_ahead_of_short_kernels() -> None:
    """The fourth launch begins at 106, when the long kernel has ended, instead of at 18."""
    launches = [launch(6, 100), launch(6, 1), launch(6, 1), launch(6, 1)]
    assert launched(launches, depth=1) == (112, 113, 103)
    assert launched(launches) == (24, 109, 103)


def test_a_host_sync_waits_for_the_stream() -> None:
    clock = Clock()
    gpu = Gpu(clock, bandwidth=1e12)
    ends: list[int] = []

    def cpu():
        for _ in range(2):
            done = yield from gpu.launch([launch(1, 10)] * 2)
            yield done
            ends.append(int(clock.now))

    clock.process(cpu())
    clock.run()
    assert ends == [21, 42]


# -- one step ----------------------------------------------------------------------------------------------------------

MODELS = ["llama-3.2-1b", "qwen3-0.6b", "gpt-oss-20b", "{config: mixtral-8x7b, weight_dtype: fp8}"]
MODES = ["full_and_piecewise", "full_decode_only", "piecewise", "full", "none"]


@given(
    st.sampled_from(MODELS),
    st.sampled_from(MODES),
    st.booleans(),
    st.lists(st.tuples(st.integers(1, 600), st.integers(0, 9000)), max_size=3),
    st.integers(0, 300),
    st.integers(1, 20_000),
)
@settings(max_examples=25)
def test_a_step_takes_cpu_gpu_and_latency_of_the_cost_model(
    model: str, mode: str, asynchronous: bool, chunks: list[tuple[int, int]], num_decodes: int, context: int
) -> None:
    if not chunks and not num_decodes:
        num_decodes = 1
    question = scenario(f"model={model}", f"engine.cuda_graph.mode={mode}", f"engine.async_scheduling={asynchronous}")
    batch = chunks, num_decodes, num_decodes * context, num_decodes + len(chunks)
    cpu, gpu, latency, padded = build_step_cost(question).step(*batch)
    step = step_timeline(question, *batch)
    assert ticks(step.time) == latency
    assert sum(ticks(each.end) - ticks(each.start) for each in step.kernels) == gpu
    work = [each for each in (*step.host, *step.launches) if each.name != "wait for the GPU"]
    assert sum(ticks(each.end) - ticks(each.start) for each in work) == cpu
    assert (padded > 0) == (step.graph != "none")


def ticks(seconds: float) -> int:
    return round(seconds * TICKS_PER_SECOND)


def test_copies_slow_what_memory_binds_and_nothing_else() -> None:
    """On a GPU without floors and losses, 3 TB/s, a link of 0.1 TB/s leaves 29/30 to kernels that want all."""
    question = scenario("cluster.gpu=ideal-3tb")
    batch = [(2048, 0)], 0, 0, 1
    alone, beside = step_timeline(question, *batch), step_timeline(question, *batch, copies=[Copy(0.0, 1e10, 1e11)])
    assert beside.copies[0].end == pytest.approx(0.1)
    bounds = set()
    for before, after in zip(alone.kernels, beside.kernels, strict=True):
        slower = 30 / 29 if before.bound == "memory" else 1.0
        assert after.end - after.start == pytest.approx((before.end - before.start) * slower, abs=1e-11)
        bounds.add(before.bound)
    assert bounds == {"memory", "compute"}


def test_a_kernel_bound_by_compute_is_slowed_once_copies_leave_it_less_than_it_moves() -> None:
    """gate_up over 2,048 tokens: 2 x 2,048 x 4,096 x 28,672 FLOPs at 1,000 TFLOP/s are 0.481 ms, in which it moves
    235 MB of weights and 134 MB of activations: 0.256 of 3 TB/s. Beside three copies as fast as HBM it gets a quarter.
    """
    question = scenario("cluster.gpu={base: ideal-3tb, l2_bytes: 0}")
    batch = [(2048, 0)], 0, 0, 1
    moved = 2 * (4096 * 28672 + 2048 * (4096 + 28672))
    compute = 2 * 2048 * 4096 * 28672 / 1e15
    assert moved / compute / 3e12 == pytest.approx(0.256, abs=1e-3)
    for copies, expected in ((0, compute), (1, compute), (2, compute), (3, moved / 3e12 * 4), (5, moved / 3e12 * 6)):
        step = step_timeline(question, *batch, copies=[Copy(0.0, 3e12, 3e12)] * copies)
        gate_up = next(each for each in step.kernels if each.name == "gate_up")
        assert gate_up.end - gate_up.start == pytest.approx(expected, rel=1e-6)


def test_bytes_are_conserved_beside_copies() -> None:
    """Measured kernels may move more than HBM gives, since part of it lies in L2: that part is left out."""
    question = scenario("model=llama-3.2-1b")
    copies = [Copy(0.0, 1e8, 5e10), Copy(1e-3, 3e9, 1e13), Copy(1.5e-3, 2e9, 4.5e11)]
    batch = [(700, 100)], 20, 20_000, 21
    gpu = question.cluster.gpu
    reached = gpu.hbm_bandwidth * gpu.efficiency.hbm_decode_attention
    alone, step = step_timeline(question, *batch), step_timeline(question, *batch, copies=copies)
    from_hbm = [min(span.bytes, reached * (span.end - span.start)) for span in alone.kernels]
    times = np.array([level.at for level in step.levels])
    for name, expected in (("kernels", sum(from_hbm)), ("copies", sum(span.bytes for span in step.copies))):
        rates = np.array([getattr(level, name) for level in step.levels])
        assert np.sum(rates[:-1] * np.diff(times)) == pytest.approx(expected, rel=1e-6)
    total = np.array([level.kernels + level.copies for level in step.levels])
    assert total.max() == pytest.approx(reached)
    assert total.max() <= step.hbm_bandwidth
    assert total[-1] == 0.0


# -- whole runs --------------------------------------------------------------------------------------------------------


class KernelSimulation(Simulation):
    """A run whose replicas take their steps kernel by kernel, beside endless copies of a link of `link` B/s."""

    def __init__(self, question: Scenario, link: float) -> None:
        self.link = link
        super().__init__(question)

    def _replicas(self, pool: Pool, listener: Listener | None, fetch: Fetch | None) -> list[Replica]:
        scheduler = VllmV1(scheduler_config(pool.scenario, pool.ledger.num_gpu_blocks))
        gpu = Gpu.of(self.clock, self.scenario.cluster.gpu)
        gpu.copy(1e15, self.link)
        return [Replica(self.clock, scheduler, Kernels(pool.cost, gpu), listener=listener)]


def kernelwise(question: Scenario) -> Result:
    return simulate(question.with_overrides(["run.resolution=kernels"]))


def stepwise(question: Scenario) -> Result:
    return simulate(question.with_overrides(["run.resolution=steps"]))


def assert_same_records(question: Scenario) -> Result:
    """Every column of requests, steps and gaps, and every counter but the events."""
    steps, kernels = stepwise(question), kernelwise(question)
    for name in ("requests", "steps", "gaps"):
        left, right = getattr(kernels, name), getattr(steps, name)
        assert left.keys() == right.keys()
        for column in right:
            np.testing.assert_array_equal(left[column], right[column], err_msg=f"{name}: {column}")
    for name in steps.meta.keys() - {"events"}:
        assert kernels.meta[name] == steps.meta[name], name
    return kernels


def quickstart(limit: int, *overrides: str) -> Scenario:
    path = find("scenarios", "quickstart.yaml")
    assert path is not None
    return load_scenario(path, [f"workload.trace.limit={limit}", *overrides])


def test_records_of_the_quickstart_are_those_of_steps() -> None:
    kernels = assert_same_records(quickstart(200))
    assert kernels.meta["events"] > 292 * kernels.meta["total_steps"], "every kernel is an event"


@pytest.mark.parametrize(
    "overrides",
    [
        ["engine.async_scheduling=false"],
        ["engine.enforce_eager=true"],
        ["engine.enforce_eager=true", "engine.async_scheduling=false", "model=qwen3-0.6b"],
        ["engine.cuda_graph.mode=piecewise"],
        ["cluster.gpu=b200-sxm-180gb", "engine.enforce_eager=true", "model=qwen3-0.6b"],
        ["cluster.gpu=ideal-3tb"],
        ["cluster.gpu=rtx-pro-6000-96gb"],
    ],
)
def test_records_are_those_of_steps_however_steps_are_launched(overrides: list[str]) -> None:
    assert_same_records(quickstart(8, *overrides))


PREEMPTS_ITSELF = [
    "workload.num_requests=40",
    "engine.scheduling_policy=priority",
    "engine.max_num_seqs=64",
    "workload.arrivals={process: all_at_once}",
    "workload.input={distribution: uniform, min: 1, max: 8}",
    "workload.output=64",
    "workload.max_tokens=100",
    "engine.max_model_len=256",
    "engine.max_num_batched_tokens=64",
    "engine.block_size=1",
    "engine.num_gpu_blocks=385",
    "engine.scheduler_reserve_full_isl=false",
]


@pytest.mark.parametrize("asynchronous", [True, False])
@pytest.mark.parametrize(
    "overrides",
    [
        ["run.max_time=0.05", "workload.arrivals={process: all_at_once}"],
        ["run.max_time=0.0803", "workload.arrivals={process: all_at_once}"],
        ["run.max_time=0.3003", "workload.arrivals={process: all_at_once}", "cost.host.per_step=20 ms"],
        ["cost.constant_step=20 ms", "workload.arrivals={process: constant, rate: 100}"],
        ["cost.constant_step=10 ms", "workload.arrivals={process: closed_loop, users: 3, think_time: 0}"],
        ["engine.num_gpu_blocks=18", "engine.max_model_len=256", "workload.input=20", "engine.max_num_seqs=8"],
        PREEMPTS_ITSELF,
    ],
    ids=["cut", "cut_later", "cut_slow_host", "ties", "waiting_users", "short_of_blocks", "preempts_itself"],
)
def test_records_are_those_of_steps_where_it_is_tight(asynchronous: bool, overrides: list[str]) -> None:
    door = "{front_end_per_request: 0, front_end_per_token: 0, delivery: 0}"
    question = scenario(
        "workload.num_requests=30",
        "workload.input=700",
        "workload.output=20",
        f"engine.async_scheduling={asynchronous}",
        "model=llama-3.2-1b",
        f"cost.host={door}",
        *overrides,
    )
    assert_same_records(question)


@given(scenarios())
@settings(max_examples=40)
def test_records_are_those_of_steps_in_any_small_scenario(question: Scenario) -> None:
    if stepwise(question).meta["total_steps"] < 250:
        assert_same_records(question)


def test_endless_copies_stretch_every_step_that_memory_binds() -> None:
    """One user on a GPU without floors or host: a link of half the bandwidth doubles TPOT, a tenth makes it 10/9."""
    question = scenario("cluster.gpu=ideal-3tb", "workload.num_requests=1", "workload.output=20", "run.max_time=10")
    alone = time_per_token(kernelwise(question))
    for link, slower in ((1.5e12, 2.0), (0.3e12, 10 / 9)):
        assert time_per_token(KernelSimulation(question, link).run()) == pytest.approx(alone * slower, rel=1e-6)


def time_per_token(result: Result) -> float:
    requests = result.requests
    return float(requests["finish"][0] - requests["first_token"][0]) / (int(requests["output_len"][0]) - 1)
