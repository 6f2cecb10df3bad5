"""Laws of step times: exact sums, pieces that agree with formulas, monotone in everything; the field's first lesson."""

from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from simserve.cost import breakdown, build_step_cost, cost_level, front_end
from simserve.cost.build import launch_ticks
from simserve.cost.explain import explain_step, operators_of_step
from simserve.cost.launch import GraphMode
from simserve.cost.mixed_attention import InModelAttention
from simserve.cost.modelled import ModelledStepCost
from simserve.spec.catalogue import find_model
from simserve.spec.dtypes import bytes_per_element
from simserve.spec.errors import ScenarioError
from simserve.spec.gpus import find_gpu
from simserve.spec.hardware import LaunchSpec
from simserve.spec.load import parse_scenario
from simserve.spec.scenario import Scenario
from simserve.spec.ticks import to_seconds, to_ticks

MODELS = ("llama-3.1-8b", "mixtral-8x7b", "gpt-oss-120b", "deepseek-v3", "qwen3-30b-a3b")
MODES = ("full_and_piecewise", "full_decode_only", "piecewise", "full", "none")


@cache
def scenario(model: str = "llama-3.1-8b", gpu: str = "h100-sxm-80gb", *overrides: str) -> Scenario:
    return parse_scenario(
        f"""
        model: {model}
        workload:
          arrivals: {{process: poisson, rate: 1}}
          input: {{distribution: constant, value: 100}}
          output: {{distribution: constant, value: 10}}
          num_requests: 10
        cluster: {{gpu: {gpu}}}
        engine: {{max_model_len: 8192, num_gpu_blocks: 1000}}
        """,
        overrides,
    )


@cache
def modelled(*arguments: str) -> ModelledStepCost:
    cost = build_step_cost(scenario(*arguments))
    assert isinstance(cost, ModelledStepCost)
    return cost


def graphs(mode: str) -> str:
    return f"engine.cuda_graph.mode={mode}"


chunk = st.tuples(st.integers(1, 4096), st.integers(0, 8192))
batches = st.tuples(st.lists(chunk, max_size=4), st.integers(0, 700), st.integers(1, 6000)).filter(
    lambda batch: bool(batch[0]) or batch[1] > 0
)
DATASHEET = "cost.level=datasheet"
GPUS = [
    *((model, "h200-sxm-141gb") for model in MODELS),
    ("llama-3.1-8b", "rtx-pro-6000-96gb"),
    ("gpt-oss-120b", "h200-sxm-141gb", DATASHEET),
    ("qwen3-30b-a3b", "rtx-pro-6000-96gb", DATASHEET),
]
costs = st.sampled_from([(*each, graphs(mode)) for each in GPUS for mode in MODES])


def ask(cost: ModelledStepCost, batch: tuple[list[tuple[int, int]], int, int]) -> Any:
    """Step time of (chunks, decodes, context of each decode)."""
    chunks, decodes, context = batch
    return cost.step(chunks, decodes, decodes * context, decodes + len(chunks))


def launch_by_launch(
    cost: ModelledStepCost, chunks: list[tuple[int, int]], decodes: int, context: int
) -> tuple[int, int, int]:
    """CPU, GPU and latency of a step whose decodes read `context` tokens, by playing its launches one by one."""
    cpu = cost.host.before + cost.host.per_sequence * (decodes + len(chunks))
    end = gpu = 0
    for launch in cost.launches(chunks, decodes, context, decodes + len(chunks)):
        cpu += launch.cpu
        end = max(end, cpu)
        for kernel in launch.kernels:
            gpu += kernel.ticks
            end += kernel.ticks
    return cpu + cost.host.after, gpu, end


@given(costs, batches)
@settings(max_examples=60)
def test_a_step_is_its_launches_played_one_by_one(arguments: tuple[str, ...], batch: Any) -> None:
    cost = modelled(*arguments)
    chunks, decodes, context = batch
    step = ask(cost, batch)
    assert (step.cpu, step.gpu, step.latency) == launch_by_launch(cost, chunks, decodes, decodes * context)
    assert cost.ticks(chunks, decodes, decodes * context, decodes + len(chunks)) == step


@given(costs, st.integers(1, 700), st.integers(1, 2_000_000))
@settings(max_examples=100)
def test_a_step_without_chunks_is_the_decode_cost_at_its_context(arguments: Any, decodes: int, context: int) -> None:
    cost = modelled(*arguments)
    step = cost.decode(decodes).at(context)
    assert cost.step([], decodes, context, decodes) == step
    assert all(each.decode(decodes, context) >= each.floor for each in cost.forward.times)


@given(costs, st.integers(1, 600))
@settings(max_examples=60)
def test_decode_pieces_cover_every_context_and_never_fall(arguments: Any, decodes: int) -> None:
    cost = modelled(*arguments)
    decode = cost.decode(decodes)
    pieces = decode.pieces
    assert [piece.until for piece in pieces] == sorted({piece.until for piece in pieces})
    assert pieces[-1].until == 2**62
    for piece, following in pairwise(pieces):
        before, after = decode.at(piece.until), decode.at(piece.until + 1)
        assert before.gpu <= after.gpu
        assert before.latency <= after.latency
        assert following.until > piece.until
        for context, step in ((piece.until, before), (piece.until + 1, after)):
            assert (step.cpu, step.gpu, step.latency) == launch_by_launch(cost, [], decodes, context)


@given(costs, batches, st.sampled_from(["tokens", "history", "context", "decode", "chunk"]))
@settings(max_examples=300)
def test_step_time_is_positive_and_monotone(arguments: Any, batch: Any, more: str) -> None:
    """inference-sim#489, Frontier#15: never zero, never less for more tokens, history, context or sequences. (But where
    graphs serve decodes alone, the first chunk takes their padding away; and where attention was measured inside a
    model, it may fall by a few per cent between two measured batches, as no step does by more than a thousandth.)
    """
    cost = modelled(*arguments)
    chunks, decodes, context = batch
    assume(
        chunks or more != "chunk" or cost.policy.mixed is cost.policy.decode or cost.policy.mixed is GraphMode.PIECEWISE
    )
    larger = {
        "tokens": ([(new + 1, history) for new, history in chunks], decodes, context),
        "history": ([(new, history + 7) for new, history in chunks], decodes, context),
        "context": (chunks, decodes, context + 13),
        "decode": (chunks, decodes + 1, context),
        "chunk": ([*chunks, (5, 0)], decodes, context),
    }[more]
    small, large = ask(cost, batch), ask(cost, larger)
    most = 1.001 if isinstance(cost.forward.times[0], InModelAttention) else 1.0
    assert 0 < small.gpu <= most * large.gpu
    assert 0 < small.cpu <= large.cpu or more == "chunk"
    assert small.latency <= most * large.latency
    assert small.latency >= small.gpu


@pytest.mark.parametrize("model", MODELS)
def test_step_time_grows_with_prefill_tokens(model: str) -> None:
    """inference-sim#489: step time identical for 1 and 2048 prefill tokens."""
    cost = modelled(model, "h200-sxm-141gb")
    assert cost.step([(2048, 0)], 0, 0, 1).gpu > 2 * cost.step([(1, 0)], 0, 0, 1).gpu


@pytest.mark.parametrize("level", ["datasheet", "auto"])
@pytest.mark.parametrize("model", [model for model in MODELS if model != "llama-3.1-8b"])
def test_expert_bytes_read_are_those_of_experts_touched(model: str, level: str) -> None:
    """inference-sim#559: MoE counted as all experts. At most min(E, B k) experts are read, k for one token."""
    spec = scenario(model).model
    arguments = (model, "h200-sxm-141gb", f"cost.level={level}")
    (mixture,) = spec.mixtures
    stored = mixture.experts_gate_up
    per_element = bytes_per_element(spec.activation_dtype) if stored is None else stored.element_bytes
    expert = 3 * spec.hidden_size * mixture.width * per_element
    reads = []
    for decodes in (1, 2, 8, 64):
        question: tuple[list[tuple[int, int]], int, int, int] = ([], decodes, 300 * decodes, decodes)
        weights = ("experts", "experts_gate_up", "experts_down")
        experts = [each for each in operators_of_step(scenario(*arguments), *question) if each.name in weights]
        assert all(each.count == spec.num_moe_layers for each in experts)
        read = sum(each.bytes for each in experts)
        reads.append(read / spec.num_moe_layers / expert)
        assert reads[-1] <= min(spec.num_experts, decodes * spec.experts_per_token) * (1 + 1e-12)
    assert reads[0] == pytest.approx(spec.experts_per_token)
    assert reads == sorted(reads)


@pytest.mark.parametrize("model", ["llama-3.1-8b", "llama-3.1-70b", "mixtral-8x7b"])
@given(batch=batches)
@settings(max_examples=15)
def test_two_gpus_take_more_than_half_the_time_of_one(model: str, batch: Any) -> None:
    """inference-sim#1663: TP communication free."""
    one = modelled(model, "h200-sxm-141gb")
    two = modelled(model, "h200-sxm-141gb", "cluster.tensor_parallel=2")
    assert ask(two, batch).gpu > 0.5 * ask(one, batch).gpu
    assert ask(two, batch).latency > 0.5 * ask(one, batch).latency


def test_doubling_context_adds_the_time_to_read_its_kv() -> None:
    """Splitwise [X]: decode time independent of context."""
    cost = modelled("llama-3.1-8b", "h100-sxm-80gb", DATASHEET)
    spec, gpu = scenario().model, scenario().cluster.gpu
    decodes, context = 64, 64 * 4096
    more = cost.decode(decodes).at(2 * context).gpu - cost.decode(decodes).at(context).gpu
    read = context * spec.kv_bytes_per_token / (gpu.hbm_bandwidth * gpu.efficiency.hbm_decode_attention)
    assert to_seconds(more) == pytest.approx(read, rel=1e-4)


def test_window_layers_read_their_window_only() -> None:
    """aiconfigurator#1537/#1539: sliding-window layers charged full KV."""
    spec = scenario("gpt-oss-120b").model
    operators = {each.name: each for each in operators_of_step(scenario("gpt-oss-120b"), [], 8, 8 * 100_000, 8)}
    window, full = operators["attention_decode_window"], operators["attention_decode"]
    assert (window.count, full.count) == (18, 18)
    assert [each["window"] for each in spec.windows] == [128]
    assert window.bytes / full.bytes == pytest.approx(128 / 100_000)


def test_copied_kv_heads_are_read_on_every_gpu() -> None:
    """Four KV heads on eight GPUs: each reads one whole head."""
    arguments = ("qwen3-30b-a3b", "h200-sxm-141gb", "cluster.tensor_parallel=8")
    operators = {each.name: each for each in operators_of_step(scenario(*arguments), [], 4, 4000, 4)}
    assert operators["attention_decode"].bytes == 4000 * 48 * 2 * 128 * 2


def test_mla_reads_its_latent() -> None:
    """aiconfigurator PR#912: MLA bytes a token are (kv_lora_rank + rope_dim) x dtype x layers, on every GPU."""
    for ranks in (1, 8):
        arguments = ("deepseek-v3", "h200-sxm-141gb", f"cluster.tensor_parallel={ranks}")
        spec = scenario(*arguments).model
        operators = {each.name: each for each in operators_of_step(scenario(*arguments), [], 4, 4000, 4)}
        assert operators["attention_decode_latent"].bytes == 4000 * 61 * (512 + 64) * 2
        assert spec.kv_bytes_per_token == 61 * (512 + 64) * 2


def test_the_growth_with_batch_is_kv_traffic() -> None:
    """The field's first lesson: 3 TB/s, all efficiencies 1, no launch and no host; weights given as 14 GB, KV of
    Llama-2-7B, context 300, activations in L2: a decode step takes 4.7, 5.1 and 8.0 ms at 1, 8 and 64 sequences.
    """
    model = "{config: llama-2-7b, weight_bytes: 14 GB}"
    cost = build_step_cost(scenario(model, "ideal-3tb", "engine.max_model_len=4096"))
    times = [1e3 * to_seconds(cost.decode(n).at(300 * n).latency) for n in (1, 8, 64)]
    assert [round(time, 1) for time in times] == [4.7, 5.1, 8.0]
    kv = 63 * 300 * find_model("llama-2-7b").kv_bytes_per_token / 3e12
    assert times[2] - times[0] == pytest.approx(1e3 * kv, rel=0.01)


@given(costs, batches)
@settings(max_examples=40)
def test_operators_add_up_to_the_gpu_time_of_the_step(arguments: Any, batch: Any) -> None:
    chunks, decodes, context = batch
    question = (chunks, decodes, decodes * context, decodes + len(chunks))
    operators = operators_of_step(scenario(*arguments), *question)
    assert sum(to_ticks(each.time) for each in operators) == ask(modelled(*arguments), batch).gpu
    assert len({each.name for each in operators}) == len(operators)
    assert all(each.time > 0 and each.count > 0 for each in operators)


def test_explained_step_has_the_documented_keys() -> None:
    explained = explain_step(scenario(), [(512, 0)], 64, 64 * 1024, 65)
    assert list(explained) == ["time", "gpu_time", "cpu_time", "tokens", "padded_tokens", "graph", "operators"]
    assert (explained["tokens"], explained["padded_tokens"], explained["graph"]) == (576, 576, "none")
    small = explain_step(scenario(), [(100, 0)], 64, 64 * 1024, 65)
    assert (small["tokens"], small["padded_tokens"], small["graph"]) == (164, 168, "piecewise")
    decode = explain_step(scenario(), [], 61, 61 * 1024, 61)
    assert (decode["tokens"], decode["padded_tokens"], decode["graph"]) == (61, 64, "full")
    first = decode["operators"][0]  # type: ignore[index]
    assert list(first) == ["name", "count", "bytes", "flops", "time", "bound"]


def test_padding_widens_gemms_and_not_attention() -> None:
    asked = scenario("llama-3.1-8b", "h100-sxm-80gb", DATASHEET)
    padded, exact = ({each.name: each for each in operators_of_step(asked, [], n, 90_000, n)} for n in (250, 256))
    assert padded["qkv"].flops == exact["qkv"].flops
    assert padded["attention_decode"].bytes == exact["attention_decode"].bytes
    assert padded["attention_decode"].time < exact["attention_decode"].time
    assert padded["lm_head"].flops < exact["lm_head"].flops


def test_no_graph_above_the_largest_size() -> None:
    cost = modelled()
    assert cost.decode(512).graph
    assert cost.decode(512).padded == 512
    assert not cost.decode(513).graph
    assert cost.decode(513).padded == 0
    assert cost.decode(513).cpu > cost.decode(512).cpu


def test_eager_launches_bind_small_batches() -> None:
    """Launch-bound: with graphs a small decode takes GPU time, eager it takes the time of its launches."""
    tiny = "qwen3-0.6b"
    graph, eager = modelled(tiny), modelled(tiny, "h100-sxm-80gb", "engine.enforce_eager=true")
    assert eager.decode(1).at(100).gpu == graph.decode(1).at(100).gpu
    host = eager.host.before + eager.host.per_sequence
    head = sum(kernel.ticks for kernel in eager.forward.kernels(eager.forward.shape.head, 1))
    launched = eager.decode(1).cpu - eager.host.after
    assert eager.decode(1).at(100).latency == launched - eager.forward.launch.kernel + head
    assert launched - host > 1.05 * eager.decode(1).at(100).gpu
    assert graph.decode(1).at(100).latency == host + graph.forward.launch.graph + graph.decode(1).at(100).gpu


def test_python_launches_what_is_not_compiled() -> None:
    """`enforce_eager` compiles nothing; without it attention alone, outside graphs, is called from Python."""
    launch = find_gpu("h100-sxm-80gb").launch
    assert launch.eager is not None
    assert launch.eager > 2 * launch.kernel
    model = find_model("llama-3.1-8b")
    mixed, eager = modelled(), modelled("llama-3.1-8b", "h100-sxm-80gb", "engine.enforce_eager=true")
    chunks = [(8192, 0)]
    assert mixed.graph_of(chunks, 0) == eager.graph_of(chunks, 0)
    launches = len(mixed.launches(chunks, 0, 0, 1))
    attention, others = model.num_layers, launches - model.num_layers
    assert sum(each.cpu for each in mixed.launches(chunks, 0, 0, 1)) == to_ticks(launch.eager) * attention + (
        to_ticks(launch.kernel) * others
    )
    assert sum(each.cpu for each in eager.launches(chunks, 0, 0, 1)) == to_ticks(launch.eager) * launches


def test_a_profile_without_eager_launches_takes_those_of_compiled_code() -> None:
    launch = LaunchSpec.model_validate({"kernel": 7e-6, "graph": 1e-5})
    assert launch_ticks(launch, eager=True) == launch_ticks(launch, eager=False)
    assert launch_ticks(launch, eager=True).python == to_ticks(7e-6)


def test_host_time_enters_the_step_of_a_synchronous_engine_whole() -> None:
    """inference-sim#480: with synchronous scheduling, host overhead h adds exactly h to every step."""
    plain = build_step_cost(scenario("llama-3.1-8b", "h100-sxm-80gb", "engine.async_scheduling=false"))
    slow = build_step_cost(
        scenario("llama-3.1-8b", "h100-sxm-80gb", "engine.async_scheduling=false", "cost.host={per_step: 3 ms}")
    )
    base = scenario().cost.host.per_step
    for question in (([], 32, 32_000, 32), ([(700, 100)], 32, 32_000, 33)):
        before, after = plain.step(*question), slow.step(*question)
        assert after.latency - before.latency == to_ticks(0.003) - to_ticks(base)
        assert after.cpu - before.cpu == to_ticks(0.003) - to_ticks(base)
        assert after.gpu == before.gpu
    assert plain.update == 0


def test_asynchronous_engine_splits_off_the_update() -> None:
    sync = build_step_cost(scenario("llama-3.1-8b", "h100-sxm-80gb", "engine.async_scheduling=false"))
    asynchronous = build_step_cost(scenario())
    update = to_ticks(scenario().cost.host.update)
    assert asynchronous.update == update > 0
    assert asynchronous.decode(8).cpu == sync.decode(8).cpu
    assert sync.decode(8).at(8000).latency - asynchronous.decode(8).at(8000).latency == update


def test_constant_step_is_constant() -> None:
    cost = build_step_cost(scenario("llama-3.1-8b", "h100-sxm-80gb", "cost.constant_step=10 ms"))
    assert cost.update == 0
    ten = to_ticks(0.01)
    for step in (cost.step([(5000, 3)], 7, 900, 8), cost.decode(1).at(1), cost.decode(400).at(10**6)):
        assert step == (0, ten, ten, 0)
    assert cost_level(scenario("llama-3.1-8b", "h100-sxm-80gb", "cost.constant_step=10 ms")) == "constant"


def test_a_step_that_takes_no_time_is_refused() -> None:
    """Frontier#15: a zero step time is an error, not a fast device."""
    with pytest.raises(ScenarioError, match=r"constant_step"):
        build_step_cost(scenario("llama-3.1-8b", "h100-sxm-80gb", "cost.constant_step=0 s"))


def test_cost_level_that_is_not_there_is_refused() -> None:
    with pytest.raises(ScenarioError, match="h100-sxm-80gb has not been calibrated"):
        build_step_cost(scenario("llama-3.1-8b", "h100-sxm-80gb", "cost.level=calibrated"))
    with pytest.raises(ScenarioError, match="no kernels were measured on rtx-4090"):
        build_step_cost(scenario("llama-3.1-8b", "rtx-4090-24gb", "cost.level=kernels"))


def test_front_end_is_the_hosts() -> None:
    host = "{front_end_per_request: 2 ms, front_end_per_token: 3 us, delivery: 4 ms, front_end_busy: 5 ms}"
    front = front_end(scenario("llama-3.1-8b", "h100-sxm-80gb", f"cost.host={host}"))
    assert front == (to_ticks(0.002), to_ticks(3e-6), to_ticks(0.004), to_ticks(0.005))


@given(
    st.sampled_from(["llama-3.1-8b", "gpt-oss-120b"]),
    st.lists(st.tuples(st.integers(1, 600), st.integers(1, 3000), st.integers(1, 50)), min_size=1, max_size=8),
)
@settings(max_examples=25)
def test_breakdown_of_decode_runs_adds_up_exactly(model: str, runs: list[tuple[int, int, int]]) -> None:
    cost = modelled(model)
    rows = [(n, n * context, steps) for n, context, steps in runs]
    gpu = [sum(cost.decode(n).at(context + i * n).gpu for i in range(steps)) for n, context, steps in rows]
    decodes, context, steps = np.array(rows, dtype=np.int64).T
    gpu_time = to_seconds(np.array(gpu, dtype=np.int64))
    log = {
        "prefill_tokens": np.zeros_like(decodes),
        "decodes": decodes,
        "context_tokens": context,
        "steps": steps,
        "gpu_time": gpu_time,
        "start": 0 * gpu_time,
        "end": 2 * gpu_time.cumsum(),
        "cpu_time": 0 * gpu_time,
        "replica": np.zeros_like(decodes),
    }
    groups = cost.breakdown(log)
    assert groups.pop("host") == pytest.approx(gpu_time.sum())
    assert groups["attention_prefill"] == 0
    assert sum(groups.values()) == pytest.approx(gpu_time.sum(), rel=1e-9)


def test_breakdown_gives_prompt_attention_what_is_left() -> None:
    cost = modelled()
    chunks = [(2000, 1000)]
    step = cost.step(chunks, 16, 16_000, 17)
    one = np.ones(1)
    log = {
        "prefill_tokens": one * 2000,
        "decodes": one * 16,
        "context_tokens": one * 16_000,
        "steps": one,
        "gpu_time": one * to_seconds(step.gpu),
        "start": one * 0,
        "end": one,
        "cpu_time": one * 0,
        "replica": one * 0,
    }
    attention = to_seconds(32 * cost.forward.times[0].prefill(chunks))
    assert cost.breakdown(log)["attention_prefill"] == pytest.approx(attention)


def test_host_time_is_what_overlapping_steps_leave_of_the_clock() -> None:
    """Asynchronous steps are decided while their predecessor runs; however the log is cut into rows, the same gap is
    left. Replicas have clocks of their own.
    """
    gpu = to_seconds(modelled().decode(4).at(400).gpu)
    plain = {"prefill_tokens": [0.0], "decodes": [4.0], "context_tokens": [400.0]}
    cut = {"start": [0, 0.5 * gpu, 1.1 * gpu], "end": [gpu, 2 * gpu, 3.25 * gpu], "gpu_time": [gpu] * 3}
    whole = {"start": [0.0], "end": [3.25 * gpu], "gpu_time": [3 * gpu]}
    other = {"start": [0.25 * gpu], "end": [1.5 * gpu], "gpu_time": [gpu]}
    for rows, steps in ((cut, [1, 1, 1]), (whole, [3])):
        log = {name: np.array(values * len(steps)) for name, values in plain.items()}
        log |= {name: np.array(values) for name, values in rows.items()}
        log |= {"steps": np.array(steps), "replica": np.zeros(len(steps)), "cpu_time": np.zeros(len(steps))}
        assert modelled().breakdown(log)["host"] == pytest.approx(0.25 * gpu)
        more = plain | other | {"steps": [1], "replica": [1], "cpu_time": [0.0]}
        both = {name: np.append(values, more[name]) for name, values in log.items()}
        assert modelled().breakdown(both)["host"] == pytest.approx(0.5 * gpu)


def test_time_in_which_only_the_cpu_works_counts_as_host(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows are the same whether worked through together or in blocks."""
    gpu = to_seconds(modelled().decode(4).at(400).gpu)
    log = {"prefill_tokens": [0.0] * 3, "decodes": [4.0] * 3, "context_tokens": [400.0] * 3, "steps": [1] * 3}
    log |= {"start": [0, 2 * gpu, 4 * gpu], "end": [gpu, 3 * gpu, 5 * gpu], "gpu_time": [gpu] * 3, "replica": [0] * 3}
    columns = {name: np.array(values) for name, values in log.items()} | {"cpu_time": np.array([2 * gpu] * 3)}
    whole = modelled().breakdown(columns)
    assert whole["host"] == pytest.approx(3 * gpu)
    monkeypatch.setattr(breakdown, "_ROWS", 1)
    assert modelled().breakdown(columns) == pytest.approx(whole)


def test_modes_say_what_runs() -> None:
    assert modelled().graph_of([], 8) == (GraphMode.FULL, 8)
    assert modelled().graph_of([(3, 0)], 6) == (GraphMode.PIECEWISE, 16)
    assert modelled().graph_of([(3000, 0)], 6) == (GraphMode.NONE, 3006)


@pytest.mark.parametrize(
    ("dtype", "names"), [("bf16", set()), ("fp8", {"out"}), ("nvfp4", {"qkv", "out", "gate_up", "down"})]
)
def test_inputs_are_quantised_where_that_is_a_kernel_of_its_own(dtype: str, names: set[str]) -> None:
    question = scenario("llama-3.1-8b", "b200-sxm-180gb", f"model={{config: llama-3.1-8b, weight_dtype: {dtype}}}")
    found = {each.name for each in operators_of_step(question, [], 8, 800, 8)}
    assert {name.removesuffix("_quantize") for name in found if name.endswith("_quantize")} == names
