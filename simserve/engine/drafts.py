"""Speculative decoding as a scheduler sees it: what it is told of the drafter, and what it counts.

Source: vLLM 0.32, config/vllm.py, config/speculative.py and v1/spec_decode/metrics.py.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from simserve.engine.acceptance import Acceptance
    from simserve.engine.counters import Counters


class Speculation(NamedTuple):
    """What the scheduler is told of the drafter, with vLLM's names.

    `num_lookahead_tokens`: blocks are held for so many tokens more than a step computes, where the drafter writes its
    own KV. `max_num_new_slots_for_drafting`: tokens of a step's budget that each request costs beside its own.
    `use_eagle`: the drafter reads hidden states. `needs_match`: it proposes nothing unless it finds a match.
    """

    num_speculative_tokens: int
    num_lookahead_tokens: int
    max_num_new_slots_for_drafting: int
    use_eagle: bool
    needs_match: bool


NO_DRAFTS = Speculation(0, 0, 0, use_eagle=False, needs_match=False)


def speculation_by(method: str, num_speculative_tokens: int) -> Speculation:
    """What `method`, one of ngram, draft_model, eagle and mtp, means to the scheduler."""
    return Speculation(
        num_speculative_tokens,
        num_lookahead_tokens=0 if method == "ngram" else num_speculative_tokens,
        max_num_new_slots_for_drafting=int(method == "draft_model"),
        use_eagle=method in {"eagle", "mtp"},
        needs_match=method == "ngram",
    )


class Drafts:
    """Who proposes drafts, how many of them are right, and what came of them: by step, and vLLM's counters."""

    def __init__(self, speculation: Speculation, acceptance: Acceptance) -> None:
        self.speculation = speculation
        self.acceptance = acceptance
        self.draft_tokens = array("q")
        """Drafts that each step verified."""
        self.output_tokens = array("q")
        """Tokens that each step gave."""
        self._num_drafts = self._num_draft_tokens = self._num_accepted_tokens = 0
        self._num_accepted_tokens_per_pos = [0] * speculation.num_speculative_tokens

    def observe(self, num_draft_tokens: int, num_accepted_tokens: int) -> None:
        """One request in one step; without drafts it does not count."""
        if not num_draft_tokens:
            return
        self._num_drafts += 1
        self._num_draft_tokens += num_draft_tokens
        self._num_accepted_tokens += num_accepted_tokens
        for position in range(num_accepted_tokens):
            self._num_accepted_tokens_per_pos[position] += 1

    def counters(self) -> Counters:
        """Drafts proposed and verified, their tokens, and those accepted."""
        return {
            "spec_decode_num_drafts": self._num_drafts,
            "spec_decode_draft_tokens": self._num_draft_tokens,
            "spec_decode_accepted_tokens": self._num_accepted_tokens,
            "spec_decode_accepted_tokens_per_position": self._num_accepted_tokens_per_pos,
        }
