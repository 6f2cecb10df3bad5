"""What the scheduler decided for one step."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from simserve.engine.request import Request

    Requests = tuple[Request, ...]


class Chunk:
    """Tokens of one request that is not simply decoding: part of a prompt, or of what a preempted request computes
    again.
    """

    __slots__ = ("completes", "history", "num_drafts", "num_padding", "num_tokens", "request")

    num_drafts: int
    """Speculative decoding: the last of them that are drafts to verify, right or wrong ones."""
    num_padding: int
    """Likewise: the last of them that stand for nothing."""

    def __init__(self, request: Request, num_tokens: int, history: int, completes: bool) -> None:
        self.request = request
        self.num_tokens = num_tokens
        self.history = history
        self.completes = completes
        """Whether the step computes the request's last known token, and so yields its next one."""


class StepPlan:
    """One step: the decoding set, of which every request gets one token, and the exceptions.

    `num_decodes` and `context` (tokens of KV that these read, their own included) describe the decoding set, and
    `longest`, where the cost asks for it, the most that one of them reads; `chunks`
    the other requests with tokens, in running order, then those admitted. `num_prefill_tokens` are the tokens of all
    chunks, `num_sampled` the requests that get a token. `new` and `resumed` were admitted, `preempted` lost their
    blocks. `finishing` get their last token from this step; `late` lost their place in the next step while their token
    of this one is in flight. `gaps` (request, index of the step of its token before) are requests that get a token
    again after steps without one.
    """

    __slots__ = (
        "chunks",
        "context",
        "finishing",
        "gaps",
        "index",
        "late",
        "longest",
        "new",
        "num_decodes",
        "num_prefill_tokens",
        "num_sampled",
        "preempted",
        "resumed",
        "starved",
    )

    def __init__(self, index: int) -> None:
        self.index = index
        self.num_decodes = self.context = self.longest = self.num_prefill_tokens = self.num_sampled = 0
        self.chunks: list[Chunk] = []
        self.new: list[Request] = []
        self.resumed: Requests = ()
        self.preempted: Requests = ()
        self.starved: Requests = ()
        self.finishing: Sequence[Request] = ()
        self.late: Requests = ()
        self.gaps: tuple[tuple[Request, int], ...] = ()

    @property
    def is_empty(self) -> bool:
        """Whether no token was scheduled: such a step takes no time."""
        return not (self.num_decodes or self.chunks)
