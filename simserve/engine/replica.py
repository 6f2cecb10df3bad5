"""One replica as the fleet sees it: a server that requests reach and leave. How its time passes is its pace's affair.

It alone touches its scheduler, its KV blocks and its log; `simserve.engine.pace` says when.
"""

from collections.abc import Callable

from simserve.engine.census import Census
from simserve.engine.clock import Clock
from simserve.engine.counters import Counters
from simserve.engine.pace.base import Pace
from simserve.engine.pace.server import Server
from simserve.engine.plan import StepPlan
from simserve.engine.progress import progress
from simserve.engine.request import FINISHED, Request
from simserve.engine.scheduler import Scheduler

Listener = Callable[[Request, int], None]
"""Told of each finished request, and of the tick at which the engine will know of it: now or later."""


class Replica(Server):
    """A scheduler whose steps take time as `pace` says, fed by `receive`.

    `listener` is told of finished requests; what it does about them must lie at the tick it is told, or later.
    """

    def __init__(self, env: Clock, scheduler: Scheduler, pace: Pace, *, listener: Listener | None = None) -> None:
        super().__init__(env, scheduler)
        self.pace = pace
        self._keeps_first_tokens = False
        """Whether someone will ask when the first token of a request was known."""
        self._listener = listener
        self._census: Census | None = None
        """Who counts its requests, if anyone asks for their number, and its place among those counted."""
        self._place = 0
        self._leaving: list[Request] = []
        """Requests whose clients have left since the last step was decided."""
        pace.begin(self)

    # -- requests come and go ------------------------------------------------------------------------------------------

    def receive(self, request: Request) -> None:
        """A request reaches the engine now."""
        if self._census is not None:
            self._census.add(self._place, 1)
        self.scheduler.add(request)
        self.pace.joined(request)

    def abort(self, request: Request) -> None:
        """The engine hears now that a client has left. When it next decides, blocks and seat of the request are free;
        tokens that are known by then were generated, one in flight is dropped.
        """
        if request.state is not FINISHED:
            self._leaving.append(request)
            self.pace.disturb()

    def part(self) -> None:
        """Let those go whose clients have left; what they were given is written down."""
        if not self._leaving:
            return
        scheduler, plan = self.scheduler, self.pace.plan_in_flight()
        for request in self._leaving:
            if request.state is not FINISHED:
                self.log.aborts.fromlist(progress(request, scheduler, plan))
                scheduler.abort(request)
                self.expect(-1)
        self._leaving.clear()

    def complete(self, plan: StepPlan, known: int) -> None:
        """The tokens of a step are there, known at tick `known`, now or later."""
        requests = self.scheduler.complete(plan)
        if self._keeps_first_tokens:
            for chunk in plan.chunks:
                if chunk.request.first_step == plan.index:
                    chunk.request.first_token = known
        if not requests:
            return
        finishes, step = self.log.finishes, plan.index
        for request in requests:
            finishes.fromlist(
                [
                    int(request.id),
                    request.scheduled,
                    request.first_step,
                    step,
                    request.num_cached_tokens,
                    request.num_preemptions,
                ]
            )
            if self._census is not None:
                self._census.finishes(self._place, known)
            if self._listener is not None:
                self._listener(request, known)

    def close(self, horizon: int) -> None:
        """The simulation ends at tick `horizon`: take the steps decided before it, and their tokens."""
        self.pace.close(horizon)

    # -- what others may ask -------------------------------------------------------------------------------------------

    def counters(self) -> Counters:
        """What its scheduler and its pace have counted; see `Ledger.counters`."""
        return self.scheduler.counters() | self.pace.counters()

    def be_counted(self, census: Census, place: int) -> None:
        """Tell a census of all requests, from now on; before the first one comes."""
        self._census, self._place = census, place

    def keep_first_tokens(self) -> None:
        """Remember when the first tokens of all requests are known, from now on; before the first request comes."""
        self._keeps_first_tokens = True

    def expect(self, count: int) -> None:
        """So many requests more (or fewer) will be sent here: they count as outstanding already."""
        if self._census is not None:
            self._census.add(self._place, count)

    def num_outstanding(self, now: int) -> int:
        """Requests received and not finished before tick `now`, which never falls, of a replica that is counted."""
        assert self._census is not None
        return self._census.counts(now)[self._place]

    def knows_first_token(self, request: Request) -> int | None:
        """When the engine knew the first token of a request, in ticks: now or before; None if it does not know of it.

        Of a replica that keeps first tokens. To be asked when all that is due at this tick has been decided.
        """
        if request.first_step < 0:
            return None
        plan = self.pace.plan_in_flight()
        is_in_flight = plan is not None and plan.index == request.first_step
        known = self.pace.tokens_of_flight_known() if is_in_flight else request.first_token
        return known if known is not None and 0 <= known <= self.env.now else None

    def is_prefilling(self, request: Request) -> bool:
        """Whether a request that was received had no first token before this instant, and has not been let go of."""
        if request.first_step < 0:
            return request.state is not FINISHED
        known = self.knows_first_token(request)
        return known is None or known >= self.env.now
