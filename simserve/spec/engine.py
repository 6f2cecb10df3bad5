"""The engine's settings under vLLM's names, and vLLM 0.32's server defaults for what a scenario leaves null."""

from collections.abc import Mapping
from contextlib import suppress
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from simserve.spec.hardware import GpuSpec
from simserve.spec.model import ModelSpec
from simserve.spec.names import SchedulerName
from simserve.spec.passes import PassSpec
from simserve.spec.policies import StaticBatchingSpec, fill_policies
from simserve.spec.quantities import Bytes, Count, PositiveCount, PositiveShare, Share, parse_count
from simserve.spec.speculative import SpeculativeSpec, fill_speculative, query_len_of
from simserve.spec.strict import Strict

_BATCH_DEFAULTS = {"xlarge": (16384, 1024), "large": (8192, 1024), "standard": (2048, 256)}
"""GPU class -> max_num_batched_tokens and max_num_seqs of the API server (vLLM 0.32, get_batch_defaults)."""

_LARGEST_GRAPH = 512
_LARGEST_GRAPH_BLACKWELL = 1024
"""Batches above are never captured by default; the second on data-centre Blackwell (vLLM 0.32, config/vllm.py)."""


class CudaGraphSpec(Strict):
    """Which batches run as a captured CUDA graph."""

    mode: Literal["none", "piecewise", "full", "full_decode_only", "full_and_piecewise"] = "full_and_piecewise"
    capture_sizes: tuple[PositiveCount, ...]
    """Ascending token counts; a batch is padded up to the next one, and above the last there is no graph."""

    @model_validator(mode="after")
    def _ascending(self) -> Self:
        if list(self.capture_sizes) != sorted(set(self.capture_sizes)):
            raise PydanticCustomError("order", "must ascend", {"key": "capture_sizes"})
        if self.mode == "none" and self.capture_sizes:
            raise PydanticCustomError("exclusive", "would be ignored under mode none", {"key": "capture_sizes"})
        return self


class EngineSpec(Strict):
    """One replica's engine, every default resolved."""

    scheduler: SchedulerName = "vllm_v1"
    static_batching: StaticBatchingSpec | None = None
    max_num_seqs: PositiveCount
    max_num_batched_tokens: PositiveCount
    max_num_active_seqs: PositiveCount
    max_model_len: PositiveCount
    block_size: Literal[1, 2, 4, 8, 16, 32, 64, 128, 256] = 16
    gpu_memory_utilization: PositiveShare = 0.92
    num_gpu_blocks: Annotated[PositiveCount, Field(ge=2)] | None = None
    """As vLLM logs it, the null block included; what the memory ledger gives where it is left out."""
    enable_prefix_caching: bool = True
    enable_chunked_prefill: bool = True
    long_prefill_token_threshold: Count = 0
    max_num_queued_reqs: Count | None = None
    """Requests that a replica may have, waiting or running; one more gets HTTP 503."""
    max_num_queued_tokens: Count | None = None
    """Prompt tokens of the requests without a first token, from which on a replica answers HTTP 503."""
    scheduling_policy: Literal["fcfs", "priority"] = "fcfs"
    watermark: Annotated[Share, Field(lt=1)] = 0.0
    scheduler_reserve_full_isl: bool = True
    async_scheduling: bool = True
    enforce_eager: bool = False
    cuda_graph: CudaGraphSpec
    moe_backend: Literal["auto", "triton", "marlin", "flashinfer_trtllm", "flashinfer_trtllm_afp8"] = "auto"
    """Kernels that multiply experts in mxfp4 (gpt-oss). `auto` is vLLM's choice by GPU: `triton` on Hopper,
    `flashinfer_trtllm` (16-bit activations) on data-centre Blackwell, `marlin` on all others. In older
    versions the environment chose: VLLM_MXFP4_USE_MARLIN=1 is `marlin`, VLLM_USE_FLASHINFER_MOE_MXFP4_MXFP8=1
    `flashinfer_trtllm_afp8` (8-bit activations).
    """
    pass_config: PassSpec = PassSpec()
    linear_backend: Literal["auto", "flashinfer_cutlass"] = "auto"
    """Whose GEMMs multiply quantised weights. `auto` is the kernels that were measured, called by compiled code;
    `flashinfer_cutlass` those that vLLM 0.11 took on data-centre Blackwell, which FlashInfer chooses anew at each call.
    """
    host_sync: Literal["none", "layer"] = "none"
    """Whether the forward pass waits for the GPU, once a `layer`: `.item()`, a copy to the CPU, a branch on a value.
    Such a pass cannot be captured in a CUDA graph.
    """
    kv_allocation: Literal["paged", "contiguous", "none"] = "paged"
    """`contiguous` reserves `max_model_len` tokens for each request, as engines did before PagedAttention; `none` keeps
    no KV, so that every token computes its whole text again (`use_cache=False` of Hugging Face's `generate`)."""
    preemption: Literal["recompute", "swap"] = "recompute"
    swap_space: Bytes | None = None
    """CPU memory of one GPU for those who are swapped out."""
    speculative: SpeculativeSpec | None = None

    @property
    def extensions(self) -> list[str]:
        """What the engine has and vLLM has not, in words."""
        asked = {
            "static batching": self.scheduler == "static",
            "prefill-first scheduling": self.scheduler == "prefill_first",
            "no KV cache": self.kv_allocation == "none",
            "contiguous KV allocation": self.kv_allocation == "contiguous",
            "preemption by swapping": self.preemption == "swap",
        }
        return [name for name, is_on in asked.items() if is_on]

    @model_validator(mode="after")
    def _passes_need_a_compiler(self) -> Self:
        if self.enforce_eager and (self.pass_config.fuse_allreduce_rms or self.pass_config.fuse_attn_quant):
            raise PydanticCustomError("exclusive", "would be ignored under enforce_eager", {"key": "pass_config"})
        return self


def fill_engine(stated: Mapping[str, Any], model: ModelSpec, gpu: GpuSpec, stages: int = 1) -> dict[str, Any]:
    """The engine section of a replica of `stages` pipeline stages, with every null filled that vLLM's API server fills.

    Source: vLLM 0.32, engine/arg_utils.py (defaults by GPU class, then adjusted to the model's length and to chunking).
    """
    settings = {key: value for key, value in stated.items() if value is not None}
    settings = fill_policies(settings) | fill_speculative(settings) | settings
    model_len = whole(settings.setdefault("max_model_len", model.max_position_embeddings))
    tokens, seqs = _BATCH_DEFAULTS[gpu.vllm_class]
    if "max_num_batched_tokens" not in settings:
        if settings.get("enable_chunked_prefill", True) is False:
            tokens = max(tokens, model_len)
        settings["max_num_batched_tokens"] = min(tokens, whole(settings.get("max_num_seqs", seqs)) * model_len)
    settings.setdefault("max_num_seqs", min(seqs, whole(settings["max_num_batched_tokens"])))
    settings.setdefault("max_num_active_seqs", whole(settings["max_num_seqs"]))
    settings.setdefault("async_scheduling", stages == 1)
    if isinstance(settings.get("cuda_graph", {}), Mapping):
        settings["cuda_graph"] = _fill_graph(settings, gpu)
    return settings


def _fill_graph(settings: Mapping[str, Any], gpu: GpuSpec) -> dict[str, Any]:
    graph = {key: value for key, value in settings.get("cuda_graph", {}).items() if value is not None}
    if settings.get("enforce_eager") is True:
        graph.setdefault("mode", "none")
    limit = _LARGEST_GRAPH_BLACKWELL if gpu.is_datacenter_blackwell else _LARGEST_GRAPH
    seqs, tokens = whole(settings["max_num_seqs"]), whole(settings["max_num_batched_tokens"])
    query_len = query_len_of(settings)
    largest = min(limit, 2 * seqs * query_len, tokens)
    decodes = (query_len * count for count in (*capture_sizes(min(seqs, limit)), min(seqs, limit)))
    sizes = {*capture_sizes(largest), *(full for full in (*decodes, tokens) if full <= largest)}
    graph.setdefault("capture_sizes", () if graph.get("mode") == "none" else tuple(sorted(sizes)))
    return graph


def whole(value: object) -> int:
    """The number, or 1 where the field's own validation is going to refuse it."""
    with suppress(ValueError):
        return parse_count(value)
    return 1


def capture_sizes(largest: int) -> tuple[int, ...]:
    """Token counts up to `largest` that vLLM 0.32 captures: 1, 2, 4, multiples of 8 below 256, of 16 from there on.

    By default it captures a full batch too, of `max_num_seqs` or of `max_num_batched_tokens`, if that is not larger;
    where decodes verify drafts, so many tokens each, as many of them as in these sizes.
    """
    return tuple(size for size in (1, 2, 4, *range(8, 256, 8), *range(256, largest + 1, 16)) if size <= largest)
