"""Attention of one layer: over the prompt chunks of a step, and over its decodes.

Both are integers of ticks. Decode attention is a floor and then a straight line in the tokens of context that it
reads, which is what lets the engine add up a run of steps in closed form.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from simserve.cost.device import Device
from simserve.cost.operators import Kernel
from simserve.spec.ticks import TICKS_PER_SECOND, to_ticks

UNBOUNDED = 2**62
"""More tokens of context than any batch has."""

_TILE = 128
"""Queries that a kernel works on together: a shorter chunk takes the time of so many against its history."""

_FILLING_QUERIES = 96 * _TILE
"""Queries, over all heads, that fill a GPU. Fewer leave it idle while the longest history is worked off: with 32 heads,
chunks of 16 to 256 tokens take the same time (RTX PRO 6000 and RTX 4090, measured by LLMServingSim, MIT)."""


_MOST_REMEMBERED = 2**16
"""Chunks whose work is kept, since many are alike."""


@dataclass(frozen=True, slots=True)
class Attention:
    """Work of one attention layer on one GPU.

    `heads`: query heads; `kv_bytes`: KV cache of one token; `pair_flops`: FLOPs of one (query, key) pair in prefill;
    `decode_flops`: FLOPs of one key in decode (differs from `pair_flops` where MLA works on latents); `history_flops`:
    FLOPs for each earlier token of a chunk (MLA expands its latents again); `window`: tokens it looks back on, None for
    all.
    """

    heads: float
    kv_bytes: float
    pair_flops: float
    decode_flops: float
    history_flops: float
    window: int | None
    dtype: str

    def pairs(self, new: int, history: int) -> int:
        """(query, key) pairs of a causal chunk of `new` tokens after `history`; at most the window for each query."""
        window = self.window
        if window is None or history + new <= window:
            return new * history + new * (new + 1) // 2
        inside = max(0, window - history)
        return inside * history + inside * (inside + 1) // 2 + (new - inside) * window


class AttentionTime:
    """Ticks of one attention layer on a device.

    Decode: the longest of `floor`, KV bytes at the share of HBM bandwidth that decode attention reaches, and FLOPs.
    Prefill: causal FLOPs at the mfu of the length that the chunk sees, its own tokens included; at least the
    floor, the reading of its KV, and what the longest history takes alone.
    """

    __slots__ = (
        "_filling",
        "_history",
        "_per_pair",
        "_prefill_floor",
        "_read",
        "_window",
        "_works",
        "attention",
        "floor",
        "memory_bound",
        "slope",
    )

    def __init__(self, attention: Attention, device: Device) -> None:
        peak = device.peak_flops[attention.dtype] / TICKS_PER_SECOND
        mfu = device.attention_mfu
        self.attention = attention
        self._window = attention.window
        self.floor = to_ticks(device.decode_floor)
        self._prefill_floor = to_ticks(device.prefill_floor)
        self._read = to_ticks(attention.kv_bytes / device.attention_bandwidth)
        compute = round(attention.decode_flops / (peak * mfu.values[-1]))
        self.slope = max(self._read, compute)
        self.memory_bound = self._read >= compute
        lengths = np.arange(1.0, int(mfu.sizes[-1]) + 2)
        self._per_pair: list[float] = [0.0, *(attention.pair_flops / (peak * mfu(lengths))).tolist()]
        self._filling = _FILLING_QUERIES / attention.heads
        self._history = attention.history_flops / (peak * mfu.values[-1])
        self._works: dict[tuple[int, int], tuple[int, int, int, int]] = {}

    @property
    def least(self) -> int:
        """Fewest ticks that attention takes in any step."""
        return min(self.floor, self._prefill_floor)

    def tokens_read(self, num_decodes: int, context: int) -> int:
        """Tokens of KV that decodes read: in a window layer at most the window for each sequence.

        Exact where all sequences lie on one side of the window, an upper bound otherwise.
        """
        window = self.attention.window
        return context if window is None else min(context, num_decodes * window)

    def decode(self, num_decodes: int, context: int) -> int:
        """Ticks of decode attention over a batch that reads `context` tokens; 0 without decodes."""
        if not num_decodes:
            return 0
        return max(self.floor, self.slope * self.tokens_read(num_decodes, context))

    def mixed(self, chunks: Sequence[tuple[int, int]], num_decodes: int, context: int) -> int:
        """`prefill` of chunks and `decode` of the batch beside them, in one call."""
        ticks = self.prefill(chunks)
        if num_decodes:
            window = self._window
            if window is not None and context > num_decodes * window:
                context = num_decodes * window
            reading, floor = self.slope * context, self.floor
            ticks += reading if reading > floor else floor
        return ticks

    def decode_pieces(self, num_decodes: int) -> list[tuple[int, int, int]]:
        """`decode` as (until, base, slope) pieces: base + slope * context up to and including `until`."""
        window = self.attention.window
        top = UNBOUNDED if window is None else num_decodes * window
        level = max(self.floor, self.slope * top)
        if not self.slope or self.slope * top <= self.floor:
            return [(UNBOUNDED, self.floor, 0)]
        pieces = [(self.floor // self.slope, self.floor, 0), (top, 0, self.slope)]
        return pieces if window is None else [*pieces, (UNBOUNDED, level, 0)]

    def prefill(self, chunks: Sequence[tuple[int, int]]) -> int:
        """Ticks of attention over prompt chunks (new tokens, history), one kernel for all; 0 without chunks."""
        works = self._works
        if len(chunks) == 1:
            return (works.get(chunks[0]) or self._work(chunks[0]))[0]
        ticks = floor = read = 0
        for chunk in chunks:
            _, compute, alone, seen = works.get(chunk) or self._work(chunk)
            ticks += compute
            read += seen
            if alone > floor:  # noqa: PLR1730 (max() takes three times as long)
                floor = alone
        return max(ticks, floor, read * self._read)

    def _work(self, chunk: tuple[int, int]) -> tuple[int, int, int, int]:
        """Ticks of a chunk by itself; those of its FLOPs, those it takes at least, and tokens of KV that it reads."""
        new, history = chunk
        window, per_pair, last = self._window, self._per_pair, len(self._per_pair) - 1
        seen = history if window is None else min(history, window)
        idle = max(0, _TILE - new)
        pairs = self.attention.pairs(new, history) + idle * seen
        compute = int(pairs * per_pair[min(new + idle + seen, last)] + history * self._history)
        alone = max(self._prefill_floor, int(seen * per_pair[min(_TILE + seen, last)] * self._filling))
        if len(self._works) == _MOST_REMEMBERED:
            self._works.clear()
        read = new + seen
        work = self._works[chunk] = max(compute, alone, read * self._read), compute, alone, read
        return work

    def decode_kernel(self, num_decodes: int, context: int) -> Kernel:
        """Decode attention as a kernel."""
        read = self.tokens_read(num_decodes, context)
        ticks = self.decode(num_decodes, context)
        bound = "floor" if self.slope * read < self.floor else "memory" if self.memory_bound else "compute"
        work = read * self.attention.kv_bytes, read * self.attention.decode_flops
        return Kernel(self._name("attention_decode"), "attention_decode", *work, ticks, bound)

    def prefill_kernel(self, chunks: Sequence[tuple[int, int]]) -> Kernel:
        """Prefill attention as a kernel."""
        attention = self.attention
        window = UNBOUNDED if attention.window is None else attention.window
        read = sum(new + min(history, window) for new, history in chunks)
        flops = sum(attention.pairs(*chunk) * attention.pair_flops for chunk in chunks)
        flops += sum(history for _, history in chunks) * attention.history_flops
        ticks = self.prefill(chunks)
        memory = self._read * read
        bound = "floor" if ticks == self._prefill_floor else "memory" if ticks == memory else "compute"
        return Kernel(
            self._name("attention_prefill"), "attention_prefill", read * attention.kv_bytes, flops, ticks, bound
        )

    def _name(self, name: str) -> str:
        return name if self.attention.window is None else f"{name}_window"
