"""The engine's settings under vLLM's names, and vLLM 0.32's server defaults for what is left null."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field

from simserve.spec.hardware import GpuSpec
from simserve.spec.model import ModelSpec
from simserve.spec.quantities import Count, PositiveCount, Share
from simserve.spec.strict import Strict

BLOCK_SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256)

_BATCH_DEFAULTS = {"xlarge": (16384, 1024), "large": (8192, 1024), "standard": (2048, 256)}
"""GPU class -> (max_num_batched_tokens, max_num_seqs) of the API server (vLLM 0.32 engine/arg_utils.py, get_batch_defaults)."""


class CudaGraphSpec(Strict):
    """Which batches run as a captured CUDA graph."""

    mode: Literal["none", "piecewise", "full", "full_decode_only", "full_and_piecewise"] = "full_and_piecewise"
    capture_sizes: tuple[PositiveCount, ...]
    """Ascending token counts; a batch is padded up to the next one."""


class EngineSpec(Strict):
    """One replica's engine, every default resolved."""

    NOT_MODELLED = {"speculative": "speculative decoding"}

    scheduler: Literal["vllm_v1", "prefill_first", "static"] = "vllm_v1"
    max_num_seqs: PositiveCount
    max_num_batched_tokens: PositiveCount
    max_num_active_seqs: PositiveCount
    max_model_len: PositiveCount
    block_size: Literal[1, 2, 4, 8, 16, 32, 64, 128, 256] = 16
    gpu_memory_utilization: Annotated[Share, Field(gt=0)] = 0.92
    num_gpu_blocks: Annotated[PositiveCount, Field(ge=2)] | None = None
    """As vLLM logs it, the null block included; the memory ledger's where it is left out."""
    enable_prefix_caching: bool = True
    enable_chunked_prefill: bool = True
    long_prefill_token_threshold: Count = 0
    scheduling_policy: Literal["fcfs", "priority"] = "fcfs"
    watermark: Annotated[Share, Field(lt=1)] = 0.0
    scheduler_reserve_full_isl: bool = True
    async_scheduling: bool = True
    enforce_eager: bool = False
    cuda_graph: CudaGraphSpec
    kv_allocation: Literal["paged"] = "paged"
    preemption: Literal["recompute"] = "recompute"


def engine_defaults(engine: Mapping[str, Any], model: ModelSpec, gpu: GpuSpec) -> dict[str, Any]:
    """The engine section with every null that vLLM fills filled as its API server does.

    Source: vLLM 0.32, engine/arg_utils.py (`_set_default_max_num_seqs_and_batched_tokens_args`) and config/vllm.py (`_set_cudagraph_sizes`).
    """
    settings = {key: value for key, value in engine.items() if value is not None}
    tokens, seqs = _BATCH_DEFAULTS[gpu.vllm_class]
    model_len = settings.setdefault("max_model_len", model.max_position_embeddings)
    given_tokens = settings.get("max_num_batched_tokens")
    if given_tokens is None:
        if settings.get("enable_chunked_prefill", True) is False and isinstance(model_len, int):
            tokens = max(tokens, model_len)
        given_seqs = settings.get("max_num_seqs", seqs)
        if isinstance(given_seqs, int) and isinstance(model_len, int):
            tokens = min(tokens, given_seqs * model_len)
        settings["max_num_batched_tokens"] = tokens
    if "max_num_seqs" not in settings:
        batched = settings["max_num_batched_tokens"]
        settings["max_num_seqs"] = min(seqs, batched) if isinstance(batched, int) else seqs
    settings.setdefault("max_num_active_seqs", settings["max_num_seqs"])
    settings["cuda_graph"] = _graph_defaults(settings, gpu)
    return settings


def _graph_defaults(settings: Mapping[str, Any], gpu: GpuSpec) -> Any:
    stated = settings.get("cuda_graph", {})
    if not isinstance(stated, Mapping):
        return stated
    graph = {key: value for key, value in stated.items() if value is not None}
    if settings.get("enforce_eager") is True:
        graph.setdefault("mode", "none")
    if graph.get("mode") == "none":
        graph.setdefault("capture_sizes", ())
    seqs, tokens = settings["max_num_seqs"], settings["max_num_batched_tokens"]
    if isinstance(seqs, int) and isinstance(tokens, int):
        graph.setdefault(
            "capture_sizes", default_capture_sizes(seqs, tokens, 1024 if gpu.is_datacenter_blackwell else 512)
        )
    return graph


def default_capture_sizes(max_num_seqs: int, max_num_batched_tokens: int, limit: int = 512) -> tuple[int, ...]:
    """Token counts that vLLM 0.32 captures: 1, 2, 4, multiples of 8 below 256, of 16 from there on.

    `limit` is 512, or 1024 on data-centre Blackwell; twice `max_num_seqs` and the batched tokens cap it too.
    """
    largest = min(2 * max_num_seqs, limit, max_num_batched_tokens)
    sizes = (1, 2, 4, *range(8, 256, 8), *range(256, largest + 1, 16))
    return tuple(size for size in sizes if size <= largest)
