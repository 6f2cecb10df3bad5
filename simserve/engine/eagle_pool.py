"""The block pool of an engine whose drafter reads the hidden states of the target model."""

from __future__ import annotations

from typing import TYPE_CHECKING

from simserve.engine.block_pool import BlockPool, Hit

if TYPE_CHECKING:
    from simserve.engine.request import Request


class EagleBlockPool(BlockPool):
    """A pool in which the last block of every hit is computed again: the drafter needs the hidden states of the tokens
    right before the next one, which no cache holds.

    Source: vLLM 0.32, v1/core/single_type_kv_cache_manager.py, find_longest_cache_hit (`drop_eagle_block`).
    """

    def lookup(self, request: Request) -> Hit:
        """The longest cached prefix of a request, less its last block."""
        hit = super().lookup(request)
        if not hit.num_blocks:
            return hit
        run, start, end = hit.pieces[-1]
        pieces = [*hit.pieces[:-1], (run, start, end - 1)] if end - start > 1 else hit.pieces[:-1]
        return Hit(pieces, hit.num_blocks - 1, hit.num_free - run.num_free(end - 1, end))
