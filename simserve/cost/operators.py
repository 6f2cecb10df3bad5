"""The operators of a forward pass: what each moves and computes for a number of tokens, and how long that takes.

An operator knows its own sizes on one GPU (after tensor parallelism) and answers for many row counts at once, since a
run meets hundreds of them. A GEMM takes the longest of its bytes through HBM, its FLOPs at the share of the peak that
its rows reach, and the kernel's floor (roofline: Williams et al., CACM 2009).
"""

from collections.abc import Mapping
from functools import cache
from statistics import NormalDist
from typing import NamedTuple, Protocol

import numpy as np

from simserve.cost.collectives import CollectiveTime
from simserve.cost.curve import FloatArray, IntArray
from simserve.cost.device import Device
from simserve.cost.gemm_table import ExpertsShape, RowCurve
from simserve.cost.linear_backend import LinearBackend
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
    backend: LinearBackend | None = None
    """Library whose kernel it is, where that is not the one that was measured."""

    def work(self, rows: FloatArray, device: Device) -> Work:
        """The GEMM over each number of rows; activations count as far as they do not fit into L2."""
        moved = self.weight_bytes + device.spilled(rows * (self.inputs + self.outputs) * self.activation_bytes)
        flops = 2.0 * rows * self.inputs * self.outputs
        curve = self.measured(device)
        tiles = whole_tiles(rows)
        times = _gemm_times(device, self.dtype, self.compute, (moved, flops * tiles / rows), None if curve else tiles)
        slower = 1.0 if self.backend is None else self.backend.slower(self.compute, rows)
        return Work(moved, flops, times, None if curve is None else curve(tiles) * slower)

    def measured(self, device: Device) -> RowCurve | None:
        """Measured times; None without, or where the weights are not of the size that their format has."""
        size = self.inputs * self.outputs * (bytes_per_element(self.dtype) + scale_bytes_per_element(self.dtype))
        if device.tables is None or abs(self.weight_bytes - size) > 0.01 * size:
            return None
        return device.tables.gemm(self.dtype, self.compute, self.inputs, self.outputs)


_TILE = 128
"""Rows that a thread block of a GEMM works on. Measured with Llama-3.1-8B at every 16th number of rows on RTX PRO 6000
(vLLM 0.19, LLMServingSim, MIT): 272 to 384 rows take one time, 400 to 512 the next; below 128 rows tiles are powers of
two."""
_SMALLEST_TILE = 16


def whole_tiles(rows: FloatArray) -> FloatArray:
    """Rows that a GEMM takes the time of: its last tile costs as much when it is not full."""
    small = np.exp2(np.ceil(np.log2(np.maximum(rows, _SMALLEST_TILE))))
    whole: FloatArray = np.where(rows < _TILE, small, np.ceil(rows / _TILE) * _TILE)
    return whole


def _gemm_times(
    device: Device, dtype: str, compute: str, work: tuple[FloatArray, FloatArray], rows: FloatArray | None
) -> dict[str, FloatArray | float]:
    """Times of a GEMM of some (bytes, FLOPs) by what may bind it, at the mfu of its rows. Without rows at the peak:
    where the time is measured, these only say whether bytes or FLOPs bind it.
    """
    moved, flops = work
    mfu = 1.0 if rows is None else device.share_of_peak(dtype, compute, rows)
    return {
        "memory": moved / device.gemm_bandwidth[dtype],
        "compute": flops / (device.peak_flops[compute] * mfu),
        "floor": device.gemm_floor,
    }


class Routing(NamedTuple):
    """How the tokens of a layer reach its experts: each goes to `per_token` of `experts`, which lie on `spread` GPUs.

    The step waits for the GPU with the most to do. `imbalance` is its load over the mean, beside what chance adds: the
    choices of one token that fall on one GPU are hypergeometric, so that their sum over a batch has a variance, and of
    R such sums the greatest lies about the normal quantile of (R - 3/8) / (R + 1/4) above the mean (Blom, Statistical
    Estimates and Transformed Beta-Variables, 1958); never more than what all tokens can ask of one GPU.
    """

    experts: int
    per_token: int
    spread: int = 1
    imbalance: float = 1.0
    skew: float = 0.0
    """The popularity of the r-th expert falls as r ** -skew."""

    def busiest(self, rows: FloatArray) -> FloatArray:
        """Tokens of a batch whose even share is what the busiest GPU gets of a batch of `rows`."""
        if self.spread == 1:
            return rows
        experts, chosen, share = self.experts, self.per_token, 1.0 / self.spread
        variance = chosen * share * (1.0 - share) * (experts - chosen) / (experts - 1)
        quantile = NormalDist().inv_cdf((self.spread - 0.375) / (self.spread + 0.25))
        chance = 1.0 + quantile * np.sqrt(variance / rows) / (chosen * share)
        most = min(chosen, experts * share) / (chosen * share)
        busiest: FloatArray = rows * np.minimum(self.imbalance * chance, most)
        return busiest

    def touched(self, rows: FloatArray) -> FloatArray:
        """Expected number of experts that so many tokens choose, each on its own, on one GPU.

        One token leaves out an expert with probability 1 - k / E, T independent tokens with (1 - k / E)^T, so that
        E (1 - (1 - k / E)^T) experts are read: never more than min(E, T k). With skew each expert has a probability of
        its own, and fewer are read.
        """
        if self.skew:
            each = _chosen(self.experts, self.per_token, self.skew)
            found: FloatArray = np.sum(1.0 - (1.0 - each) ** rows[:, None], axis=1) / self.spread
            return found
        left_out: FloatArray = (1.0 - self.per_token / self.experts) ** rows
        return self.experts / self.spread * (1.0 - left_out)

    def routed(self, rows: FloatArray) -> FloatArray:
        """Rows that the experts of one GPU compute together."""
        each: FloatArray = rows * self.per_token / self.spread
        return each

    def rows_of_expert(self, rows: FloatArray) -> FloatArray:
        """Rows that one expert gets, on average."""
        each: FloatArray = rows * self.per_token / self.experts
        return each


@cache
def _chosen(experts: int, per_token: int, skew: float) -> FloatArray:
    """Probability that one token chooses the r-th expert: 1 - exp(-c r ** -skew), with c such that it chooses
    `per_token` of them. (Choosing without replacement, each at a rate of its popularity, up to the time c.)
    """
    popularity = np.arange(1.0, experts + 1.0) ** -skew
    low, high = 0.0, 1.0
    while np.sum(-np.expm1(-high * popularity)) < per_token:
        high *= 2.0
        if high > _MANY:
            return np.full(experts, per_token / experts)
    for _ in range(_HALVINGS):
        middle = (low + high) / 2.0
        is_less = np.sum(-np.expm1(-middle * popularity)) < per_token
        low, high = (middle, high) if is_less else (low, middle)
    chosen: FloatArray = -np.expm1(-high * popularity)
    return chosen * (per_token / np.sum(chosen))


_MANY = 1e6
_HALVINGS = 60


class ExpertLinear(NamedTuple):
    """The same GEMM in each of the experts on one GPU. `weight_bytes`: one expert. Only those that some token chose are
    read.
    """

    name: str
    routing: Routing
    inputs: float
    outputs: float
    weight_bytes: float
    activation_bytes: float
    dtype: str
    compute: str
    group: str = "experts"

    def work(self, rows: FloatArray, device: Device) -> Work:
        """The grouped GEMM over each number of tokens: the mfu is that of the rows one expert gets."""
        rows = self.routing.busiest(rows)
        routed = self.routing.routed(rows)
        moved = self.routing.touched(rows) * self.weight_bytes
        moved += device.spilled(routed * (self.inputs + self.outputs) * self.activation_bytes)
        flops = 2.0 * routed * self.inputs * self.outputs
        times = _gemm_times(device, self.dtype, self.compute, (moved, flops), self.routing.rows_of_expert(rows))
        return Work(moved, flops, times)


class FusedExperts(NamedTuple):
    """All experts of a layer on one GPU as one operator, as they were measured. `weight_bytes`: one expert there."""

    name: str
    shape: ExpertsShape
    routing: Routing
    weight_bytes: float
    activation_bytes: float
    dtype: str
    compute: str
    group: str = "experts"

    def work(self, rows: FloatArray, device: Device) -> Work:
        """The experts over each number of tokens."""
        shape, routing = self.shape, self.routing
        rows = routing.busiest(rows)
        routed = routing.routed(rows)
        width = shape.hidden + shape.inter / shape.ranks
        moved = routing.touched(rows) * self.weight_bytes
        moved += device.spilled(2 * routed * width * self.activation_bytes)
        flops = 6.0 * routed * shape.hidden * shape.inter / shape.ranks
        curve = self.measured(device)
        each = None if curve else routing.rows_of_expert(rows)
        times = _gemm_times(device, self.dtype, self.compute, (moved, flops), each)
        return Work(moved, flops, times, None if curve is None else self._skewed(curve, rows, times))

    def _skewed(self, curve: RowCurve, rows: FloatArray, times: Mapping[str, FloatArray | float]) -> FloatArray:
        """Measured times, which are those of an even choice: with skew, what is above the time of one token shrinks as
        the bytes do, as far as these bind it.
        """
        measured = curve(rows)
        if not self.routing.skew:
            return measured
        shrunk = self.routing.touched(rows) / self.routing._replace(skew=0.0).touched(rows)
        memory, compute = times["memory"], times["compute"]
        least = curve(np.ones(1))
        slower: FloatArray = np.minimum(least, measured)
        return slower + (measured - slower) * np.maximum(memory, compute) / np.maximum(memory / shrunk, compute)

    def measured(self, device: Device) -> RowCurve | None:
        """Measured times; None without."""
        return None if device.tables is None else device.tables.experts(self.dtype, self.compute, self.shape)


class Gathered(NamedTuple):
    """An operator over the tokens of so many `peers`, each with as many as the one that is asked about."""

    operator: TokenOperator
    peers: int

    @property
    def name(self) -> str:
        """As the operator's."""
        return self.operator.name

    @property
    def group(self) -> str:
        """As the operator's."""
        return self.operator.group

    def work(self, rows: FloatArray, device: Device) -> Work:
        """The operator over all of them."""
        return self.operator.work(rows * self.peers, device)


class Elementwise(NamedTuple):
    """Norm, rope, activation, gather or sampler: moves `bytes_per_row`, computes next to nothing."""

    name: str
    bytes_per_row: float
    group: str = "elementwise"

    def work(self, rows: FloatArray, device: Device) -> Work:
        """The operator over each number of rows."""
        if self.group == "sampler":
            moved = device.spilled(rows * self.bytes_per_row)
            memory, floor = moved / device.elementwise_bandwidth, max(device.kernel_floor, device.sampler_floor)
        else:
            moved = device.beyond_l2(rows * self.bytes_per_row)
            memory, floor = device.elementwise(rows * self.bytes_per_row), device.kernel_floor
        return Work(moved, np.zeros_like(moved), {"memory": memory, "floor": floor})


class Collective(NamedTuple):
    """All-reduce, all-gather or reduce-scatter of `bytes_per_row` a row among the GPUs of the replica."""

    name: str
    bytes_per_row: float
    time: CollectiveTime
    group: str = "communication"

    def work(self, rows: FloatArray, device: Device) -> Work:  # noqa: ARG002
        """The collective over each number of rows."""
        message = rows * self.bytes_per_row
        return Work(message, np.zeros_like(message), {"network": self.time(message)})


_NORM_INSIDE = 1.7e-6
"""Seconds that residual, norm and quantisation add to an all-reduce of one shot which does them before it writes.
FlashInfer's takes 9.8 us for 128 tokens of Llama-3-70B between two B200 (its pull request 1507), TensorRT-LLM's, from
which it was ported, 8.1 us without a norm (aisimulate 0.13)."""


class FusedAllReduce(NamedTuple):
    """All-reduce, norm and quantisation as one kernel, for messages up to `largest` bytes; beyond, the operators that
    it stands for, one after the other.
    """

    name: str
    bytes_per_row: float
    one_shot: CollectiveTime
    largest: float
    apart: tuple[TokenOperator, ...]
    group: str = "communication"

    def work(self, rows: FloatArray, device: Device) -> Work:
        """The kernel, or the operators, over each number of rows."""
        message = rows * self.bytes_per_row
        works = [operator.work(rows, device) for operator in self.apart]
        inside = np.maximum(_NORM_INSIDE, sum(work.times.get("memory", 0.0) for work in works))
        alone = sum(work.ticks() for work in works) / TICKS_PER_SECOND
        seconds = np.where(message <= self.largest, self.one_shot(message) + inside, alone)
        return Work(message, np.zeros_like(message), {"network": seconds})


class AllToAll(NamedTuple):
    """Tokens on their way to the GPUs of their experts, or results on their way back: `bytes_per_row` for each token
    and GPU that it is sent to. Each GPU has its share of the tokens; the busiest one sets the time.
    """

    name: str
    bytes_per_row: float
    routing: Routing
    time: CollectiveTime
    group: str = "communication"

    def work(self, rows: FloatArray, device: Device) -> Work:  # noqa: ARG002
        """The exchange over each number of tokens.

        A token's k experts lie on R (1 - (1 - 1 / R)^k) of R GPUs, of which one in R is its own.
        """
        ranks = self.routing.spread
        remote = (ranks - 1) * (1.0 - (1.0 - 1.0 / ranks) ** self.routing.per_token)
        sent = self.routing.busiest(rows) / ranks * remote * self.bytes_per_row
        whole = sent * ranks / (ranks - 1)
        return Work(sent, np.zeros_like(sent), {"network": self.time(whole)})
