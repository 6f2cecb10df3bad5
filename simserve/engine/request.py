"""A request inside the engine: what the scheduler may know of it, and where it stands."""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING

from simserve.engine.prefix import ENDLESS, Branch, Path

if TYPE_CHECKING:
    from simserve.engine.prefix import Piece, Run
    from simserve.workload.columns import Arrival


class State(IntEnum):
    """Where a request stands."""

    WAITING = 0
    PREFILLING = 1
    """Running, with more than one token to compute or irregular: its numbers are explicit."""
    DECODING = 2
    """Running, one token a step: its numbers follow from the decode clock."""
    DRAINING = 3
    """Running, its last token in flight (asynchronous scheduling): it holds blocks and seat, and gets nothing more."""
    FINISHED = 4
    SWAPPED = 5
    """Preempted, its KV in CPU memory, or on the way there or back."""


WAITING, PREFILLING, DECODING, DRAINING, FINISHED, SWAPPED = State

NO_PIECES: list[Piece] = []
"""Held by requests that have nothing in the prefix cache; never changed."""


class Request:
    """One request, as the scheduler sees it.

    `num_prompt_tokens`, `max_tokens` and `priority` are what a server knows; `output_len` (the number of tokens the
    model will really produce, at most `max_tokens`) decides only when the request stops. Both are cut where
    `max_model_len` ends the answer.

    While not decoding: `num_tokens` (prompt and answer so far) and `num_computed_tokens` (with KV), `num_blocks` held.
    While decoding `num_computed_tokens = clock - base`. `num_hashed_blocks` leading blocks are known to the prefix
    cache; of these the first `num_entered_blocks` are entered in it as `pieces`, the rest (private text) are entered
    when the request lets go of them.
    """

    __slots__ = (
        "arrival",
        "base",
        "branch",
        "first_step",
        "first_token",
        "id",
        "is_awaited",
        "is_generating",
        "last_clock",
        "max_tokens",
        "num_blocks",
        "num_cached_tokens",
        "num_computed_tokens",
        "num_drafts",
        "num_entered_blocks",
        "num_hashed_blocks",
        "num_placeholders",
        "num_preemptions",
        "num_prompt_tokens",
        "num_tokens",
        "output_len",
        "path",
        "pieces",
        "preempted_at",
        "priority",
        "scheduled",
        "seq",
        "state",
        "token_step",
        "writing",
    )

    is_generating: bool
    """Where every request is visited: whether it is past its prompt since it took its seat."""
    num_drafts: int
    """Likewise: drafts that wait to be verified."""
    num_placeholders: int
    """Likewise: tokens that are scheduled and not known yet."""
    is_awaited: bool
    """Whether a request to come may begin with this one's text."""
    base: int
    """While decoding: `clock - base` tokens are computed."""
    last_clock: int
    """While decoding: the clock of the step that gives the last token."""
    first_token: int
    """Tick at which the engine knew its first token, -1 before; kept only where clients have no patience."""
    preempted_at: int
    """Number of the step that preempted it last."""
    seq: int
    """Number of its admission."""
    scheduled: int
    """Number of the step that admitted it first."""

    def __init__(  # noqa: PLR0917 (made a million times)
        self,
        id: int | str,
        arrival: float,
        num_prompt_tokens: int,
        output_len: int,
        max_tokens: int,
        priority: int = 0,
    ) -> None:
        self.id = id
        self.arrival = arrival
        self.num_prompt_tokens = self.num_tokens = num_prompt_tokens
        self.output_len = output_len
        self.max_tokens = max_tokens
        self.priority = priority
        self.state = WAITING
        self.branch: Branch | None = None
        self.is_awaited = False
        self.path: Path = ()
        self.pieces: list[Piece] = NO_PIECES
        self.writing: Run | None = None
        self.num_computed_tokens = self.num_blocks = self.num_hashed_blocks = self.num_entered_blocks = 0
        self.num_preemptions = self.num_cached_tokens = 0
        self.scheduled = self.first_step = self.token_step = self.first_token = -1

    def to_first_token(self) -> Request:
        """The same request with an answer of one token, as one who only computes prompts gets it."""
        return Request(self.id, self.arrival, self.num_prompt_tokens, 1, 1, priority=self.priority)

    def own_branch(self) -> Branch:
        """The branch of the request's own text; made when first needed, since most texts are never looked for."""
        if self.branch is None:
            self.branch = Branch(self)
            self.path = ((self.branch, ENDLESS),)
        return self.branch

    def __repr__(self) -> str:
        return f"Request({self.id!r}, {State(self.state).name}, {self.num_computed_tokens}/{self.num_tokens})"


def request_of(arrival: Arrival, name: int, now: int, max_model_len: int) -> Request | None:
    """The request of an arrival that reaches the engine at tick `now`, under a name of its own; None if it is refused.

    vLLM's front end refuses a prompt that leaves no room for a token (v1/engine/input_processor.py), and cuts
    `max_tokens` where the model's length ends the answer.
    """
    _, input_len, output_len, max_tokens, priority, _, _ = arrival
    room = max_model_len - input_len
    if room <= 0:
        return None
    if max_tokens > room:
        max_tokens = room
        output_len = min(output_len, room)
    return Request(name, now, input_len, output_len, max_tokens, priority)
