"""Wrong versions of the fast scheduler, each with one of the mistakes that a fast scheduler invites."""

from simserve.engine.block_pool import Hit
from simserve.engine.plan import StepPlan
from simserve.engine.request import DRAINING, Request
from simserve.engine.scheduler import Scheduler


class RunningParentIsInvisible(Scheduler):
    """The blocks that a parent writes while it runs cannot be hit by its child."""

    def add(self, request: Request) -> None:
        branches = [branch for branch, _ in request.path[:-1]]
        before = [branch.shared for branch in branches]
        super().add(request)
        for branch, shared in zip(branches, before, strict=True):
            branch.shared = shared

    def _begin_sharing(self, owner: Request) -> None:
        pass


class StarvedDecodeIsOrdinary(Scheduler):
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


class StarvedDecodeLosesItsToken(Scheduler):
    """The token in flight of a decode that got nothing in a step never arrives."""

    def starve(self, plan: StepPlan, request: Request) -> None:
        in_flight, self._in_flight = self._in_flight, None
        super().starve(plan, request)
        self._in_flight = in_flight


class RunGoesOnBehindALiveParent(Scheduler):
    """A run does not end where a blocked head may hit what its running parent writes."""

    def steps_ahead(self, plan: StepPlan) -> int:
        shared, self.shared_decodes = self.shared_decodes, {}
        num_steps = super().steps_ahead(plan)
        self.shared_decodes = shared
        return num_steps


class RunGoesOnWithoutBlocks(Scheduler):
    """A run does not end where blocks run out."""

    def steps_ahead(self, plan: StepPlan) -> int:
        num_free, self.pool.num_free = self.pool.num_free, 1 << 40
        num_steps = super().steps_ahead(plan)
        self.pool.num_free = num_free
        return num_steps


class RunGoesOnPastAFinish(Scheduler):
    """With asynchronous scheduling a run begins although blocks and seats come free within the next step."""

    def steps_ahead(self, plan: StepPlan) -> int:
        finishing, plan.finishing = plan.finishing, []
        num_steps = super().steps_ahead(plan)
        plan.finishing = finishing
        return num_steps


class RunGoesOnWithAHeadThatFits(Scheduler):
    """A run does not end although the head of the queue might be admitted."""

    def steps_ahead(self, plan: StepPlan) -> int:
        self._head_stays_blocked = True
        tested, self._tested_version = self._tested_version, self.pool.version
        num_steps = super().steps_ahead(plan)
        self._tested_version = tested
        return num_steps


class PreemptedLosesItsTokenInFlight(Scheduler):
    """The token in flight of a preempted request never arrives."""

    def _keep_late(self, request: Request) -> None:
        pass


class TokensInFlightAreHashed(Scheduler):
    """With asynchronous scheduling a block is hashed in the step that fills it, as without."""

    def num_hashed_blocks(self, request: Request, ahead: int = 0) -> int:
        return super().num_hashed_blocks(request, ahead + int(self.config.async_scheduling))


class ChunksFitInAnyOrder(Scheduler):
    """Chunks are served as if the order of `running` never mattered."""

    def _fits(self, needed: int, budget: int, threshold: int) -> bool:
        shared, self.shared_decodes = self.shared_decodes, {}
        fits = super()._fits(needed, budget, threshold)
        self.shared_decodes = shared
        return fits


class BlockedHeadIsNotLookedUpAgain(Scheduler):
    """A head that was blocked stays so though blocks came free or text was entered."""

    def _admit(self, plan: StepPlan, budget: int, threshold: int) -> None:
        self._blocked_version = self.pool.version
        super()._admit(plan, budget, threshold)


class WatermarkCountsOnAnEmptyBatch(Scheduler):
    """The watermark keeps the first request out of an empty engine."""

    def _admissible_tokens(self, request: Request, hit: Hit, budget: int, threshold: int) -> int:
        num_blocks = -(-request.num_tokens // self.config.block_size)
        if not self.running and num_blocks + self._watermark_blocks > self.pool.num_free:
            return 0
        return super()._admissible_tokens(request, hit, budget, threshold)


class FreeHitsCountTwice(Scheduler):
    """What a head hits counts as free although it leaves the free queue."""

    def _admissible_tokens(self, request: Request, hit: Hit, budget: int, threshold: int) -> int:
        return super()._admissible_tokens(request, Hit(hit.pieces, hit.num_blocks, 0), budget, threshold)


class LastTokenGetsKv(Scheduler):
    """The last token of an answer gets KV, and so may fill a block."""

    def _drain(self, request: Request) -> None:
        super()._drain(request)
        request.num_computed_tokens += 1


class DroppedTokenIsHashed(Scheduler):
    """The last token in flight of a request that is aborted still fills and hashes its block."""

    def abort(self, request: Request) -> None:
        if request.state is DRAINING:
            request.num_hashed_blocks = request.num_computed_tokens // self.block_size
        super().abort(request)


ALL = [
    RunningParentIsInvisible,
    StarvedDecodeIsOrdinary,
    StarvedDecodeLosesItsToken,
    RunGoesOnBehindALiveParent,
    RunGoesOnWithoutBlocks,
    RunGoesOnPastAFinish,
    RunGoesOnWithAHeadThatFits,
    PreemptedLosesItsTokenInFlight,
    TokensInFlightAreHashed,
    ChunksFitInAnyOrder,
    BlockedHeadIsNotLookedUpAgain,
    WatermarkCountsOnAnEmptyBatch,
    FreeHitsCountTwice,
    LastTokenGetsKv,
    DroppedTokenIsHashed,
]
