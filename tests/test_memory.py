"""The memory ledger against start-up logs of real servers, and the laws it keeps."""

from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simserve.cost.activations import SAMPLER_BYTES, SORTING_SAMPLER_BYTES, activation_bytes
from simserve.cost.held import WHOLE
from simserve.cost.kinds.window import HeldWindow
from simserve.cost.kv_pool import KvGroups
from simserve.cost.launch import NO_GRAPHS, GraphPolicy, graph_policy
from simserve.cost.memory import GIB, graph_bytes, memory_ledger, weight_bytes
from simserve.spec.catalogue import find_model
from simserve.spec.engine import capture_sizes
from simserve.spec.errors import ScenarioError
from simserve.spec.layers.attention import GroupedAttention
from simserve.spec.load import parse_scenario
from simserve.spec.model import ModelSpec
from simserve.spec.scenario import Scenario

FRAMEWORK = 0.15
"""GiB outside the allocator where a log does not state them. Stated by logs of vLLM 0.7 to 0.27 on one GPU: 0.01, 0.02,
0.03, 0.05, 0.06, 0.07, 0.07, 0.12, 0.26, 0.35; on two or more 0.20 and 0.30."""

QWEN25_3B_SIZES = {
    "name": "Qwen2.5-3B",
    "hidden_size": 2048,
    "num_layers": 36,
    "num_heads": 16,
    "num_kv_heads": 2,
    "head_dim": 128,
    "intermediate_size": 11008,
    "vocab_size": 151936,
    "tie_word_embeddings": True,
    "attention_bias": True,
    "max_position_embeddings": 32768,
}
QWEN25_3B = ModelSpec.model_validate(QWEN25_3B_SIZES)
PHI_2_MARLIN = ModelSpec(
    name="phi-2 in 4 bit: 2.517e9 weights with scales, two embeddings of 51200 x 2560 in fp16, no gate in its MLP",
    hidden_size=2560,
    num_layers=32,
    num_heads=32,
    num_kv_heads=32,
    head_dim=80,
    intermediate_size=10240,
    vocab_size=51200,
    max_position_embeddings=2048,
    weight_bytes=2.517e9 * (0.5 + 2.5 / 128) + 2 * 51200 * 2560 * 2,
)
LLAMA_3_8B = find_model("llama-3.1-8b").model_copy(update={"max_position_embeddings": 8192})
MISTRAL_7B = find_model("mistral-7b")
ZEPHYR_AWQ = MISTRAL_7B.in_format("int4")


@dataclass(frozen=True)
class Log:
    """What a start-up log states, and the engine version's way to profile. Memory in GiB."""

    source: str
    version: str
    model: ModelSpec
    card: float
    utilization: float
    kv_tokens: int
    batched_tokens: int
    ranks: int = 1
    sampler_bytes: int = SAMPLER_BYTES
    counted: Literal["allocated", "reserved"] = "allocated"
    framework: float = FRAMEWORK
    graphs: GraphPolicy = NO_GRAPHS
    """Graphs that are charged to the budget; before vLLM 0.21 they lay outside it."""

    def predicted_tokens(self) -> float:
        activations = activation_bytes(
            self.model,
            self.ranks,
            tokens=self.batched_tokens,
            rows=256,
            max_model_len=self.batched_tokens,
            sampler_bytes=self.sampler_bytes,
            counted=self.counted,
        )
        kv = (self.utilization * self.card - self.framework) * GIB - weight_bytes(self.model, self.ranks)
        kv -= activations + graph_bytes(self.model.num_layers, self.graphs)
        return kv / KvGroups.of(self.model, self.ranks, 16).block_bytes * 16


BENCHMARKING = "github.com/dennislee22/vLLM-benchmarking, log/vllm-7B-{}.log"
PR4454 = "github.com/vllm-project/vllm/pull/4454"
QWEN2_7B, LLAMA_31_8B = find_model("qwen2-7b"), find_model("llama-3.1-8b")
V0: Any = {"version": "0.4.1", "sampler_bytes": SORTING_SAMPLER_BYTES, "counted": "reserved"}
SORTED: Any = {"sampler_bytes": SORTING_SAMPLER_BYTES}

LOGS = {
    # A100 80 GB; 2048 batched tokens and 256 sequences by default, FlashInfer's sampler
    "K01": Log(BENCHMARKING.format("1gpuA10080GB-0.5GRAM"), "0.10.1.1", QWEN2_7B, 79.25, 0.5, 464_848, 2048),
    "K03": Log(
        BENCHMARKING.format("2gpuA10080GB-0.25GRAM-same-node"),
        *("0.10.1.1", QWEN2_7B, 79.25, 0.25, 450_192, 2048, 2),
        framework=0.25,
    ),
    "K04": Log(
        BENCHMARKING.format("2gpuA10080GB-0.5GRAM-same-node"),
        *("0.10.1.1", QWEN2_7B, 79.25, 0.5, 1_192_160, 2048, 2),
        framework=0.25,
    ),
    # A6000 48 GB; without chunked prefill v0 profiles max_model_len tokens
    "K12": Log(PR4454, model=LLAMA_3_8B, card=47.54, utilization=0.9, kv_tokens=211_968, batched_tokens=8192, **V0),
    "K13": Log(PR4454, model=MISTRAL_7B, card=47.54, utilization=0.9, kv_tokens=203_760, batched_tokens=32768, **V0),
    "K15": Log(PR4454, model=ZEPHYR_AWQ, card=47.54, utilization=0.9, kv_tokens=282_256, batched_tokens=32768, **V0),
    "K16": Log(PR4454, model=PHI_2_MARLIN, card=47.54, utilization=0.9, kv_tokens=131_424, batched_tokens=2048, **V0),
    # 53.29 GiB of KV on an 80 GB card; the log states 1.79 GiB outside torch
    "K19": Log(
        "github.com/vllm-project/vllm/pull/10511",
        *("0.6.5", LLAMA_3_8B, 79.22, 0.9, int(53.29 * GIB / 131072), 8192),
        framework=1.79,
        **SORTED,
    ),
    "K48": Log("public README, one T4", "0.6", QWEN25_3B, 14.56, 0.9, 168_528, 4096, **SORTED),
    # RTX 3090, max_model_len 20000; the log states 0.35 GiB outside torch
    "K52": Log(
        "github.com/vllm-project/vllm/issues/10517",
        *("0.6.4", LLAMA_31_8B, 23.58, 0.9, 31_232, 20000),
        framework=0.35,
        **SORTED,
    ),
    # RTX 4090; 0.19 captures trial graphs inside the profile, so that they are charged
    "K61": Log(
        "github.com/casys-kaist/LLMServingSim bench/examples",
        *("0.19.0", LLAMA_31_8B, 25_250_627_584 / GIB, 0.9, 41_408, 2048),
        graphs=graph_policy("full_and_piecewise", capture_sizes(512), 256),
    ),
}
"""Rows of dense models that state what decides their KV cache. Of those collected with an exact size, these do not
apply: Llama-2-70B of vLLM 0.2.4 (vllm#2031: its profiler leaked memory), Llama-3.1-70B w8a8 of a v1 of January 2025
(vllm#12569: profiled the logits of all tokens; neither limits nor memory outside torch stated), Llama-2-13B of 2023
(card not stated), deepseek-coder-6.7B on two T4 (vllm#5248: limits not stated; 3 GiB a GPU that no line explains)."""


@pytest.mark.parametrize("name", LOGS)
def test_kv_tokens_are_those_of_the_log(name: str) -> None:
    """LLMServingSim (mem_util): a wrong KV size costs a fifth of TTFT. 3 %, or 10 % at small utilisation."""
    log = LOGS[name]
    assert log.predicted_tokens() == pytest.approx(log.kv_tokens, rel=0.03 if log.utilization >= 0.5 else 0.1)


def test_activation_peaks_are_those_of_logs() -> None:
    """Peaks that logs state on their own: v0 with 8192, 20000 and 32768 tokens."""
    qwen = ModelSpec.model_validate(
        QWEN25_3B_SIZES
        | {"name": "Qwen2.5-1.5B", "hidden_size": 1536, "num_layers": 28, "num_heads": 12, "intermediate_size": 8960}
    )
    for model, tokens, rows, stated in (
        (LLAMA_3_8B, 8192, 256, 1.26),
        (find_model("llama-3.1-8b"), 20000, 256, 2.07),
        (qwen, 32768, 256, 2.02),
        (find_model("qwen3-8b"), 2048, 256, 1.40),
    ):
        peak = activation_bytes(
            model, 1, tokens=tokens, rows=rows, max_model_len=tokens, sampler_bytes=SORTING_SAMPLER_BYTES
        )
        assert peak / GIB == pytest.approx(stated, rel=0.06)


@cache
def scenario(model: str, gpu: str = "h100-sxm-80gb", *overrides: str) -> Scenario:
    return parse_scenario(
        f"""
        model: {model}
        workload: {{arrivals: {{process: poisson, rate: 1}}, input: 100, output: 10, num_requests: 10}}
        cluster: {{gpu: {gpu}}}
        """,
        overrides,
    )


deployments = st.tuples(
    st.sampled_from(
        [("llama-3.1-8b", 1), ("llama-3.1-8b", 4), ("mixtral-8x7b", 2), ("gpt-oss-120b", 2), ("deepseek-v3", 8)]
    ),
    st.floats(0.75, 1.0),
    st.sampled_from([512, 2048, 8192, 16384]),
    st.sampled_from([16, 256, 1024]),
    st.booleans(),
)


def deployed(deployment: tuple[tuple[str, int], float, int, int, bool]) -> Scenario:
    (model, ranks), utilization, tokens, seqs, eager = deployment
    return scenario(
        model,
        "h200-sxm-141gb",
        f"cluster.tensor_parallel={ranks}",
        "engine.max_model_len=4096",
        f"engine.gpu_memory_utilization={utilization}",
        f"engine.max_num_batched_tokens={tokens}",
        f"engine.max_num_seqs={min(seqs, tokens)}",
        f"engine.enforce_eager={str(eager).lower()}",
    )


@given(deployments)
@settings(max_examples=60)
def test_lines_add_up_to_the_card(deployment: tuple[tuple[str, int], float, int, int, bool]) -> None:
    """aiconfigurator#1228, #619: double counts. The lines sum to the device total, the budget is a share of it."""
    question = deployed(deployment)
    ledger = memory_ledger(question)
    lines = (ledger.weights, ledger.activations, ledger.framework, ledger.cuda_graphs, ledger.kv, ledger.outside)
    assert sum(lines) == ledger.total == round(question.cluster.gpu.memory)
    assert all(line >= 0 for line in lines)
    assert ledger.budget == int(ledger.total * question.engine.gpu_memory_utilization)
    assert 0 <= ledger.kv - ledger.allocated_blocks * ledger.block_bytes < ledger.block_bytes
    assert (ledger.cuda_graphs == 0) == question.engine.enforce_eager
    assert ledger.num_gpu_blocks <= ledger.allocated_blocks


@given(deployments, st.sampled_from(["max_num_batched_tokens", "max_num_seqs"]))
@settings(max_examples=40)
def test_larger_limits_leave_less_for_kv(deployment: tuple[tuple[str, int], float, int, int, bool], limit: str) -> None:
    """The activation peak grows with the batched-token limit, and the sampler's with the sequences."""
    small = deployed(deployment)
    value = getattr(small.engine, limit)
    if limit == "max_num_seqs" and 2 * value > small.engine.max_num_batched_tokens:
        return
    large = small.with_overrides([f"engine.{limit}={2 * value}"])
    assert memory_ledger(small).activations <= memory_ledger(large).activations
    assert memory_ledger(small).kv >= memory_ledger(large).kv


def test_weights_that_do_not_fit_are_an_error_with_their_bytes() -> None:
    """inference-sim#1160; aiconfigurator#509: 405B on one H100 must not run."""
    question = scenario("llama-3.1-405b")
    weights = round(weight_bytes(question.model, 1))
    with pytest.raises(ScenarioError, match=f"weights do not fit.*{round(question.cluster.gpu.memory)}.*{weights}"):
        memory_ledger(question)


def test_activations_that_do_not_fit_are_named() -> None:
    tight = scenario(
        "llama-3.1-8b", "rtx-4090-24gb", "engine.max_num_batched_tokens=131072", "engine.max_model_len=4096"
    )
    with pytest.raises(ScenarioError, match="memory: activations do not fit"):
        memory_ledger(tight)


def test_kv_below_one_request_is_an_error_that_says_what_would_fit() -> None:
    """RULES 36: vLLM refuses at start-up; the length it suggests is accepted, the next block is not."""
    with pytest.raises(ScenarioError, match="one request of 131072 tokens") as refusal:
        memory_ledger(scenario("llama-3.1-8b", "rtx-4090-24gb"))
    most = int(str(refusal.value).split("at most about ")[1].split(",")[0])
    memory_ledger(scenario("llama-3.1-8b", "rtx-4090-24gb", f"engine.max_model_len={most}"))
    with pytest.raises(ScenarioError, match="one request"):
        memory_ledger(scenario("llama-3.1-8b", "rtx-4090-24gb", f"engine.max_model_len={most + 16}"))


def test_num_gpu_blocks_of_a_real_server_override_the_ledger() -> None:
    """LLMServingSim caution (mem_util): imported blocks win, and the ledger says where the number came from."""
    ledger = memory_ledger(
        scenario("llama-3.1-8b", "rtx-4090-24gb", "engine.num_gpu_blocks=2588", "engine.max_model_len=32768")
    )
    assert (ledger.num_gpu_blocks, ledger.kv_tokens, ledger.source) == (2588, 41408, "engine.num_gpu_blocks")
    assert ledger.kv == 2588 * 16 * 131072
    lines = (ledger.weights, ledger.activations, ledger.framework, ledger.cuda_graphs, ledger.kv, ledger.outside)
    assert sum(lines) == ledger.total
    assert memory_ledger(scenario("llama-3.1-8b")).source == "memory ledger"


def test_more_blocks_than_the_card_holds_are_refused() -> None:
    """TensorRT-LLM#224: a user took tokens for blocks, 65 GiB of KV on a 24 GB card."""
    with pytest.raises(ScenarioError, match=r"8348 blocks are 70028099584 bytes \(65.22 GiB\)"):
        memory_ledger(scenario("llama-2-7b", "l4-24gb", "engine.num_gpu_blocks=8348"))


def test_window_layers_are_charged_their_window() -> None:
    """aiconfigurator#1537/#1539: window layers charged full KV (1.996 x). gpt-oss-120b on four A100, vLLM 0.10.1.1,
    log of dennislee22/vLLM-benchmarking: 45.32 GiB are 330018 blocks of two groups of 18 layers, and a request of 16384
    tokens holds 1161 of them (2048 tokens in flight): 284.25 at once.
    """
    model = find_model("gpt-oss-120b")
    groups = KvGroups.of(model, 4, 16)
    assert groups == KvGroups(18, ((HeldWindow(128), 1, 1), (WHOLE, 1, 1)), 16 * 2 * 2 * 64 * 2)
    assert 45.32 * GIB / groups.block_bytes == pytest.approx(330018, rel=1e-4)
    assert groups.request_blocks(16384, 16, in_flight=2048) == 1161
    assert round(330018 / 1161, 2) == 284.25
    ledger = memory_ledger(scenario("gpt-oss-120b", "h200-sxm-141gb"))
    assert 0.85 * ledger.allocated_blocks < ledger.num_gpu_blocks < ledger.allocated_blocks
    assert ledger.kv_tokens == pytest.approx(16 * ledger.num_gpu_blocks, rel=1e-3)


def test_groups_are_as_long_as_the_rarer_kind_of_layer() -> None:
    """Gemma-3-27B: 52 window and 10 full layers make groups of 10: one full and six window groups."""
    (full,) = LLAMA_3_8B.layers
    assert isinstance(full.attention, GroupedAttention)
    window = full.model_copy(update={"attention": full.attention.model_copy(update={"window": 1024}), "count": 1})
    full = full.model_copy(update={"count": 1})
    gemma = LLAMA_3_8B.with_layers([window if place % 6 != 5 else full for place in range(62)])
    groups = KvGroups.of(gemma, 1, 16)
    assert (groups.layers, groups.groups) == (10, ((HeldWindow(1024), 1, 6), (WHOLE, 1, 1)))


def test_layers_that_cache_less_for_a_token_have_longer_blocks() -> None:
    """vLLM 0.32, unify_kv_cache_spec_page_size: pages of one size, those of the smaller layers hold more tokens.

    MiMo-V2-Flash: 9 full layers of 4 KV heads, 39 window layers of 8; a key has 192 elements, a value 128.
    """
    full = {"type": "grouped", "num_heads": 64, "num_kv_heads": 4, "head_dim": 192, "v_head_dim": 128}
    window = full | {"num_kv_heads": 8, "window": 128}
    mlp = {"type": "dense", "width": 16384}
    layers = [{"attention": full if place % 6 == 0 or place == 47 else window, "mlp": mlp} for place in range(48)]
    sizes = {"hidden_size": 4096, "vocab_size": 152576, "max_position_embeddings": 262144}
    model = ModelSpec.model_validate({"name": "mixed", "layers": layers} | sizes)
    groups = KvGroups.of(model, 1, 16)
    assert (groups.layers, groups.groups) == (9, ((WHOLE, 2, 1), (HeldWindow(128), 1, 5)))
    assert groups.block_bytes == 9 * 16 * 8 * 320 * 2
    assert groups.request_blocks(32768, 16, in_flight=0) == 32768 / 32 + 5 * 9


def test_layers_whose_caches_do_not_divide_are_refused() -> None:
    attention = {"type": "grouped", "num_heads": 6, "num_kv_heads": 6, "head_dim": 64}
    layers = [{"attention": attention, "mlp": None}, {"attention": attention | {"num_kv_heads": 4, "num_heads": 4}}]
    sizes = {"hidden_size": 384, "vocab_size": 100, "max_position_embeddings": 100}
    model = ModelSpec.model_validate({"name": "odd", "layers": layers} | sizes)
    with pytest.raises(ScenarioError, match=r"model odd: .* 16384 and 24576 bytes .* not modelled yet"):
        KvGroups.of(model, 1, 16)


@pytest.mark.parametrize(
    ("model", "ranks", "kv_dtype", "expected"),
    [
        ("llama-3.1-8b", 1, "bf16", 2 * 32 * 8 * 128 * 2),
        ("llama-3.1-8b", 2, "bf16", 32 * 8 * 128 * 2),
        ("llama-3.1-8b", 2, "fp8", 32 * 8 * 128),
        ("llama-3.1-8b", 16, "bf16", 2 * 32 * 128 * 2),
        ("deepseek-v3", 1, "bf16", 61 * (512 + 64) * 2),
        ("deepseek-v3", 8, "fp8", 61 * (512 + 64)),
    ],
)
def test_kv_bytes_of_a_token_on_one_gpu(model: str, ranks: int, kv_dtype: str, expected: int) -> None:
    """aiconfigurator PR#912 (MLA taken for GQA), LLMServingSim (Q sent with KV): K and V of the GPU's heads only; fewer
    heads than GPUs are copied; the latent of MLA lies on every GPU.
    """
    spec = find_model(model).model_copy(update={"kv_dtype": kv_dtype})
    assert KvGroups.of(spec, ranks, 16).block_bytes == 16 * expected


@pytest.mark.parametrize(
    ("model", "dtype", "ranks", "gib"),
    [
        ("qwen2-7b", "bf16", 1, 14.2488),
        ("qwen2-7b", "bf16", 2, 7.1217),
        ("llama-3.1-8b", "bf16", 1, 14.9888),
        ("llama-3.1-70b", "int8", 1, 67.7229),
    ],
)
def test_loaded_weights_are_those_of_logs(model: str, dtype: str, ranks: int, gib: float) -> None:
    """ "Model loading took" of the logs above and of vllm-project/vllm#12569."""
    spec = find_model(model).in_format(dtype)
    assert weight_bytes(spec, ranks) / GIB == pytest.approx(gib, rel=0.005)


@pytest.mark.parametrize(
    ("layers", "mode", "sizes", "seqs", "gib"),
    [
        (28, "piecewise", 67, 256, 0.50),
        (32, "piecewise", 67, 256, 0.67),
        (24, "full_and_piecewise", 51, 256, 0.40),
        (36, "full_and_piecewise", 51, 256, 0.54),
        (28, "full_and_piecewise", 35, 128, 0.37),
    ],
)
def test_graph_memory_is_near_that_of_logs(layers: int, mode: str, sizes: int, seqs: int, gib: float) -> None:
    """The logs that the estimate was fitted to; it need not be better, since it is 1 % of a card."""
    captured = (1, 2, 4, *range(8, 8 * (sizes - 2), 8)) if mode == "piecewise" else capture_sizes(2 * seqs)
    assert len(captured) == sizes
    assert graph_bytes(layers, graph_policy(mode, captured, seqs)) / GIB == pytest.approx(gib, rel=0.2)
