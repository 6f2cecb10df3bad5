"""The operators of a forward pass: what each moves and computes for a number of tokens, and how long that takes.

An operator knows its own sizes on one GPU (after tensor parallelism) and answers for many row counts at once, since a
run meets hundreds of them. A GEMM takes the longest of its bytes through HBM, its FLOPs at the share of the peak that
its rows reach, and the kernel's floor (roofline: Williams et al., CACM 2009).
"""

from collections.abc import Mapping
from typing import NamedTuple, Protocol

import numpy as np

from simserve.cost.collectives import CollectiveTime
from simserve.cost.curve import FloatArray, IntArray
from simserve.cost.device import Device
from simserve.cost.gemm_table import ExpertsShape, RowCurve
from simserve.spec.dtypes import bytes_per_element, scale_bytes_per_element
from simserve.spec.ticks import TICKS_PER_SECOND


class Kernel(NamedTuple):
    """One launch of an operator. `group` names its line in the breakdown of step time, `bound` what binds it."""

    name: str
    group: str
    bytes: float
    flops: float
    ticks: int
    bound: str


class Work(NamedTuple):
    """What an operator does for each of some row counts. `times`: seconds by what binds it; it takes the longest, or
    what was `measured`.
    """

    bytes: FloatArray
    flops: FloatArray
    times: Mapping[str, FloatArray | float]
    measured: FloatArray | None = None

    def ticks(self) -> IntArray:
        """Ticks that the operator takes."""
        longest: FloatArray | float = 0.0
        if self.measured is not None:
            return np.rint(self.measured * TICKS_PER_SECOND).astype(np.int64)
        for seconds in self.times.values():
            longest = np.maximum(longest, seconds)
        return np.rint(longest * TICKS_PER_SECOND).astype(np.int64)


class TokenOperator(Protocol):
    """An operator whose work depends on the number of rows alone (tokens of the step, or sampled rows)."""

    @property
    def name(self) -> str:
        """Name of its kernel."""
        ...

    @property
    def group(self) -> str:
        """Its line in the breakdown of step time."""
        ...

    def work(self, rows: FloatArray, device: Device) -> Work:
        """The operator over each number of rows."""
        ...


def kernel_over(operator: TokenOperator, rows: int, device: Device) -> Kernel:
    """Kernel of an operator over `rows` rows."""
    work = operator.work(np.array([float(rows)]), device)
    bound = max(work.times, key=lambda name: float(np.max(work.times[name])))
    moved, flops, ticks = work.bytes.item(), work.flops.item(), work.ticks().item()
    return Kernel(operator.name, operator.group, moved, flops, ticks, bound)


class Linear(NamedTuple):
    """A GEMM of `rows` x `inputs` by `inputs` x `outputs`: weights stored in `dtype`, multiplied in `compute`."""

    name: str
    inputs: float
    outputs: float
    weight_bytes: float
    activation_bytes: float
    dtype: str
    compute: str
    group: str = "linear"

    def work(self, rows: FloatArray, device: Device) -> Work:
        """The GEMM over each number of rows; activations count as far as they do not fit into L2."""
        moved = self.weight_bytes + device.spilled(rows * (self.inputs + self.outputs) * self.activation_bytes)
        flops = 2.0 * rows * self.inputs * self.outputs
        curve = self.measured(device)
        times = _gemm_times(device, self.dtype, self.compute, (moved, flops), None if curve else rows)
        return Work(moved, flops, times, None if curve is None else curve(rows))

    def measured(self, device: Device) -> RowCurve | None:
        """Measured times; None without, or where the weights are not of the size that their format has."""
        size = self.inputs * self.outputs * (bytes_per_element(self.dtype) + scale_bytes_per_element(self.dtype))
        if device.tables is None or abs(self.weight_bytes - size) > 0.01 * size:
            return None
        return device.tables.gemm(self.dtype, self.compute, self.inputs, self.outputs)


def _gemm_times(
    device: Device, dtype: str, compute: str, work: tuple[FloatArray, FloatArray], rows: FloatArray | None
) -> dict[str, FloatArray | float]:
    """Times of a GEMM of some (bytes, FLOPs) by what may bind it, at the mfu of its rows. Without rows at the peak:
    where the time is measured, these only say whether bytes or FLOPs bind it.
    """
    moved, flops = work
    mfu = 1.0 if rows is None else device.gemm_mfu[compute](rows)
    return {
        "memory": moved / device.gemm_bandwidth[dtype],
        "compute": flops / (device.peak_flops[compute] * mfu),
        "floor": device.gemm_floor,
    }


class ExpertLinear(NamedTuple):
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

    def touched(self, rows: FloatArray) -> FloatArray:
        """Expected number of experts that so many tokens choose."""
        return touched_experts(rows, self.experts, self.per_token)

    def work(self, rows: FloatArray, device: Device) -> Work:
        """The grouped GEMM over each number of tokens: the mfu is that of the rows one expert gets."""
        routed = rows * self.per_token
        moved = self.touched(rows) * self.weight_bytes
        moved += device.spilled(routed * (self.inputs + self.outputs) * self.activation_bytes)
        flops = 2.0 * routed * self.inputs * self.outputs
        return Work(moved, flops, _gemm_times(device, self.dtype, self.compute, (moved, flops), routed / self.experts))


class FusedExperts(NamedTuple):
    """All experts of a layer as one operator, as they were measured. `weight_bytes`: one expert on one rank."""

    name: str
    shape: ExpertsShape
    weight_bytes: float
    activation_bytes: float
    dtype: str
    compute: str
    group: str = "experts"

    def work(self, rows: FloatArray, device: Device) -> Work:
        """The experts over each number of tokens."""
        shape = self.shape
        routed = rows * shape.per_token
        moved = touched_experts(rows, shape.experts, shape.per_token) * self.weight_bytes
        width = shape.hidden + shape.inter / shape.ranks
        moved += device.spilled(2 * routed * width * self.activation_bytes)
        flops = 6.0 * routed * shape.hidden * shape.inter / shape.ranks
        curve = self.measured(device)
        times = _gemm_times(device, self.dtype, self.compute, (moved, flops), None if curve else routed / shape.experts)
        return Work(moved, flops, times, None if curve is None else curve(rows))

    def measured(self, device: Device) -> RowCurve | None:
        """Measured times; None without."""
        return None if device.tables is None else device.tables.experts(self.dtype, self.compute, self.shape)


def touched_experts(rows: FloatArray, experts: int, per_token: int) -> FloatArray:
    """Expected number of experts that so many tokens choose, each on its own."""
    left_out: FloatArray = (1.0 - per_token / experts) ** rows
    return experts * (1.0 - left_out)


class Elementwise(NamedTuple):
    """Norm, rope, activation, gather or sampler: moves `bytes_per_row`, computes next to nothing."""

    name: str
    bytes_per_row: float
    group: str = "elementwise"

    def work(self, rows: FloatArray, device: Device) -> Work:
        """The operator over each number of rows."""
        moved = device.spilled(rows * self.bytes_per_row)
        memory = moved / device.elementwise_bandwidth
        floor = max(device.kernel_floor, device.sampler_floor) if self.group == "sampler" else device.kernel_floor
        return Work(moved, np.zeros_like(moved), {"memory": memory, "floor": floor})


class Collective(NamedTuple):
    """All-reduce or all-gather of `bytes_per_row` a row among the GPUs of the replica."""

    name: str
    bytes_per_row: float
    time: CollectiveTime
    group: str = "communication"

    def work(self, rows: FloatArray, device: Device) -> Work:  # noqa: ARG002
        """The collective over each number of rows."""
        message = rows * self.bytes_per_row
        return Work(message, np.zeros_like(message), {"network": self.time(message)})
