"""What the scheduler's state looks like from outside, request by request, as a recorder of vLLM sees it.

The scheduler itself keeps nothing per request and step; these functions write out what its sums stand for.
"""

from collections.abc import Iterable

from simserve.engine.plan import StepPlan
from simserve.engine.request import DECODING, DRAINING, Request
from simserve.engine.scheduler import Scheduler


def scheduled_tokens(scheduler: Scheduler, plan: StepPlan) -> dict[Request, int]:
    """Who gets how many tokens, in the order of vLLM's plan; to be asked right after schedule()."""
    chunks = {chunk.request: chunk.num_tokens for chunk in plan.chunks}
    finishing = set(plan.finishing)
    tokens = {}
    for request in scheduler.ledger.running:
        if request in chunks:
            tokens[request] = chunks[request]
        elif plan.num_decodes and (request.state is DECODING or (request.state is DRAINING and request in finishing)):
            tokens[request] = 1
    return tokens


def num_computed_tokens(scheduler: Scheduler, request: Request) -> int:
    """Tokens of a request whose KV is or will be there after the steps decided so far."""
    return scheduler.ledger.num_computed_tokens(request)


def num_blocks_held(scheduler: Scheduler, request: Request) -> int:
    """Blocks that a running request holds."""
    return scheduler.ledger.num_blocks_held(request)


def blocks_of(scheduler: Scheduler, num_tokens: int) -> int:
    """Blocks that the KV of so many tokens fills, the last one in part."""
    return -(-num_tokens // scheduler.config.block_size)


def num_cached_blocks(scheduler: Scheduler) -> int:
    """Distinct hashes that vLLM's pool would know: those entered, and those that running requests enter at release."""
    ledger, pool = scheduler.ledger, scheduler.ledger.pool
    count = pool.num_entered
    if not pool.enable_prefix_caching:
        return count
    for request in ledger.running:
        num_hashed = ledger.num_hashed_blocks(request)
        runs = request.branch.runs if request.branch else ()
        for index in range(request.num_entered_blocks, num_hashed):
            count += not any(run.alive_until(index) > index for run in runs)
    return count


def ids(requests: Iterable[Request]) -> list[str]:
    """How a trace names requests."""
    return [str(request.id) for request in requests]
