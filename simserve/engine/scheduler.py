"""What a scheduler is: a policy over a ledger. It decides who gets how many tokens in the next step, who is admitted,
and who is preempted.

Plain Python without SimPy and without time: `schedule()` decides a step, `complete(plan)` takes in its tokens; between
the two, with asynchronous scheduling or several stages, the next step may be decided already. The same classes drive
simulations, replays of recorded traces and the real engine of `calibration/`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from array import array
    from collections.abc import Sequence

    from simserve.engine.config import SchedulerConfig
    from simserve.engine.counters import Counters
    from simserve.engine.decoding import DecodingSet
    from simserve.engine.ledger import Ledger
    from simserve.engine.plan import StepPlan
    from simserve.engine.request import Request

UNLIMITED = 1 << 62


class Scheduler(ABC):
    """A policy over `ledger`. A policy of its own is a subclass in a file of `engine/policies`, and a line in
    `SCHEDULERS` there.

    `decoding`: the decodes that it keeps as sums, None where it visits every request.
    """

    def __init__(self, config: SchedulerConfig, ledger: Ledger, decoding: DecodingSet | None = None) -> None:
        self.config = config
        self.ledger = ledger
        self.decoding = decoding
        self._max_tokens = config.max_num_batched_tokens
        self._num_seats = config.max_num_active_seqs or config.max_num_seqs
        self._threshold = config.long_prefill_token_threshold or UNLIMITED

    @abstractmethod
    def schedule(self) -> StepPlan:
        """Decide the next step."""

    @abstractmethod
    def complete(self, plan: StepPlan) -> Sequence[Request]:
        """Take in the tokens of the oldest plan in flight; returns the requests that finished."""

    def add(self, request: Request) -> None:
        """A request arrives."""
        self.ledger.add(request)

    def abort(self, request: Request) -> None:
        """The client has left; see `Ledger.abort`."""
        self.ledger.abort(request)

    @property
    def has_requests(self) -> bool:
        """Whether there is anything to decide."""
        return self.ledger.has_requests

    def unfinished(self) -> list[Request]:
        """Every request that is here."""
        return self.ledger.unfinished()

    def longest_chunk(self) -> int:
        """Tokens that a step computes of one request at most: `long_prefill_token_threshold`, if there is anybody to be
        kept waiting by a long prompt.
        """
        threshold = self._threshold
        if threshold is not UNLIMITED and len(self.ledger.running) + len(self.ledger.waiting) == 1:
            return UNLIMITED
        return threshold

    def waits_since(self, request: Request) -> int:  # noqa: ARG002
        """The step of the last token of a decoding request that is passed over, as some policies do; else -1."""
        return -1

    def steps_ahead(self, plan: StepPlan, enough: int = 1) -> int:  # noqa: ARG002
        """How many steps after `plan` only repeat it; where requests are visited one by one, none do."""
        return 0

    def repeat(self, num_steps: int) -> StepPlan:
        """Decide `num_steps` steps at once, at most `steps_ahead`; all but the last, whose plan it returns, are
        complete.
        """
        raise AssertionError(f"{num_steps} steps ahead of a policy that knows of none")

    def counters(self) -> Counters:
        """What it has counted; see `Ledger.counters`."""
        return self.ledger.counters()

    def step_columns(self) -> dict[str, array[int]]:
        """What it has kept of each step beside the step log, where steps and rows of the log are the same."""
        return {}
