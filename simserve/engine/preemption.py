"""Who pays when blocks are short."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from simserve.engine.ledger import Ledger
    from simserve.engine.request import Request


def make_room(ledger: Ledger, request: Request, is_short: Callable[[], bool], evict: Callable[[Request], int]) -> int:
    """Let victims go while blocks are short for a running request and it has not become one itself; `evict` says how
    many tokens a victim gives back to the budget of the step. Returns the sum.
    """
    given_back = 0
    while request in ledger.running and is_short():
        given_back += evict(choose_victim(ledger))
    return given_back


def choose_victim(ledger: Ledger) -> Request:
    """By priority the least important, the latest among equals; otherwise the one admitted last.

    Source: vLLM 0.32, Scheduler.schedule, where `allocate_slots` fails for a running request.
    """
    if ledger.by_priority:
        return max(ledger.running, key=lambda request: (request.priority, request.arrival))
    return next(reversed(ledger.running))
