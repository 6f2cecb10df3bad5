"""Wrong versions of the fast scheduler and of its ledger: the mistakes that a fast scheduler invites."""

from simserve.engine.block_pool import Hit
from simserve.engine.plan import StepPlan
from simserve.engine.policies.vllm_v1 import VllmV1
from simserve.engine.request import DRAINING, Request
from simserve.engine.summed_ledger import SummedLedger


class RunningParentIsInvisible(SummedLedger):
    """The blocks that a parent writes while it runs cannot be hit by its child."""

    def add(self, request: Request) -> None:
        branches = [branch for branch, _ in request.path[:-1]]
        before = [branch.shared for branch in branches]
        super().add(request)
        for branch, shared in zip(branches, before, strict=True):
            branch.shared = shared

    def begin_sharing(self, owner: Request) -> None:
        pass


class StarvedDecodeIsOrdinary(SummedLedger):
    """A decode that got nothing in a step goes on as if it had never had a token in flight."""

    def starve(self, plan: StepPlan, request: Request) -> None:
        if not self.config.async_scheduling:
            super().starve(plan, request)
            return
        remaining = request.last_clock - self.decoding.clock
        self.decoding.leave(request)
        self.decoding.clock += 1
        self.decoding.join(request, request.num_computed_tokens, remaining)
        self.decoding.clock -= 1


class StarvedDecodeLosesItsToken(SummedLedger):
    """The token in flight of a decode that got nothing in a step never arrives."""

    def starve(self, plan: StepPlan, request: Request) -> None:
        in_flight, self.in_flight = self.in_flight, None
        super().starve(plan, request)
        self.in_flight = in_flight


class RunGoesOnBehindALiveParent(VllmV1):
    """A run does not end where a blocked head may hit what its running parent writes."""

    def steps_ahead(self, plan: StepPlan, enough: int = 1) -> int:
        shared, self.books.shared_decodes = self.books.shared_decodes, {}
        num_steps = super().steps_ahead(plan, enough)
        self.books.shared_decodes = shared
        return num_steps


class RunGoesOnWithoutBlocks(VllmV1):
    """A run does not end where blocks run out."""

    def steps_ahead(self, plan: StepPlan, enough: int = 1) -> int:
        num_free, self.books.pool.num_free = self.books.pool.num_free, 1 << 40
        num_steps = super().steps_ahead(plan, enough)
        self.books.pool.num_free = num_free
        return num_steps


class RunGoesOnPastAFinish(VllmV1):
    """With asynchronous scheduling a run begins although blocks and seats come free within the next step."""

    def steps_ahead(self, plan: StepPlan, enough: int = 1) -> int:
        finishing, plan.finishing = plan.finishing, []
        num_steps = super().steps_ahead(plan, enough)
        plan.finishing = finishing
        return num_steps


class RunGoesOnWithAHeadThatFits(VllmV1):
    """A run does not end although the head of the queue might be admitted."""

    def steps_ahead(self, plan: StepPlan, enough: int = 1) -> int:
        self.books.head.is_blocked = True
        tried, self.books.head.tried = self.books.head.tried, self.books.pool.version
        num_steps = super().steps_ahead(plan, enough)
        self.books.head.tried = tried
        return num_steps


class PreemptedLosesItsTokenInFlight(SummedLedger):
    """The token in flight of a preempted request never arrives."""

    def _keep_late(self, request: Request) -> None:
        pass


class TokensInFlightAreHashed(SummedLedger):
    """With asynchronous scheduling a block is hashed in the step that fills it, as without."""

    def num_hashed_blocks(self, request: Request, ahead: int = 0) -> int:
        return super().num_hashed_blocks(request, ahead + int(self.config.async_scheduling))


class ChunksFitInAnyOrder(VllmV1):
    """Chunks are served as if the order of `running` never mattered."""

    def _fits(self, needed: int, budget: int, threshold: int) -> bool:
        shared, self.books.shared_decodes = self.books.shared_decodes, {}
        fits = super()._fits(needed, budget, threshold)
        self.books.shared_decodes = shared
        return fits


class BlockedHeadIsNotLookedUpAgain(VllmV1):
    """A head that was blocked stays so though blocks came free or text was entered."""

    def schedule(self) -> StepPlan:
        head = self.books.head
        head.version = self.books.pool.version
        return super().schedule()


class WatermarkCountsOnAnEmptyBatch(SummedLedger):
    """The watermark keeps the first request out of an empty engine."""

    def has_room(self, request: Request, hit: Hit, num_tokens: int) -> bool:
        num_blocks = -(-request.num_tokens // self.config.block_size)
        if not self.running and num_blocks + self._watermark_blocks > self.pool.num_free:
            return False
        return super().has_room(request, hit, num_tokens)


class FreeHitsCountTwice(SummedLedger):
    """What a head hits counts as free although it leaves the free queue."""

    def has_room(self, request: Request, hit: Hit, num_tokens: int) -> bool:
        return super().has_room(request, Hit(hit.pieces, hit.num_blocks, 0), num_tokens)


class LastTokenGetsKv(SummedLedger):
    """The last token of an answer gets KV, and so may fill a block."""

    def drain(self, request: Request) -> None:
        super().drain(request)
        request.num_computed_tokens += 1


class DroppedTokenIsHashed(SummedLedger):
    """The last token in flight of a request that is aborted still fills and hashes its block."""

    def abort(self, request: Request) -> None:
        if request.state is DRAINING:
            request.num_hashed_blocks = request.num_computed_tokens // self.block_size
        super().abort(request)


LEDGERS = [
    RunningParentIsInvisible,
    StarvedDecodeIsOrdinary,
    StarvedDecodeLosesItsToken,
    PreemptedLosesItsTokenInFlight,
    TokensInFlightAreHashed,
    WatermarkCountsOnAnEmptyBatch,
    FreeHitsCountTwice,
    LastTokenGetsKv,
    DroppedTokenIsHashed,
]
POLICIES = [
    RunGoesOnBehindALiveParent,
    RunGoesOnWithoutBlocks,
    RunGoesOnPastAFinish,
    RunGoesOnWithAHeadThatFits,
    ChunksFitInAnyOrder,
    BlockedHeadIsNotLookedUpAgain,
]
