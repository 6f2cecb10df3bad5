"""Batches as arrays: positions, slots and tables of rows, made-up batches for timing, padding."""

import numpy as np
import pytest

from calibration.engine.batch import Span, build_batch, padded, synthetic_batch


def test_rows_know_where_they_read_and_write() -> None:
    spans = [Span([7], 8, np.array([5, 2, 9])), Span([3, 4, 5], 3, np.array([1, 6]))]
    batch = build_batch(spans, block_size=4)
    assert batch.num_decodes == 1
    assert batch.chunks == ((3, 3),)
    assert batch.tokens.tolist() == [7, 3, 4, 5]
    assert batch.positions.tolist() == [8, 3, 4, 5]
    assert batch.slots.tolist() == [36, 7, 24, 25]
    assert batch.query_starts.tolist() == [0, 1, 4]
    assert batch.context_lens.tolist() == [9, 6]
    assert batch.context == 9
    assert batch.block_table[:, :4].tolist() == [[5, 2, 9, 0], [1, 6, 0, 0]]


def test_made_up_batches_are_what_was_asked_for() -> None:
    batch = synthetic_batch([1, 16, 17], [(2, 0), (30, 5), (1, 9)], num_blocks=12, block_size=16, vocab_size=50)
    assert batch.num_decodes == 4  # a chunk of one token is a decode
    assert batch.context_lens.tolist() == [1, 16, 17, 10, 2, 35]
    assert batch.chunks == ((2, 0), (30, 5))
    used = batch.block_table[batch.block_table > 0]
    assert len(used) == len(set(used.tolist())) == 1 + 1 + 2 + 1 + 1 + 3
    assert used.max() < 12
    assert batch.tokens.max() < 50
    with pytest.raises(ValueError, match="reads 9 blocks of KV, the cache has 8"):
        synthetic_batch([1, 16, 17], [(2, 0), (30, 5), (1, 9)], num_blocks=9, block_size=16, vocab_size=50)


def test_padding_touches_the_null_block_alone() -> None:
    batch = synthetic_batch([3, 20], [], num_blocks=9, block_size=8, vocab_size=50)
    wide = padded(batch, 5, 32)
    assert wide.block_table.shape == (5, 32)
    assert wide.context_lens.tolist() == [3, 20, 1, 1, 1]
    assert (wide.slots[:2] == batch.slots).all()
    assert (wide.slots[2:] < 8).all()
    assert (wide.block_table[2:] == 0).all()
    assert wide.query_starts.tolist() == [0, 1, 2, 3, 4, 5]
