"""Attention of one layer that reads its KV cache: over the prompt chunks of a step, and over its decodes.

Both are integers of ticks. Decode attention is a floor and then a straight line in the tokens of context that it
reads, which is what lets the engine add up a run of steps in closed form.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from simserve.cost.attention_tables import AttentionHeads, DecodeTable
from simserve.cost.decode_attention import UNBOUNDED, DecodeTime, FloorAndLine
from simserve.cost.device import Device
from simserve.cost.drafted import Batch
from simserve.cost.layer_time import LayerTime
from simserve.cost.operators import Kernel
from simserve.cost.prefill_curves import TILE, PrefillCurves
from simserve.cost.unevenness import Unevenness
from simserve.spec.dtypes import bytes_per_element
from simserve.spec.ticks import TICKS_PER_SECOND, to_ticks

_BLOCK = 64
"""Queries of one thread block. A card whose every multiprocessor has one is full; while it is not, the longest history
takes the time that one block needs for it: with 32 heads chunks of 16 to 256 tokens take the same time (22 ns a key on
RTX PRO 6000, 31 on RTX 4090, measured by LLMServingSim, MIT)."""

_START = 200
"""Keys whose time a decode in a tile of its own takes beside that of its context: to begin, to end, to round up to
blocks of 128 keys. 16 and 64 decodes of 256 to 2,048 tokens on RTX PRO 6000: 140 to 180; RTX 4090, held out: 160 to
230."""

_DECODE_MFU_AT = 8192
"""Length of a prompt whose share of the peak the tiles of decodes reach: within 3 % of the measured time of a key on
RTX PRO 6000 (3.9 ns for 32 heads) and on RTX 4090 (7.9 ns)."""

_TOGETHER = 128
"""Decodes of which one query head fills a card, so that the next one comes when their KV has left L2 if it is too much.
With 64 and 128 decodes of up to 16,384 tokens on RTX PRO 6000 and RTX 4090 the KV is read 2 and 3 to 4 times by 4 heads
(LLMServingSim, MIT)."""

_EMPTY_BLOCK = 2.8e-9
"""Seconds that a thread block without work takes. Beside a long chunk a decode gets as many blocks a head as the chunk:
128 decodes beside 256 to 2,048 tokens, the same on RTX PRO 6000 and RTX 4090 (LLMServingSim, MIT)."""

_BEHIND = 0.65
"""Share of what the longest sequence has to go after the others that a batch takes beyond its even time. 0.6 to 0.7 of
it on RTX 4090 and RTX PRO 6000, by what LLMServingSim's profiler found in batches of unequal decodes (MIT, skew_fit.csv
of Llama-3.1-8B)."""

_NEAR = 1.05
"""Decode attention within so much of its shortest time counts as bound by the floor."""

_HEAD_DIM = 128
"""Elements of a head as measured tables count them."""

_MOST_REMEMBERED = 2**14
"""Chunks whose work is kept, since many are alike."""


class Attention(NamedTuple):
    """Work of one attention layer on one GPU.

    `heads`: query heads; `kv_bytes`: KV cache of one token; `pair_flops`: FLOPs of one (query, key) pair in prefill;
    `decode_flops`: FLOPs of one key in decode (differs from `pair_flops` where MLA works on latents); `history_flops`:
    FLOPs for each earlier token of a chunk (MLA expands its latents again); `window`: tokens it looks back on, None for
    all. `measured_heads`: its heads as measured tables know them, None where they do not. `kind`: the name of its kind,
    which the names of its kernels end with.
    """

    heads: float
    kv_bytes: float
    pair_flops: float
    decode_flops: float
    history_flops: float
    window: int | None
    dtype: str
    measured_heads: AttentionHeads | None = None
    kind: str = "full"

    def pairs(self, new: int, history: int) -> int:
        """(query, key) pairs of a causal chunk of `new` tokens after `history`; at most the window for each query."""
        window = self.window
        if window is None or history + new <= window:
            return new * history + new * (new + 1) // 2
        inside = max(0, window - history)
        return inside * history + inside * (inside + 1) // 2 + (new - inside) * window


def layer_of(heads: AttentionHeads) -> Attention:
    """Attention of a layer with some heads of 128 elements."""
    flops = 4 * heads.queries * _HEAD_DIM
    kv_bytes = 2 * heads.keys * _HEAD_DIM * bytes_per_element(heads.kv_dtype)
    return Attention(heads.queries, kv_bytes, flops, flops, 0, None, "bf16", heads)


class AttentionTime(LayerTime):
    """Ticks of one attention layer on a device.

    Decode: measured, or the longer of `floor` and the time of its KV heads and bytes, at the share of HBM bandwidth
    that decode attention reaches. Prefill: causal FLOPs at the mfu of the length that the chunk sees, its own tokens
    included, and once in a step what a prompt takes beyond that where it was measured; at least the floor, the reading
    of its KV, what the longest history takes alone, and what any prompts of so many tokens take. Both in one step: one
    after the other, or, where the device runs them as one kernel, a prefill in which each decode has the FLOPs of a
    whole tile.
    """

    __slots__ = (
        "_alone",
        "_beside",
        "_beyond",
        "_empty",
        "_filling",
        "_group",
        "_history",
        "_kept",
        "_key_alone",
        "_per_pair",
        "_prefill_floor",
        "_read",
        "_short",
        "_step",
        "_tile",
        "_verified_pair",
        "_window",
        "_works",
        "attention",
        "memory_bound",
        "table",
    )

    def __init__(self, attention: Attention, device: Device) -> None:
        peak = device.peak_flops[attention.dtype] / TICKS_PER_SECOND
        prefill = PrefillCurves.of(attention.measured_heads, attention.pair_flops, attention.dtype, device)
        mfu = prefill.mfu
        self.attention = attention
        self.table = _decode_table(attention, device)
        self._window = attention.window
        self._read = to_ticks(attention.kv_bytes / device.attention_bandwidth)
        compute = round(attention.decode_flops / (peak * mfu.values[-1]))
        self.memory_bound = self._read >= compute
        heads = attention.measured_heads
        per_sequence = to_ticks(device.decode_per_head * heads.keys) if heads else 0
        line = FloorAndLine(to_ticks(device.decode_floor), per_sequence, max(self._read, compute))
        super().__init__(DecodeTime(self.table or line, attention.window))
        lengths = np.arange(1.0, int(mfu.sizes[-1]) + 2)
        self._prefill_floor = to_ticks(prefill.floor)
        self._per_pair: list[float] = [0.0, *(attention.pair_flops / (peak * mfu(lengths))).tolist()]
        self._alone = [0, *np.rint(prefill.alone(lengths) * TICKS_PER_SECOND).astype(int).tolist()]
        self._beyond = [0, *np.rint(prefill.beyond(lengths) * TICKS_PER_SECOND).astype(int).tolist()]
        self._step: list[int] = np.rint(prefill.step * TICKS_PER_SECOND).astype(int).tolist()
        self._short: list[int] = np.rint(prefill.short * TICKS_PER_SECOND).astype(int).tolist()
        self._tile = tile = device.decode_tile if attention.decode_flops == attention.pair_flops else 0
        self._verified_pair = (
            attention.decode_flops
            / (device.peak_flops[attention.dtype] * device.attention_mfu.values[-1])
            * TICKS_PER_SECOND
        )
        per_key = attention.pair_flops / (peak * mfu(np.array([float(_DECODE_MFU_AT)])).item())
        self._beside = round(tile * per_key)
        self._empty = to_ticks(_EMPTY_BLOCK * attention.heads)
        self._filling = _BLOCK * device.num_sms / attention.heads
        self._group = heads.group if heads else 1.0
        self._kept = round(device.l2_bytes / 2 / (attention.kv_bytes / heads.keys)) if heads else UNBOUNDED
        self._key_alone = round(self._filling * per_key)
        if tile and heads is not None and attention.window is None:
            self.uneven = Unevenness.of(_BEHIND * self._key_alone / self._read, _BEHIND * self._filling / tile)
        self._history = attention.history_flops / (peak * mfu.values[-1])
        self._works: dict[tuple[int, int], tuple[int, int, int, int, int]] = {}

    @property
    def least(self) -> int:
        """Fewest ticks that attention takes in any step."""
        return min(self.floor, self._prefill_floor)

    def measured_context(self, num_decodes: int) -> int | None:
        """Most tokens of context that so many decodes had in a measurement; a window layer reads no more than that."""
        if self.table is None or self._window is not None:
            return None
        return self.table.measured_context(num_decodes)

    def tokens_read(self, num_decodes: int, context: int) -> int:
        """Tokens of KV that decodes read: in a window layer at most the window for each sequence.

        Exact where all sequences lie on one side of the window, an upper bound otherwise.
        """
        window = self.attention.window
        return context if window is None else min(context, num_decodes * window)

    def mixed(self, chunks: Sequence[tuple[int, int]], num_decodes: int, context: int) -> int:
        """Ticks of attention over chunks and decodes together."""
        prefill, compute, least, read = self._over_chunks(chunks)
        if not num_decodes:
            return prefill
        decode = self.decodes.ticks(num_decodes, context)
        if not self._beside or not chunks:
            return prefill + decode
        window = self._window
        if window is not None and context > num_decodes * window:
            context = num_decodes * window
        compute += self._beside * (context + _START * num_decodes)
        longest_chunk = max([new for new, _ in chunks])
        compute += num_decodes * self._empty * ((longest_chunk - 1) // TILE)
        memory = (read + context + self._read_again(num_decodes, context)) * self._read
        return max(compute, least, decode, memory, context // num_decodes * self._key_alone)

    def _read_again(self, num_decodes: int, context: int) -> int:
        """Tokens of KV that decodes beside chunks read more than once: each query head reads its KV head's, and finds
        in L2 what half of it holds of all sequences. Heads that run at the same time read together.
        """
        kept = self._kept
        if context <= kept:
            return 0
        heads = min(self._group, self._group * num_decodes / _TOGETHER)
        return int(max(0.0, heads - 1) * (context - kept))

    def _over_chunks(self, chunks: Sequence[tuple[int, int]]) -> tuple[int, int, int, int]:
        """Ticks of all chunks of a step together: all in all, for their FLOPs, and at least; and tokens of KV read."""
        works = self._works
        if len(chunks) == 1:
            whole, compute, least, read, beyond = works.get(chunks[0]) or self._work(chunks[0])
            return whole, compute + beyond, least, read
        compute = least = read = tokens = 0
        beyond = -UNBOUNDED if chunks else 0
        for chunk in chunks:
            _, ticks, alone, seen, over = works.get(chunk) or self._work(chunk)
            compute += ticks
            read += seen
            tokens += chunk[0]
            if alone > least:  # noqa: PLR1730 (max() takes three times as long)
                least = alone
            if over > beyond:  # noqa: PLR1730
                beyond = over
        compute += beyond
        least = max(least, self._least_of(tokens))
        return max(compute, least, read * self._read), compute, least, read

    def _least_of(self, tokens: int) -> int:
        """Ticks of a step over so many prompt tokens, at least."""
        last = len(self._step) - 1
        return self._step[tokens] if tokens <= last else self._step[last] * tokens // last

    def _work(self, chunk: tuple[int, int]) -> tuple[int, int, int, int, int]:
        """Ticks of a chunk: all in all, for its FLOPs, and at least; the tokens of KV that it reads; and the ticks
        that a step with it takes beyond the FLOPs of its chunks.
        """
        new, history = chunk
        window, per_pair, last = self._window, self._per_pair, len(self._per_pair) - 1
        seen = history if window is None else min(history, window)
        idle = max(0, TILE - new)
        pairs = self.attention.pairs(new, history) + idle * seen
        compute = int(pairs * per_pair[min(new + idle + seen, last)] + history * self._history)
        if new < len(self._short):
            compute = max(compute, self._short[new])
        alone = self._alone[min(new if window is None else min(new, window), last)]
        least = max(
            self._prefill_floor,
            alone,
            self._least_of(new),
            int(seen * per_pair[min(TILE + seen, last)] * self._filling),
        )
        beyond = self._beyond[min(new + seen, last)]
        if len(self._works) == _MOST_REMEMBERED:
            self._works.clear()
        read = new + seen
        whole = max(compute + beyond, least, read * self._read)
        work = self._works[chunk] = whole, compute, least, read, beyond
        return work

    def kernels(self, chunks: Sequence[tuple[int, int]], num_decodes: int, context: int) -> list[Kernel]:
        """The kernels of a layer: one over chunks and one over decodes, or one over both."""
        if self._beside and chunks and num_decodes:
            return [self._prefill_kernel("attention_mixed", chunks, num_decodes, context)]
        kernels = [self._prefill_kernel("attention_prefill", chunks, 0, 0)] if chunks else []
        return kernels + ([self._decode_kernel(num_decodes, context)] if num_decodes else [])

    def verified(self, batch: Batch) -> int:
        """Decode attention at its bandwidth, or the FLOPs of all pairs at the rate of long prompts if that takes
        longer; prompt chunks come on top. Where the device runs several queries of a request as it runs a prompt, each
        request has the FLOPs of a whole tile, and chunks beside it are one kernel with it.
        """
        if not self._verifies_apart(batch):
            return self.mixed(batch.prompts, batch.num_verified, batch.context)
        prefill = self.prefill(batch.prompts) if batch.prompts else 0
        return prefill + self._verification(batch)

    def verified_kernels(self, batch: Batch) -> list[Kernel]:
        """The same as kernels."""
        kernels = self.kernels(batch.prompts, batch.num_verified, batch.context)
        if not self._verifies_apart(batch):
            return kernels
        ticks = self._verification(batch)
        reading = ticks == self.decodes.ticks(batch.num_verified, batch.context)
        flops = self._pairs(batch) * self.attention.decode_flops
        bound = kernels[-1].bound if reading else "compute"
        return [*kernels[:-1], kernels[-1]._replace(ticks=ticks, flops=flops, bound=bound)]

    def _verifies_apart(self, batch: Batch) -> bool:
        """Whether the verifications are one kernel, which differs from one over decodes."""
        return batch.longest > 1 and not (self._tile and batch.prompts)

    def _verification(self, batch: Batch) -> int:
        reading = self.decodes.ticks(batch.num_verified, batch.context)
        return max(reading, int(self._pairs(batch) * self._verified_pair))

    def _pairs(self, batch: Batch) -> int:
        """Queries with keys that are multiplied, those of a tile that stand idle included."""
        pairs, window, tile = batch.pairs, self._window, self._tile
        if tile:
            pairs = max(pairs, tile * batch.context)
        if window is not None:
            pairs = min(pairs, max(batch.queries, tile * batch.num_verified) * window)
        return pairs

    def _decode_kernel(self, num_decodes: int, context: int) -> Kernel:
        read = self.tokens_read(num_decodes, context)
        ticks = self.decode(num_decodes, context)
        bound = "floor" if ticks <= _NEAR * self.floor else "memory" if self.memory_bound else "compute"
        work = read * self.attention.kv_bytes, read * self.attention.decode_flops
        return Kernel(self._name("attention_decode"), "attention_decode", *work, ticks, bound)

    def _prefill_kernel(self, name: str, chunks: Sequence[tuple[int, int]], num_decodes: int, context: int) -> Kernel:
        attention = self.attention
        window = UNBOUNDED if attention.window is None else attention.window
        decoded = self.tokens_read(num_decodes, context)
        read = decoded + sum(new + min(history, window) for new, history in chunks)
        flops = decoded * attention.decode_flops
        flops += sum(attention.pairs(*chunk) * attention.pair_flops for chunk in chunks)
        flops += sum(history for _, history in chunks) * attention.history_flops
        ticks = self.mixed(chunks, num_decodes, context)
        modelled = AttentionTime.mixed(self, chunks, num_decodes, context)
        bound = (
            "floor"
            if modelled in {self._prefill_floor, self.floor}
            else "memory"
            if modelled == self._read * read
            else "compute"
        )
        return Kernel(self._name(name), "attention_prefill", read * attention.kv_bytes, flops, ticks, bound)

    def _name(self, name: str) -> str:
        kind = self.attention.kind
        return name if kind == "full" else f"{name}_{kind}"


def _decode_table(attention: Attention, device: Device) -> DecodeTable | None:
    heads, tables = attention.measured_heads, device.tables
    return None if heads is None or tables is None else tables.decode(heads, cold=device.cold)
