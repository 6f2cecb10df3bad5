"""One replica as one SimPy process: the only one that touches its scheduler, its KV blocks and its log.

The process sleeps until the next step is due, decides it, asks the cost model how long it takes, and goes on. Time is
in ticks. With synchronous scheduling a step begins when the one before it has ended. With asynchronous scheduling,
vLLM's default, two steps are in flight (A: decided, E: the GPU is done, k: number of the step):

    A_k = max(A_{k-1} + cpu_{k-1}, E_{k-2} + update)        E_k = max(E_{k-1} + gpu_k, A_k + latency_k)

and the engine knows the tokens of step k at max(E_k, A_{k+1} + cpu_{k+1}). Whatever arrives at exactly A_k is seen by
step k. While nothing outside can happen before the next step, it is taken at once, without an event.
"""

from collections.abc import Callable, Generator

from simpy import Event

from simserve.cost.step import DecodeCost, StepCost
from simserve.engine.census import Census
from simserve.engine.clock import Clock
from simserve.engine.counters import Counters
from simserve.engine.equal_steps import Batch, EqualSteps, equal_steps
from simserve.engine.instant import DECIDE, Due
from simserve.engine.plan import StepPlan
from simserve.engine.progress import progress
from simserve.engine.request import FINISHED, Request
from simserve.engine.scheduler import Scheduler
from simserve.engine.step_log import StepLog

SHORTEST_RUN = 4
"""Fewer equal steps than this are cheaper taken one by one."""

Listener = Callable[[Request, int], None]
"""Told of each finished request, and of the tick at which the engine will know of it: now or later."""


class Replica:
    """A scheduler and a GPU, fed by `receive`.

    `skip_equal_steps` takes runs of equal steps in one sleep; nothing that is recorded depends on it. `listener` is
    told of finished requests; what it does about them must lie at the tick it is told, or later. `alone` promises that
    all other events of the environment concern this replica, which saves waking up twice.
    """

    def __init__(
        self,
        env: Clock,
        scheduler: Scheduler,
        cost: StepCost,
        *,
        skip_equal_steps: bool = True,
        listener: Listener | None = None,
        alone: bool = False,
    ) -> None:
        self.env = env
        self.scheduler = scheduler
        self.cost = cost
        self.log = StepLog()
        self.num_skipped_steps = 0
        self._keeps_first_tokens = False
        """Whether someone will ask when the first token of a request was known."""
        self._listener = listener
        self._asynchronous = scheduler.config.async_scheduling
        self._skip = skip_equal_steps
        self._alone = alone
        self._passing = False
        """Whether arrivals pass during a run that is not slept through: its end is known already."""
        self._uneven = cost.uneven
        if cost.uneven is not None:
            scheduler.decoding.lengths = []
        self._decode_costs: dict[int, DecodeCost] = {}
        self._unwritten_preemptions = 0
        """Preemptions of steps that scheduled nothing and so have no row: they count in the next row."""
        self._census: Census | None = None
        """Who counts its requests, if anyone asks for their number, and its place among those counted."""
        self._place = 0
        self._ready = 0
        """When the next step can be decided: A_{k+1}."""
        self._end = 0
        """When the GPU finishes the step decided last: E_k."""
        self._pace = 0
        """GPU time of the last pure-decode step: too short a run is not worth being worked out."""
        self._in_flight: StepPlan | None = None
        """Asynchronous: the plan decided last, if it has tokens."""
        self._run: EqualSteps | None = None
        self._leaving: list[Request] = []
        """Requests whose clients have left since the last step was decided."""
        self._joined: list[int] = []
        """When requests joined `waiting` during the run that is slept through."""
        self._idle = False
        self._stalled = False
        """Nothing runs and the head of `waiting` cannot be admitted: only an arrival can change that."""
        self._wake = Event(env)
        self._start()

    # -- what the cluster sees -----------------------------------------------------------------------------------------

    def receive(self, request: Request) -> None:
        """A request reaches the engine now."""
        now = int(self.env.now)
        self.expect(1)
        self.scheduler.add(request)
        if self._run is not None:
            self._joined.append(now)
            if self._passing or self.scheduler.waiting[0] is not request:
                return  # nothing that it could change before the run ends
        self.disturb()

    def abort(self, request: Request) -> None:
        """The engine hears now that a client has left. When it next decides, blocks and seat of the request are free;
        tokens that are known by then were generated, one in flight is dropped.
        """
        if request.state is not FINISHED:
            self._leaving.append(request)
            self.disturb()

    def disturb(self) -> None:
        """Something outside has changed what the next step may do: decide it when one is next due, run or no run."""
        now = int(self.env.now)
        if self._idle:
            self._idle = self._stalled = False
            self._wake_at(max(self._ready, now))
        elif self._run is not None:
            self._wake_at(self._run.boundary_reaching(now))

    def counters(self) -> Counters:
        """What its scheduler and it have counted; see `Scheduler.counters`."""
        return self.scheduler.counters() | {"skipped_steps": self.num_skipped_steps}

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

    @property
    def decides_at(self) -> int:
        """While a step is being decided: the tick at which it is, now or later."""
        return max(self._ready, int(self.env.now))

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
        plan, run = self._plan_in_flight(), self._run
        if plan is None or plan.index != request.first_step:
            known = request.first_token
        elif run is not None:
            known = max(self._end, run.start + run.batch.cost.cpu)
        else:
            return None
        return known if 0 <= known <= self.env.now else None

    def is_prefilling(self, request: Request) -> bool:
        """Whether a request that was received had no first token before this instant, and has not been let go of."""
        if request.first_step < 0:
            return request.state is not FINISHED
        known = self.knows_first_token(request)
        return known is None or known >= self.env.now

    def close(self, horizon: int) -> None:
        """The simulation ends at `horizon`: take the steps decided before it, and their tokens.

        Those of the last one are known as if nothing followed it, hence not before the engine could decide again.
        """
        if self._run is not None:
            run, self._run = self._run, None
            self._take(run, run.steps_before(horizon))
        if self._in_flight is not None:
            self._take_tokens(max(self._end, self._ready))

    # -- the process ---------------------------------------------------------------------------------------------------

    def _start(self) -> None:
        """Begin to serve; a replica that others step has no process of its own."""
        self.env.process(self._serve())

    def _serve(self) -> Generator[Event, None, None]:
        env, scheduler = self.env, self.scheduler
        while True:
            at = self._ready
            if self._in_flight is None and (self._stalled or not scheduler.has_requests):
                if self._alone and env.pass_next_arrival():
                    self._stalled = False
                    at = max(at, int(env.now))
                    if not self._pass_until(at):
                        yield self._sleep_until(at)
                else:
                    self._idle = True
                    self._wake = Event(env)
                    yield self._wake
                    at = max(at, int(env.now))
                self._part()
            elif at >= env.peek():
                if not self._pass_until(at):
                    yield self._sleep_until(at)
                self._part()
            plan = self._step(at)
            if self._skip and self._ready + (SHORTEST_RUN - 1) * self._pace < env.peek():
                run = self._equal_steps(plan)
                if run is not None:
                    yield from self._skip_over(run)
                    self._part()

    def _pass_until(self, at: int) -> bool:
        """Whether nothing but arrivals would happen by tick `at`, which a lone replica lets happen without sleeping."""
        return self._alone and self.env.pass_arrivals(at)

    def _sleep_until(self, at: int) -> Event:
        self._wake = Due(self.env, at, DECIDE)
        return self._wake

    def _plan_in_flight(self) -> StepPlan | None:
        return self._in_flight

    def _part(self) -> None:
        """Let those go whose clients have left; what they were given is written down. Any abort has woken the process,
        so it is enough to look after a sleep.
        """
        if not self._leaving:
            return
        scheduler, plan = self.scheduler, self._plan_in_flight()
        for request in self._leaving:
            if request.state is not FINISHED:
                self.log.aborts.fromlist(progress(request, scheduler, plan))
                scheduler.abort(request)
                self.expect(-1)
        self._leaving.clear()

    def _wake_at(self, at: int) -> None:
        """Wake the sleeping process at another time than it planned: the event it waits for is exchanged."""
        planned = self._wake
        self._wake = Due(self.env, at, DECIDE)
        self._wake.callbacks, planned.callbacks = planned.callbacks, []

    # -- one step ------------------------------------------------------------------------------------------------------

    def _step(self, at: int) -> StepPlan:
        """Decide the step that is due at `at`, and take in the tokens that are due."""
        scheduler = self.scheduler
        plan = scheduler.schedule()
        num_decodes = plan.num_decodes
        context = plan.context if self._uneven is None else self._balanced_context(plan)
        if plan.chunks:
            chunks = [(chunk.num_tokens, chunk.history) for chunk in plan.chunks]
            cpu, gpu, latency, padded = self.cost.ticks(chunks, num_decodes, context, num_decodes + len(chunks))
        elif num_decodes:
            cpu, gpu, latency, padded = self._decode_cost(num_decodes).ticks(context)
            self._pace = gpu
        else:
            self._pass_over(plan, at)
            return plan
        in_flight, end = self._in_flight, at + latency
        if self._asynchronous:
            end_before, decided = self._end, at + cpu
            known = end_before if end_before > decided else decided
            ready = end_before + self.cost.update
            self._ready = ready if ready > decided else decided
            if end_before + gpu > end:  # noqa: PLR1730 (max() takes three times as long)
                end = end_before + gpu
            if in_flight is not None:
                self.log.tokens_known(known)
            self._in_flight = plan
        else:
            in_flight, known, self._ready = plan, end, end
        self._end = end
        self.log.add_step(
            [
                1,
                at,
                end,
                end,
                0,
                0,
                plan.num_prefill_tokens,
                num_decodes,
                plan.context,
                len(scheduler.running),
                len(scheduler.waiting),
                scheduler.pool.num_free,
                len(plan.preempted) + self._unwritten_preemptions,
                gpu,
                cpu,
                padded,
            ]
        )
        self._unwritten_preemptions = 0
        if in_flight is not None:
            self._complete(in_flight, known)
        for request, step_before in plan.gaps:
            self.log.gaps.fromlist([int(request.id), step_before, plan.index])
        return plan

    def _balanced_context(self, plan: StepPlan) -> int:
        """The context by which a step is costed."""
        if self._uneven is None or not plan.num_decodes:
            return plan.context
        return self._uneven.balanced(plan.num_decodes, plan.context, plan.longest, mixed=bool(plan.chunks))

    def _pass_over(self, plan: StepPlan, at: int) -> None:
        """A step without tokens takes no time; with asynchronous scheduling the engine waits for the one in flight."""
        self._unwritten_preemptions += len(plan.preempted)
        if self._in_flight is not None:
            self._take_tokens(max(self._end, at))
        else:
            self._stalled = not plan.preempted
        self._ready = max(at, self._end + self.cost.update) if self._asynchronous else at

    def _decode_cost(self, num_decodes: int) -> DecodeCost:
        cost = self._decode_costs.get(num_decodes)
        if cost is None:
            cost = self._decode_costs[num_decodes] = self.cost.decode(num_decodes)
        return cost

    def _complete(self, plan: StepPlan, known: int) -> None:
        """The tokens of a step are there."""
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

    def _take_tokens(self, known: int) -> None:
        """The tokens of the plan in flight are there."""
        plan, self._in_flight = self._in_flight, None
        assert plan is not None
        self.log.tokens_known(known)
        self._complete(plan, known)

    # -- runs of equal steps -------------------------------------------------------------------------------------------

    def _equal_steps(self, plan: StepPlan) -> EqualSteps | None:
        """The run of equal steps that follows, if it is long enough to be worth it."""
        num_steps = self.scheduler.steps_ahead(plan, SHORTEST_RUN)
        if num_steps < SHORTEST_RUN:
            return None
        decoding = self.scheduler.decoding
        cost = self._decode_cost(decoding.count)
        context = decoding.context + decoding.count
        if self._uneven is not None:
            longest = decoding.longest() + 1
            cost = cost.shifted(self._uneven.balanced(decoding.count, context, longest, mixed=False) - context)
        update = self.cost.update if self._asynchronous else None
        batch = Batch(decoding.count, context, cost)
        run = equal_steps(batch, num_steps, self._ready, self._end, update)
        if run is None or run.num_steps < SHORTEST_RUN or run.boundaries.at(SHORTEST_RUN - 2) >= self.env.peek():
            return None
        return run

    def _skip_over(self, run: EqualSteps) -> Generator[Event, None, None]:
        """Sleep to the end of a run, or until an arrival interrupts it; not at all if nothing can happen before."""
        num_steps, peek = run.num_steps, self.env.peek()
        last = run.boundaries.at(num_steps - 1)
        self._joined.clear()
        if last >= peek:
            self._run = run
            until = run.boundary_reaching(int(peek)) if self._alone else last
            self._passing = True
            passed = self._pass_until(until)
            self._passing = False
            if not passed:
                yield self._sleep_until(until)
                until = int(self.env.now)
            self._run = None
            num_steps = run.steps_before(until)
        self._take(run, num_steps)

    def _num_waiting(self, at: int) -> int:
        """How many waited at tick `at` of the run just slept through."""
        return len(self.scheduler.waiting) - sum(joined > at for joined in self._joined)

    def _take(self, run: EqualSteps, num_steps: int) -> None:
        """The first `num_steps` steps of a run have passed."""
        if not num_steps:
            return
        if self._in_flight is not None:
            self._take_tokens(max(self._end, run.start + run.batch.cost.cpu))
        scheduler, log = self.scheduler, self.log
        counts = len(scheduler.running), self._num_waiting(run.start)
        last_blocks = scheduler.decoding.blocks_of_step(num_steps - 1)
        plan = scheduler.repeat(num_steps)
        self.num_skipped_steps += num_steps - 1
        self._ready = run.boundaries.at(num_steps - 1)
        self._end = end = run.ends.at(num_steps - 1)
        free = scheduler.pool.num_free
        if self._asynchronous:
            self._in_flight = plan
            if num_steps > 1:  # only the step after the last tells when its tokens are known
                log.add_step(run.row(0, num_steps - 1, counts, free + last_blocks))
                counts = counts[0], self._num_waiting(run.decided(num_steps - 1))
                log.add_step(run.row(num_steps - 1, num_steps, counts, free))
                return
        log.add_step(run.row(0, num_steps, counts, free))
        if not self._asynchronous:
            self._complete(plan, end)
