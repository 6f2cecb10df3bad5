"""How a scenario is computed: where step times come from, at which resolution, and which part of the run counts."""

from typing import Annotated, Literal

from pydantic import Field

from simserve.spec.hardware import HostSpec
from simserve.spec.quantities import Number, PositiveSeconds, Seconds
from simserve.spec.strict import Strict

AllReduceKernel = Literal["flashinfer", "symm_mem", "custom"]
"""What vLLM sums the results of the GPUs of a node with, by its own names. FlashInfer's kernels are the default from
0.31 on (VLLM_ALLREDUCE_USE_FLASHINFER). Before, its custom kernel did: `symm_mem` leaves large messages to PyTorch's
symmetric memory, as from 0.11 on (VLLM_ALLREDUCE_USE_SYMM_MEM); `custom` sums them in two shots, as earlier versions
do.
"""


class CostSpec(Strict):
    """Where the time of a step comes from."""

    level: Literal["auto", "datasheet", "kernels", "calibrated"] = "auto"
    constant_step: PositiveSeconds | None = None
    """Every step takes this long, whatever its batch: for theory."""
    sampling: Literal["greedy", "top_p"] = "greedy"
    """How requests choose a token: `greedy` (temperature 0), or `top_p`, which sorts the logits of every sequence in
    every step; top-k does too. Many models ask for it in their generation_config, which vLLM follows."""
    penalties: bool = False
    """Requests ask for a repetition, presence or frequency penalty, for which vLLM counts the tokens of every sequence
    anew in every step. The generation_config of Qwen2.5-7B-Instruct does."""
    routing_skew: Annotated[Number, Field(ge=0, le=2)] = 0.0
    """How unevenly tokens choose the experts of a mixture: the popularity of the r-th falls as r to the power of minus
    this. 0 is an even choice, which touches more experts in a small batch than real routers do."""
    all_reduce: AllReduceKernel = "flashinfer"
    """Kernel of all-reduces, where those of several were measured (H100, H200)."""
    fp8_decode: Literal["tuned", "untuned"] = "tuned"
    """Tiles of decode attention over an FP8 KV cache on Hopper. `untuned`: FlashAttention 3 as it came with vLLM up to
    0.11.0, where decoding over FP8 was no faster than over BF16 (vllm-project/flash-attention, pull request 96)."""
    host: HostSpec
    """CPU time of engine and front end: the profile's, except what the scenario states here."""


class RunSpec(Strict):
    """The run itself."""

    resolution: Literal["runs", "steps", "kernels"] = "runs"
    warmup: Seconds = 0.0
    """Requests that arrive earlier do not count in the statistics."""
    max_time: PositiveSeconds | None = None
    """Simulated time after which the run stops; requests still running then are unfinished."""
