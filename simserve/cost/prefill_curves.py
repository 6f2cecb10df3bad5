"""How fast prefill attention is by the length of a chunk: as measured, or from the efficiencies of a device."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from simserve.cost.attention_tables import AttentionHeads
from simserve.cost.curve import FloatArray, LogLogCurve, mfu_curve
from simserve.cost.device import Device

TILE = 128
"""Queries that a kernel works on together: a shorter chunk takes the time of so many against its history."""


class PrefillCurves(NamedTuple):
    """Prefill attention against the length of a chunk: share of the peak, seconds of a chunk alone, seconds beyond the
    sum of a step's chunks.
    """

    mfu: LogLogCurve
    alone: Callable[[FloatArray], FloatArray]
    beyond: Callable[[FloatArray], FloatArray]
    floor: float
    short: FloatArray
    """Seconds that a chunk of 0, 1, 2, ... tokens takes at least beside others."""
    step: FloatArray
    """Seconds that all chunks of a step take at least that have 0, 1, 2, ... tokens together."""

    @classmethod
    def of(cls, heads: AttentionHeads | None, pair_flops: float, dtype: str, device: Device) -> "PrefillCurves":
        """From the table of the device where it has one for these heads, else from its efficiencies. A (query, key)
        pair has `pair_flops` in a format.
        """
        tables = device.tables
        table = None if heads is None or tables is None else tables.prefill(heads)
        if table is None:
            nothing = np.zeros(2)
            return cls(device.attention_mfu, np.zeros_like, np.zeros_like, device.prefill_floor, nothing[:0], nothing)
        kept = table.lengths >= TILE
        lengths, seconds = table.lengths[kept], table.more[kept]
        flops = pair_flops * lengths * (lengths + 1) / 2
        shares = flops / (device.peak_flops[dtype] * seconds)
        mfu = mfu_curve({int(length): float(share) for length, share in zip(lengths, shares, strict=True)})
        short = np.interp(np.arange(TILE + 1), table.lengths, table.more)
        step = np.append(0.0, table.step_at(np.arange(1, table.tokens[-1] + 1)))
        return cls(mfu, table.alone_at, table.beyond_at, float(table.alone[0]), short, step)
