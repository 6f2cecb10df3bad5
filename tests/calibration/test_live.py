"""The live engine against the simulator: the same batches in the same order, given the same times."""

from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs the calibrate extra: pip install 'simserve[calibrate]'")

from calibration.comparison import Comparison, Line, at_load, capacity_of, compare, save  # noqa: E402
from calibration.engine.config import ModelConfig  # noqa: E402
from calibration.engine.engine import Engine  # noqa: E402
from calibration.engine.runner import ModelRunner  # noqa: E402
from calibration.live import LiveRun, replay, serve, step_bias  # noqa: E402
from simserve.engine.request import Request  # noqa: E402
from simserve.report.run_folder import read_run  # noqa: E402
from simserve.simulation import scheduler_config  # noqa: E402
from simserve.spec.errors import ScenarioError  # noqa: E402
from simserve.spec.load import parse_scenario  # noqa: E402
from simserve.spec.result import REJECTED  # noqa: E402
from simserve.spec.scenario import Scenario  # noqa: E402
from simserve.workload.workload import build_workload  # noqa: E402

MODEL = ModelConfig("tiny", 48, 2, 4, 2, 16, 96, 199)
TEXT = """
name: live
model: tiny-llama
workload:
  num_requests: 24
  arrivals: {process: poisson, rate: 150}
  input: {distribution: uniform, min: 2, max: 60}
  output: {distribution: uniform, min: 8, max: 36}
cluster: {gpu: cpu-calibrated-example}
engine: {max_num_seqs: 6, max_num_batched_tokens: 32, max_model_len: 96, num_gpu_blocks: 14, async_scheduling: false}
"""


@pytest.fixture(scope="module")
def scenario() -> Scenario:
    return parse_scenario(TEXT)


@pytest.fixture(scope="module")
def runner(scenario: Scenario) -> ModelRunner:
    torch.set_num_threads(1)
    return ModelRunner(MODEL, scheduler_config(scenario, 14), dtype="fp32")


@pytest.fixture(scope="module")
def run(runner: ModelRunner, scenario: Scenario) -> LiveRun:
    return serve(runner, scenario)


def test_simulator_decides_the_same_batches_given_the_same_times(scenario: Scenario, run: LiveRun) -> None:
    result = replay(scenario, run)
    steps = result.steps
    assert len(run.steps) == result.meta["total_steps"] > 20
    assert result.meta["num_preemptions"] > 0, "the workload is to be hard enough"
    assert [step.num_decodes for step in run.steps] == steps["decodes"].tolist()
    assert [sum(new for new, _ in step.chunks) for step in run.steps] == steps["prefill_tokens"].tolist()
    assert result.meta["cost_level"] == "measured"
    assert np.all(result.requests["finish"] > result.requests["arrival"])


def test_another_batch_and_another_order_are_noticed(scenario: Scenario, run: LiveRun) -> None:
    index = next(i for i, step in enumerate(run.steps) if step.num_decodes)
    steps = list(run.steps)
    steps[index] = steps[index]._replace(context=steps[index].context + 1)
    with pytest.raises(AssertionError, match=f"step {index}: the engine ran"):
        replay(scenario, LiveRun(steps, run.finish))
    with pytest.raises(AssertionError, match="more steps than the engine"):
        replay(scenario, LiveRun(run.steps[:-1], run.finish))
    with pytest.raises(AssertionError, match="finish otherwise"):
        replay(scenario, LiveRun(run.steps, run.finish | {3: run.finish[3] + 10**7}))


def test_bias_is_zero_where_the_times_are_the_models(scenario: Scenario, run: LiveRun) -> None:
    bias = step_bias(scenario, run)
    scaled = LiveRun([step._replace(ticks=round(step.ticks * (1 + bias))) for step in run.steps], run.finish)
    assert step_bias(scenario, scaled) == pytest.approx(0, abs=1e-6)


def test_both_sides_are_saved_as_runs(runner: ModelRunner, scenario: Scenario, tmp_path) -> None:
    capacity = capacity_of(scenario)
    seen: list[float] = []
    found, busier = compare(runner, scenario, [0.5, 0.8], repetitions=2, progress=seen.append)
    assert seen == sorted(seen)
    assert seen[-1] == 1
    assert (len(found.biases), busier.load) == (2, 0.8)
    assert found.rate == pytest.approx(capacity / 2)
    assert {(line.metric, line.statistic) for line in found.lines} >= {("ttft", "p95"), ("e2el", "mean")}
    save([found], tmp_path / "live", force=False)
    real, simulated = (read_run(tmp_path / "live" / "load-0.5" / side) for side in ("real", "simulated"))
    for column in ("arrival", "input_len", "output_len"):
        assert np.array_equal(real.result.requests[column], simulated.result.requests[column])
    assert (tmp_path / "live" / "live.png").stat().st_size > 1000
    with pytest.raises(FileExistsError):
        save([found], tmp_path / "live", force=False)


@pytest.mark.parametrize(
    ("error", "spread", "bias", "verdict"),
    [
        (0.09, 0.05, 0.01, "passed"),
        (0.11, 0.05, 0.01, "failed"),
        (0.01, 0.05, 0.06, "failed"),
        (0.01, 0.11, 0.01, "noisy"),
        (0.50, 0.11, 0.01, "noisy"),
    ],
)
def test_verdicts(scenario: Scenario, run: LiveRun, error: float, spread: float, bias: float, verdict: str) -> None:
    result = replay(scenario, run)
    line = Line("ttft", "p50", 1.0, 1.0 + error, error, spread, 0.10)
    assert Comparison(0.5, 1.0, [line], [bias, bias], result, result).verdict == verdict
    assert Comparison(0.5, 1.0, [line], [bias, bias], result, result, calibration_noise=0.06).verdict == "noisy"


CHATS = (
    "workload.sessions={turns: {distribution: uniform, min: 1, max: 4}, think_time: 5 ms}",
    "workload.input={distribution: uniform, min: 2, max: 20}",
    "workload.output={distribution: uniform, min: 2, max: 12}",
)
PREFIXES = ("workload.shared_prefix={groups: 2, length: 35, adds: true}", "engine.num_gpu_blocks=14")
LONG_PROMPTS = "workload.input={distribution: uniform, min: 60, max: 120}"
TWO_CLASSES = "workload.classes=[{name: a, share: 0.5}, {name: b, share: 0.5, priority: 1}]"
DOOR = "cost.host={front_end_per_request: 2 ms, front_end_per_token: 10 us, delivery: 1 ms}"


@pytest.mark.parametrize(
    "changes",
    [
        PREFIXES,
        (*PREFIXES, "engine.enable_prefix_caching=false"),
        (*PREFIXES, "workload.arrivals={process: closed_loop, users: 5, think_time: 2 ms}"),
        ("workload.arrivals={process: closed_loop, users: 5}",),
        ("workload.arrivals={process: closed_loop, users: 40}", DOOR),
        CHATS,
        (*CHATS, DOOR, "workload.shared_prefix={groups: 2, length: 18, adds: true}"),
        (*CHATS, "engine.enable_prefix_caching=false"),
        (*CHATS, "workload.sessions.think_time=0 s", "engine.num_gpu_blocks=8"),
        (LONG_PROMPTS, "workload.output=5"),
        ("workload.arrivals={process: closed_loop, users: 3}", LONG_PROMPTS),
        ("engine.scheduling_policy=priority", TWO_CLASSES),
    ],
)
def test_whatever_arrives_the_simulator_decides_the_same(
    runner: ModelRunner, scenario: Scenario, changes: tuple[str, ...]
) -> None:
    asked = scenario.with_overrides(changes)
    run = serve(ModelRunner(MODEL, scheduler_config(asked, asked.engine.num_gpu_blocks), dtype="fp32"), asked)
    result = replay(asked, run)
    assert len(run.steps) == result.meta["total_steps"]
    shares = asked.engine.enable_prefix_caching and ("shared_prefix" in str(changes) or "sessions" in str(changes))
    assert bool(result.meta["prefix_cache_hits"]) == shares or "num_gpu_blocks=8" in str(changes)
    rejected = result.requests["status"] == REJECTED
    assert rejected.any() == ("max: 120" in str(changes))
    assert len(run.finish) + rejected.sum() == len(rejected)


def test_a_chat_says_what_was_said(runner: ModelRunner, scenario: Scenario, monkeypatch: pytest.MonkeyPatch) -> None:
    """The prompt of a turn is the previous prompt and what the model answered to it, then new tokens."""
    said: dict[int, list[int]] = {}
    prompts: dict[int, list[int]] = {}
    add, forget = Engine.add, Engine.forget

    def added(engine: Engine, request: Request, prompt: list[int]) -> None:
        prompts[int(request.id)] = list(prompt)
        add(engine, request, prompt)

    def forgotten(engine: Engine, request: Request) -> None:
        said[int(request.id)] = engine.text(request)
        forget(engine, request)

    monkeypatch.setattr(Engine, "add", added)
    monkeypatch.setattr(Engine, "forget", forgotten)
    chats = scenario.with_overrides(CHATS)
    serve(runner, chats)
    parent = build_workload(chats).parent.tolist()
    turns = [row for row in prompts if parent[row] >= 0]
    assert len(turns) > 5
    for row in turns:
        before = said[parent[row]]
        assert prompts[row][: len(before)] == before
        assert len(prompts[row]) > len(before)


def test_a_turn_that_may_come_before_its_answer_is_refused(
    runner: ModelRunner, scenario: Scenario, tmp_path: Path
) -> None:
    trace = tmp_path / "trace.csv"
    trace.write_text("arrival,input_len,output_len,session\n0,5,5,a\n0.001,20,5,a\n")
    with pytest.raises(ScenarioError, match=r"turns of a chat at times of their own.*give them `think`"):
        serve(runner, scenario.with_overrides([f"workload={{trace: {{file: {trace}, format: csv}}}}"]))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("engine.async_scheduling=true", "async_scheduling"),
        ("cluster.replicas=2", "replicas"),
        ("run.max_time=1 s", "max_time"),
        ("engine.scheduler=prefill_first", "runs vllm_v1"),
        ("engine.kv_allocation=contiguous", "has paged KV"),
        ("engine.max_num_queued_reqs=3", "takes all requests in"),
        ("engine.speculative={method: ngram, num_speculative_tokens: 2, acceptance: 0.5}", "token by token"),
        ("workload.client={timeout: 1 s}", "wait for their answers"),
        ("workload.classes=[{name: a, share: 1, client: {timeout: 1 s}}]", "wait for their answers"),
    ],
)
def test_what_the_live_engine_does_not_do_is_refused(
    runner: ModelRunner, scenario: Scenario, change: str, words: str
) -> None:
    with pytest.raises(ScenarioError, match=words):
        serve(runner, scenario.with_overrides([change]))


def test_load_scales_the_rate(scenario: Scenario) -> None:
    arrivals = at_load(scenario, 0.3, 10.0).workload.arrivals
    assert arrivals is not None
    assert arrivals.rate == pytest.approx(3.0)
    chats = scenario.with_overrides([*CHATS, "workload.sessions.turns=2"])
    arrivals = at_load(chats, 0.3, 10.0).workload.arrivals
    assert arrivals is not None
    assert arrivals.rate == pytest.approx(1.5), "a chat has two requests, of which the first arrives by the clock"
