"""What schedulers that verify drafts kept, as columns and counters of a result; nothing of others."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simserve.engine.replica import Replica
from simserve.engine.speculation import SpeculativeScheduler


def speculation_columns(replicas: Sequence[Replica]) -> dict[str, NDArray[Any]]:
    """Drafts that each step verified and tokens that it gave, beside the rows of the step log, which are steps here."""
    schedulers = _speculative(replicas)
    if not schedulers:
        return {}
    return {
        name: np.concatenate([np.array(getattr(scheduler, name), dtype=np.int32) for scheduler in schedulers])
        for name in ("draft_tokens", "output_tokens")
    }


def speculation_counts(replicas: Sequence[Replica]) -> dict[str, object]:
    """vLLM's counters of speculative decoding, over all replicas."""
    counts = [scheduler.counts for scheduler in _speculative(replicas)]
    if not counts:
        return {}
    per_position = np.sum([count.num_accepted_tokens_per_pos for count in counts], axis=0)
    return {
        "spec_decode_num_drafts": sum(count.num_drafts for count in counts),
        "spec_decode_draft_tokens": sum(count.num_draft_tokens for count in counts),
        "spec_decode_accepted_tokens": sum(count.num_accepted_tokens for count in counts),
        "spec_decode_accepted_tokens_per_position": per_position.tolist(),
    }


def _speculative(replicas: Sequence[Replica]) -> list[SpeculativeScheduler]:
    return [each.scheduler for each in replicas if isinstance(each.scheduler, SpeculativeScheduler)]
