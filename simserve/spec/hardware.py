"""The accelerator: data-sheet numbers, the share of them that kernels reach, and what the host adds.

One profile per device lies in `hardware_profiles/<name>/profile.yaml`; the cost model reads all its constants from
here. Peaks are per GPU and dense, efficiencies multiply them, `sources` names the origin of each group of numbers.
"""

import hashlib
import json
from typing import Annotated, Any, Self

from pydantic import AfterValidator, Field, model_validator
from pydantic_core import PydanticCustomError

from simserve.spec import resources
from simserve.spec.calibrated import CalibratedSpec
from simserve.spec.dtypes import is_dtype
from simserve.spec.magnitudes import Bandwidth, GpuMemory, HbmBandwidth, KernelTime, Peak
from simserve.spec.quantities import (
    Bytes,
    Dollars,
    PositiveCount,
    PositiveSeconds,
    PositiveShare,
    Seconds,
    format_quantity,
)
from simserve.spec.strict import Strict


def _known_dtype(name: str) -> str:
    if not is_dtype(name):
        raise PydanticCustomError("dtype", "{name} is not a number format", {"name": repr(name)})
    return name


Dtype = Annotated[str, AfterValidator(_known_dtype)]
ShareByCount = Annotated[dict[PositiveCount, PositiveShare], Field(min_length=1)]


PeakByFormat = Annotated[dict[Dtype, Peak], Field(min_length=1)]


class RatesSpec(Strict):
    """What a card reads and computes at most."""

    hbm_bandwidth: HbmBandwidth
    peak_flops: PeakByFormat


class EfficiencySpec(Strict):
    """Shares of the peaks that kernels reach, and the time that the shortest of them takes."""

    hbm_gemm: Annotated[dict[Dtype, PositiveShare], Field(min_length=1)]
    """Weight format -> share of HBM bandwidth that a GEMM of few rows reaches (m <= 16, weights far larger than L2)."""
    gemm_mfu: Annotated[dict[Dtype, ShareByCount], Field(min_length=1)]
    """Compute format -> rows m of the GEMM -> share of peak FLOP/s; between entries interpolate in log m."""
    measured_at: RatesSpec | None = None
    """Rates of the card on which the shares of `gemm_mfu` in these formats were measured; null: of this one. Where a
    GEMM of few rows was bound by reading, its share of the peak says nothing of another card's; see
    `simserve.cost.gemm_share`."""
    gemm_floor: KernelTime
    """Shortest GEMM."""
    hbm_decode_attention: PositiveShare
    """Share of HBM bandwidth with which decode attention reads a large KV cache."""
    decode_attention_floor: KernelTime
    """Shortest decode attention of one layer."""
    decode_attention_per_head: KernelTime = 0.0
    """What each KV head of each sequence adds to decode attention beside the reading of its cache."""
    prefill_attention_mfu: ShareByCount
    """Prompt length -> share of peak bf16 FLOP/s of causal prefill attention."""
    prefill_attention_floor: KernelTime
    hbm_elementwise: PositiveShare
    """Share of HBM bandwidth of norms, rotary embedding and activations."""
    kernel_floor: KernelTime
    """Shortest of any other kernel."""
    sampler_floor: KernelTime = 0.0
    """Shortest sampling of one step, all its small kernels together."""


class ExpertKernelSpec(Strict):
    """A kernel for the experts of a layer, as measured over many sizes: see `simserve.cost.expert_kernels`."""

    floor: KernelTime
    """What it takes beside reading and multiplying: routing, sorting of tokens, activation, sum."""
    bandwidth: HbmBandwidth
    """Weights that it reads."""
    flops: Peak
    """What it multiplies, rows of padding included."""


class AllReduceSpec(Strict):
    """All-reduce of bf16 values over some ranks, inside a CUDA graph."""

    times: Annotated[dict[PositiveCount, PositiveSeconds], Field(min_length=1)]
    """Bytes of the message -> time; between entries a straight line, below the first take the first."""
    bus_bandwidth: Bandwidth
    """Beyond the last entry: bytes * 2 (ranks - 1) / ranks / time."""

    @property
    def floor(self) -> float:
        """Time of the smallest message."""
        return self.times[min(self.times)]


class OneShotSpec(Strict):
    """All-reduce in which every rank writes its message into the memory of all others, which sum on their own: one
    crossing of the links, but as many copies as there are other ranks.
    """

    times: Annotated[dict[PositiveCount, PositiveSeconds], Field(min_length=2)]
    """As in `AllReduceSpec`. Beyond the last entry the rate between the last two goes on."""


class InterconnectSpec(Strict):
    """Links between the GPUs of one node, and between a GPU and its host."""

    kind: str
    bandwidth: Bandwidth
    """GPU to GPU, per GPU and direction."""
    host_bandwidth: Bandwidth
    """GPU to host memory, per direction (PCIe)."""
    all_reduce: dict[PositiveCount, AllReduceSpec] = Field(default_factory=dict)
    """Number of ranks -> what an all-reduce takes there."""
    one_shot: dict[PositiveCount, OneShotSpec] = Field(default_factory=dict)
    """The same for the kernel that engines fuse with the norm behind it."""

    @model_validator(mode="after")
    def _measured_over_these_links(self) -> Self:
        for ranks, reduce in self.all_reduce.items():
            if reduce.bus_bandwidth > _MOST_OF_LINK * self.bandwidth:
                measured, link = (format_quantity(each, "B/s") for each in (reduce.bus_bandwidth, self.bandwidth))
                raise PydanticCustomError(
                    "other_links",
                    "an all-reduce among {ranks} at {measured} was not measured over links of {link}; null leaves it to"
                    " the bandwidth",
                    {"key": "all_reduce", "ranks": ranks, "measured": measured, "link": link},
                )
        return self


_MOST_OF_LINK = 2.0
"""Bus bandwidth over link bandwidth: switches that sum in flight let each value pass a link once in place of twice."""


class LaunchSpec(Strict):
    """CPU time to hand work to the GPU."""

    kernel: KernelTime
    """One kernel outside any graph, launched by compiled code (torch.compile)."""
    graph: KernelTime
    """Replay of one whole CUDA graph."""
    eager: KernelTime | None = None
    """One operator called from Python, with the framework's dispatch: all of them under `enforce_eager`, which compiles
    nothing, and attention wherever it is outside a graph. As `kernel` where it is left out.
    """
    autotuned: KernelTime | None = None
    """One GEMM of FlashInfer, whose call from Python looks for the kernel that its autotuner chose. As `eager` where it
    is left out.
    """


class HostSpec(Strict):
    """CPU time of the engine core (it stretches the step) and of the front end (it delays requests and tokens)."""

    per_step: Seconds
    """Schedule, input preparation and update of one step, whatever its batch."""
    per_sequence: Seconds
    """The same for each running sequence of the step."""
    update: Seconds
    """The part of `per_step` that lies between the end of the GPU's work and the tokens being known."""
    front_end_per_request: Seconds
    """HTTP, tokeniser and hand-over, from the client's send to the engine's queue."""
    front_end_per_token: Seconds
    """The tokeniser's share per prompt token."""
    delivery: Seconds
    """From the engine's output to the client's receipt of a token."""
    front_end_busy: Seconds = 0.0
    """Work of an API server's one thread for each request, during which it does nothing for others: they wait. It comes
    before the times above, which do not queue. 0: requests do not wait for each other.
    """


class GpuSpec(Strict):
    """One accelerator. Bytes, seconds, FLOP/s and B/s throughout."""

    name: str
    provenance: str = ""
    """Where the efficiencies come from, in one line."""
    memory: GpuMemory
    """Total that the driver reports, which is what `gpu_memory_utilization` is a share of."""
    hbm_bandwidth: HbmBandwidth
    peak_flops: PeakByFormat
    """Compute format -> dense FLOP/s of the tensor cores; a format that is missing has no hardware path."""
    num_sms: PositiveCount = 192
    """Streaming multiprocessors (or compute units): how many thread blocks it takes to fill the card."""
    l2_bytes: Bytes
    l2_bandwidth: HbmBandwidth | None = None
    """What norms, rotary embedding and activations reach where L2 holds their data; null: as good as no time."""
    architecture: str = ""
    """`sm_90`, `gfx942`, ...: decides vLLM's defaults on data-centre Blackwell."""
    efficiency: EfficiencySpec
    tables: str | None = None
    """Profile beside which the kernel times that were measured on this card lie. They outweigh `efficiency` where the
    cost level is `kernels`; null in a profile with a `base` lets its own efficiencies hold.
    """
    expert_kernels: dict[str, ExpertKernelSpec] = Field(default_factory=dict)
    """vLLM's name of a backend (`engine.moe_backend`) -> its rates here, where no table holds it."""
    calibrated: CalibratedSpec | None = None
    """Step times of one model that `simserve calibrate` measured on this device."""
    interconnect: InterconnectSpec
    launch: LaunchSpec
    host: HostSpec
    framework_bytes: Bytes
    """Memory outside the allocator on one GPU: CUDA context, workspaces."""
    communicator_bytes: Bytes = 0.0
    """What NCCL and custom all-reduces add to it under tensor parallelism."""
    price_per_hour: Dollars | None = None
    sources: dict[str, str] = Field(default_factory=dict)
    """Key of this profile -> where its numbers come from."""

    @property
    def vllm_class(self) -> str:
        """Class that decides vLLM's default limits: `xlarge` (>= 160 GB), `large` (>= 70 GiB, no A100), `standard`."""
        if self.memory >= 160e9:
            return "xlarge"
        return "large" if self.memory >= 70 * 2**30 and "a100" not in self.name.lower() else "standard"

    @property
    def is_datacenter_blackwell(self) -> bool:
        """Whether vLLM captures CUDA graphs up to 1024 tokens here."""
        return self.architecture.startswith("sm_10")

    @property
    def mxfp4_backend(self) -> str:
        """Kernels that vLLM takes for experts in mxfp4 when nobody says otherwise (0.32, oracle/mxfp4.py)."""
        if self.is_datacenter_blackwell:
            return "flashinfer_trtllm"
        return "triton" if self.architecture == "sm_90" else "marlin"

    @property
    def profile_hash(self) -> str:
        """Twelve hex digits over every number of the profile and its tables: results with the same hash saw the same
        device.
        """
        words = {"sources", "provenance"} | ({"calibrated"} if self.calibrated is None else set())
        numbers: dict[str, Any] = self.model_dump(mode="json", exclude=words)
        if self.efficiency.measured_at is None:
            del numbers["efficiency"]["measured_at"]
        seen = hashlib.sha256(json.dumps(numbers, sort_keys=True).encode())
        folder = None if self.tables is None else resources.find("hardware_profiles", self.tables)
        for path in sorted(folder.glob("*.csv")) if folder else ():
            seen.update(path.read_bytes())
        return seen.hexdigest()[:12]
