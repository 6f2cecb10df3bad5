"""One step's work as arrays: which tokens, at which positions, written to and read from which blocks.

Rows of a batch are requests: first those with one new token (decodes), then those with more (chunks of prompts). What
the scheduler decides becomes a batch on the host; the runner copies it to its device.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Int32Array = NDArray[np.int32]
Int64Array = NDArray[np.int64]

TABLE_ALIGNMENT = 16
"""Block tables are widened to a multiple of this, so that kernels see few different widths."""


class Span(NamedTuple):
    """New tokens of one request: those that follow `history` tokens whose KV is in `blocks`, which has room for all."""

    tokens: Sequence[int]
    history: int
    blocks: Int32Array


@dataclass(frozen=True, slots=True)
class Batch:
    """The rows of one step on the host.

    Tokens of all rows lie one after the other, those of row `i` at `[query_starts[i], query_starts[i + 1])`; the last
    of them is where the row's next token is sampled.
    """

    num_decodes: int
    chunks: tuple[tuple[int, int], ...]
    """(new tokens, tokens before them) of each row that is no decode."""
    tokens: Int64Array
    positions: Int64Array
    slots: Int64Array
    """Where the KV of each token goes: block number times block size plus offset."""
    query_starts: Int32Array
    context_lens: Int32Array
    """Tokens that a row attends to in the end, its own included."""
    block_table: Int32Array
    """(rows, blocks), 0 beyond a row's own."""

    @property
    def num_rows(self) -> int:
        """Requests in the batch."""
        return len(self.context_lens)

    @property
    def context(self) -> int:
        """Tokens of KV that the decodes read, their own included."""
        return int(self.context_lens[: self.num_decodes].sum())


def build_batch(spans: Sequence[Span], block_size: int) -> Batch:
    """Rows in the order of `spans`, of which those with one token must come first."""
    lengths = [len(span.tokens) for span in spans]
    num_decodes = lengths.count(1)
    assert all(length == 1 for length in lengths[:num_decodes]), "decodes come first"
    histories = np.array([span.history for span in spans], dtype=np.int64)
    counts = np.array(lengths, dtype=np.int64)
    ends = counts.cumsum()
    rows = np.repeat(np.arange(len(spans)), counts)
    positions = np.arange(ends[-1]) + np.repeat(histories - ends + counts, counts)
    table = np.zeros((len(spans), aligned(max(len(span.blocks) for span in spans))), dtype=np.int32)
    for row, span in enumerate(spans):
        table[row, : len(span.blocks)] = span.blocks
    slots = table[rows, positions // block_size].astype(np.int64) * block_size + positions % block_size
    return Batch(
        num_decodes=num_decodes,
        chunks=tuple((length, span.history) for length, span in zip(lengths, spans, strict=True) if length > 1),
        tokens=np.fromiter((token for span in spans for token in span.tokens), np.int64, int(ends[-1])),
        positions=positions,
        slots=slots,
        query_starts=np.concatenate(([0], ends)).astype(np.int32),
        context_lens=(histories + counts).astype(np.int32),
        block_table=table,
    )


def synthetic_batch(
    decodes: Sequence[int],
    chunks: Sequence[tuple[int, int]],
    *,
    num_blocks: int,
    block_size: int,
    vocab_size: int,
    seed: int = 0,
) -> Batch:
    """A batch without requests behind it, to be timed: random tokens, blocks scattered over the cache, none used twice.

    `decodes` are contexts (tokens read, the new one included), `chunks` are (new tokens, tokens before them).

    Raises:
        ValueError: the cache has too few blocks for it.
    """
    lengths = [(1, context - 1) for context in decodes] + list(chunks)
    lengths.sort(key=lambda length: length[0] > 1)
    needed = [-(-(new + history) // block_size) for new, history in lengths]
    if sum(needed) > num_blocks - 1:
        raise ValueError(f"this batch reads {sum(needed)} blocks of KV, the cache has {num_blocks - 1}")
    generator = np.random.default_rng(seed)
    numbers = generator.permutation(np.arange(1, num_blocks, dtype=np.int32))
    ends = np.cumsum(needed)
    spans = [
        Span(generator.integers(vocab_size, size=new).tolist(), history, numbers[end - count : end])
        for (new, history), count, end in zip(lengths, needed, ends, strict=True)
    ]
    return build_batch(spans, block_size)


def padded(batch: Batch, num_rows: int, width: int) -> Batch:
    """A batch of decodes with rows added up to `num_rows` and a block table widened to `width`.

    What is added reads and writes one token of the null block.
    """
    assert not batch.chunks, "only decodes are padded"
    more = num_rows - batch.num_rows
    table = np.zeros((num_rows, width), dtype=np.int32)
    table[: batch.num_rows, : batch.block_table.shape[1]] = batch.block_table
    return Batch(
        num_decodes=num_rows,
        chunks=(),
        tokens=np.pad(batch.tokens, (0, more)),
        positions=np.pad(batch.positions, (0, more)),
        slots=np.pad(batch.slots, (0, more)),
        query_starts=np.arange(num_rows + 1, dtype=np.int32),
        context_lens=np.pad(batch.context_lens, (0, more), constant_values=1),
        block_table=table,
    )


def aligned(width: int) -> int:
    """Width of a block table that holds `width` blocks."""
    return -(-width // TABLE_ALIGNMENT) * TABLE_ALIGNMENT
