"""Speculative decoding in numbers: how many drafts were right, and how many answers to a user's wait they make."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from simserve.report.tokens import BoolArray
from simserve.spec.result import Result

Value = int | float | str | None


def speculation_keys(meta: Mapping[str, Any]) -> dict[str, Any]:
    """The keys that `vllm bench serve` (0.32) writes of a server that speculates; none for another run.

    Counters are of the whole run. `spec_decode_acceptance_length` counts the token that every step gives beside its
    drafts, `spec_decode_per_position_acceptance_rates` are shares of all drafts, not of those that came so far.
    """
    if "spec_decode_num_drafts" not in meta:
        return {}
    drafts, tokens = meta["spec_decode_num_drafts"], meta["spec_decode_draft_tokens"]
    accepted = meta["spec_decode_accepted_tokens"]
    per_position = meta["spec_decode_accepted_tokens_per_position"]
    return {
        "spec_decode_acceptance_rate": 100 * accepted / tokens if tokens else None,
        "spec_decode_acceptance_length": 1 + accepted / drafts if drafts else None,
        "spec_decode_num_drafts": drafts,
        "spec_decode_draft_tokens": tokens,
        "spec_decode_accepted_tokens": accepted,
        "spec_decode_per_position_acceptance_rates": [count / drafts for count in per_position] if drafts else [],
    }


def speculation_lines(summary: Mapping[str, Any]) -> Iterator[tuple[str, Value]]:
    """The lines that `vllm bench serve` prints of it."""
    if "spec_decode_num_drafts" not in summary:
        return
    yield "Acceptance rate (%):", summary["spec_decode_acceptance_rate"]
    yield "Acceptance length:", summary["spec_decode_acceptance_length"]
    yield "Drafts:", summary["spec_decode_num_drafts"]
    yield "Draft tokens:", summary["spec_decode_draft_tokens"]
    yield "Accepted tokens:", summary["spec_decode_accepted_tokens"]
    for position, rate in enumerate(summary["spec_decode_per_position_acceptance_rates"]):
        yield f"  Position {position} (%):", 100 * rate


def num_later_tokens(result: Result, chosen: BoolArray) -> int:
    """Tokens after the first of the chosen requests, as a client counts their gaps: tokens that come at once, from a
    step that verifies drafts, count as one.
    """
    requests, gaps = result.requests, result.gaps
    if "output_tokens" not in result.steps:
        return int(np.maximum(requests["output_len"][chosen] - 1, 0).sum())
    broken = chosen[gaps["request"]]
    without = gaps["step_after"][broken] - gaps["step_before"][broken] - 1
    steps = requests["last_step"][chosen] - requests["first_step"][chosen]
    return int(steps.sum()) - int(without.sum())
