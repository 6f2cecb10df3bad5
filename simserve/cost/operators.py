"""The operators of a forward pass: what each moves and computes for a number of tokens, and how long that takes.

An operator knows its own sizes on one GPU (after tensor parallelism) and answers with a `Kernel`. A GEMM takes the
longest of its bytes through HBM, its FLOPs at the share of the peak that its rows reach, and the kernel's floor
(roofline: Williams et al., CACM 2009).
"""

from dataclasses import dataclass
from typing import NamedTuple, Protocol

from simserve.cost.collectives import CollectiveTime
from simserve.cost.device import Device
from simserve.spec.ticks import to_ticks


class Kernel(NamedTuple):
    """One launch of an operator. `group` names its line in the breakdown of step time, `bound` what binds it."""

    name: str
    group: str
    bytes: float
    flops: float
    ticks: int
    bound: str


class TokenOperator(Protocol):
    """An operator whose work depends on the number of rows alone (tokens of the step, or sampled rows)."""

    def kernel(self, rows: int, device: Device) -> Kernel:
        """The operator over `rows` rows."""
        ...


def bound_kernel(name: str, group: str, work: tuple[float, float], times: tuple[float, float, float]) -> Kernel:
    """Kernel of `work` = (bytes, FLOPs) that takes the longest of `times` = (memory, compute, floor) in seconds."""
    longest = max(times)
    bound = ("memory", "compute", "floor")[times.index(longest)]
    return Kernel(name, group, *work, to_ticks(longest), bound)


@dataclass(frozen=True, slots=True)
class Linear:
    """A GEMM of `rows` x `inputs` by `inputs` x `outputs`: weights stored in `dtype`, multiplied in `compute`."""

    name: str
    inputs: float
    outputs: float
    weight_bytes: float
    activation_bytes: float
    dtype: str
    compute: str
    group: str = "linear"

    def kernel(self, rows: int, device: Device) -> Kernel:
        """The GEMM over `rows` rows; activations count as far as they do not fit into L2."""
        moved = self.weight_bytes + device.spilled(rows * (self.inputs + self.outputs) * self.activation_bytes)
        flops = 2.0 * rows * self.inputs * self.outputs
        times = (
            moved / device.gemm_bandwidth[self.dtype],
            flops / (device.peak_flops[self.compute] * device.gemm_mfu[self.compute](rows)),
            device.gemm_floor,
        )
        return bound_kernel(self.name, self.group, (moved, flops), times)


@dataclass(frozen=True, slots=True)
class ExpertLinear:
    """The same GEMM in each of `experts` experts, every token going to `per_token` of them. `weight_bytes`: one expert.

    Only experts that some token chose are read. With uniform routing an expert is left out by one token with
    probability 1 - k / E, by T independent tokens with (1 - k / E)^T, so that E (1 - (1 - k / E)^T) experts are read:
    never more than min(E, T k).
    """

    name: str
    experts: int
    per_token: int
    inputs: float
    outputs: float
    weight_bytes: float
    activation_bytes: float
    dtype: str
    compute: str
    group: str = "experts"

    def touched(self, rows: int) -> float:
        """Expected number of experts that `rows` tokens choose."""
        return self.experts * (1.0 - (1.0 - self.per_token / self.experts) ** rows)

    def kernel(self, rows: int, device: Device) -> Kernel:
        """The grouped GEMM over `rows` tokens: the mfu is that of the rows one expert gets."""
        routed = rows * self.per_token
        moved = self.touched(rows) * self.weight_bytes
        moved += device.spilled(routed * (self.inputs + self.outputs) * self.activation_bytes)
        flops = 2.0 * routed * self.inputs * self.outputs
        mfu = device.gemm_mfu[self.compute](routed / self.experts)
        times = (
            moved / device.gemm_bandwidth[self.dtype],
            flops / (device.peak_flops[self.compute] * mfu),
            device.gemm_floor,
        )
        return bound_kernel(self.name, self.group, (moved, flops), times)


@dataclass(frozen=True, slots=True)
class Elementwise:
    """Norm, rope, activation, gather or sampler: moves `bytes_per_row`, computes next to nothing."""

    name: str
    bytes_per_row: float
    group: str = "elementwise"

    def kernel(self, rows: int, device: Device) -> Kernel:
        """The operator over `rows` rows."""
        moved = device.spilled(rows * self.bytes_per_row)
        times = (moved / device.elementwise_bandwidth, 0.0, device.kernel_floor)
        return bound_kernel(self.name, self.group, (moved, 0.0), times)


@dataclass(frozen=True, slots=True)
class Collective:
    """All-reduce or all-gather of `bytes_per_row` a row among the GPUs of the replica."""

    name: str
    bytes_per_row: float
    time: CollectiveTime
    group: str = "communication"

    def kernel(self, rows: int, device: Device) -> Kernel:  # noqa: ARG002
        """The collective over `rows` rows."""
        message = rows * self.bytes_per_row
        return Kernel(self.name, self.group, message, 0.0, to_ticks(self.time(message)), "network")
