"""Time in steps, one process a replica, and runs of equal steps in closed form: `run.resolution: steps` and `runs`.

The process sleeps until the next step is due, decides it, asks the cost model how long it takes, and goes on. While
nothing outside can happen before the next step, it is taken at once, without an event.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from simserve.engine.equal_steps import Batch, EqualSteps, equal_steps
from simserve.engine.pace.doorbell import Doorbell
from simserve.engine.pace.one_ahead import OneAhead
from simserve.engine.step_log import FIRST_TOKEN_TIME, step_row

if TYPE_CHECKING:
    from collections.abc import Generator

    from simpy import Event

    from simserve.cost.step import StepCost
    from simserve.engine.counters import Counters
    from simserve.engine.pace.server import Server
    from simserve.engine.plan import StepPlan
    from simserve.engine.request import Request

SHORTEST_RUN = 4
"""Fewer equal steps than this are cheaper taken one by one."""


class Steps(OneAhead):
    """Steps one by one. `skip_equal_steps` takes runs of equal ones in one sleep; nothing that is recorded depends on
    it. `alone` promises that all other events of the environment concern this replica: it wakes up once a run, not
    twice, and lets arrivals that are fed to the clock pass.
    """

    def __init__(self, cost: StepCost, *, skip_equal_steps: bool = True, alone: bool = False) -> None:
        super().__init__(cost)
        self._skip = skip_equal_steps
        self._alone = alone
        self._num_skipped_steps = 0
        self._gpu = 0
        """GPU time of the last pure-decode step: too short a run is not worth being worked out."""
        self._run: EqualSteps | None = None
        self._joined: list[int] = []
        """When requests joined `waiting` during the run that is slept through."""
        self._passing = False
        """Whether arrivals pass during a run that is not slept through: its end is known already."""

    def begin(self, server: Server) -> None:
        """The replica is built: begin to serve what it receives."""
        super().begin(server)
        self._bell = Doorbell(server.env)
        server.env.process(self._serve())

    def counters(self) -> Counters:
        """Steps that were taken in closed form."""
        return {"skipped_steps": self._num_skipped_steps}

    # -- what happens outside ------------------------------------------------------------------------------------------

    def joined(self, request: Request) -> None:
        """A request has reached the scheduler."""
        if self._run is not None:
            self._joined.append(int(self.env.now))
            if self._passing or self.ledger.first_waiting() is not request:
                return  # nothing that it could change before the run ends
        elif not self._bell.is_idle:
            return
        self.disturb()

    def disturb(self) -> None:
        """Something outside has changed what the next step may do: decide it when one is next due, run or no run."""
        now = int(self.env.now)
        if self._bell.is_idle:
            self._stalled = False
            self._bell.ring(max(self._ready, now))
        elif self._run is not None:
            self._bell.ring(self._run.boundary_reaching(now))

    def tokens_of_flight_known(self) -> int | None:
        """When the tokens of the plan in flight are known, if that is certain: a run that follows it says so."""
        run = self._run
        return None if run is None else max(self._end, run.start + run.batch.cost.cpu)

    def close(self, horizon: int) -> None:
        """The simulation ends at tick `horizon`: take the steps decided before it, and their tokens."""
        if self._run is not None:
            run, self._run = self._run, None
            self._take(run, run.steps_before(horizon))
        super().close(horizon)

    # -- the process ---------------------------------------------------------------------------------------------------

    def _serve(self) -> Generator[Event, None, None]:
        env, scheduler, server, bell = self.env, self.scheduler, self.server, self._bell
        while True:
            at = self._ready
            if self._in_flight is None and (self._stalled or not scheduler.has_requests):
                if self._alone and env.pass_next_arrival():
                    self._stalled = False
                    at = max(at, int(env.now))
                    if not self._pass_until(at):
                        yield bell.sleep_until(at)
                else:
                    yield bell.idle()
                    at = max(at, int(env.now))
                server.part()
            elif at >= env.peek():
                if not self._pass_until(at):
                    yield bell.sleep_until(at)
                server.part()
            plan = self._step(at)
            if self._skip and self._ready + (SHORTEST_RUN - 1) * self._gpu < env.peek():
                run = self._equal_steps(plan)
                if run is not None:
                    yield from self._skip_over(run)
                    server.part()

    def _pass_until(self, at: int) -> bool:
        """Whether nothing but arrivals would happen by tick `at`, which a lone replica lets happen without sleeping."""
        return self._alone and self.env.pass_arrivals(at)

    # -- one step ------------------------------------------------------------------------------------------------------

    def _step(self, at: int) -> StepPlan:
        """Decide the step that is due at `at`, and take in the tokens that are due."""
        plan = self.scheduler.schedule()
        num_decodes = plan.num_decodes
        context = plan.context if self._uneven is None else self.balanced_context(plan)
        if plan.chunks:
            chunks = [(chunk.num_tokens, chunk.history) for chunk in plan.chunks]
            cpu, gpu, latency, padded = self.cost.ticks(chunks, num_decodes, context, num_decodes + len(chunks))
        elif num_decodes:
            cpu, gpu, latency, padded = self.decode_cost(num_decodes).ticks(context)
            self._gpu = gpu
        else:
            self.pass_over(plan, at)
            return plan
        end_before, end = self._end, at + latency
        if self._asynchronous and end_before + gpu > end:
            end = end_before + gpu
        self._end = end
        preempted = self.num_preempted(plan) if plan.preempted or self._unwritten_preemptions else 0
        row = step_row(plan, self.ledger, preempted, at, end, gpu, cpu, padded)
        if self._asynchronous:
            decided, ready = at + cpu, end_before + self.cost.update
            self._ready = ready if ready > decided else decided
            due, row_due, known = self._in_flight, self._row, end_before if end_before > decided else decided
            self._in_flight, self._row = plan, row
            if due is not None:  # as `take_tokens`, which is one call more for each step
                row_due[FIRST_TOKEN_TIME] = known
                self.log.add_step(row_due)
                self.server.complete(due, known)
        else:
            self._ready = end
            self.log.add_step(row)
            self.server.complete(plan, end)
        if plan.gaps:
            self.log.add_gaps(plan)
        return plan

    # -- runs of equal steps -------------------------------------------------------------------------------------------

    def _equal_steps(self, plan: StepPlan) -> EqualSteps | None:
        """The run of equal steps that follows, if it is long enough to be worth it."""
        num_steps = self.scheduler.steps_ahead(plan, SHORTEST_RUN)
        if num_steps < SHORTEST_RUN:
            return None
        decoding = self.scheduler.decoding
        assert decoding is not None
        cost = self.decode_cost(decoding.count)
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
                yield self._bell.sleep_until(until)
                until = int(self.env.now)
            self._run = None
            num_steps = run.steps_before(until)
        self._take(run, num_steps)

    def _num_waiting(self, at: int) -> int:
        """How many waited at tick `at` of the run just slept through."""
        return len(self.ledger.waiting) - sum(joined > at for joined in self._joined)

    def _take(self, run: EqualSteps, num_steps: int) -> None:
        """The first `num_steps` steps of a run have passed."""
        if not num_steps:
            return
        if self._in_flight is not None:
            self.take_tokens(max(self._end, run.start + run.batch.cost.cpu))
        ledger, log, decoding = self.ledger, self.log, self.scheduler.decoding
        assert decoding is not None
        counts = len(ledger.running), self._num_waiting(run.start)
        last_blocks = decoding.blocks_of_step(num_steps - 1)
        plan = self.scheduler.repeat(num_steps)
        self._num_skipped_steps += num_steps - 1
        self._ready = run.boundaries.at(num_steps - 1)
        self._end = end = run.ends.at(num_steps - 1)
        free = ledger.pool.num_free
        if self._asynchronous:
            if num_steps > 1:  # only the step after the last tells when its tokens are known
                log.add_step(run.row(0, num_steps - 1, counts, free + last_blocks))
                counts = counts[0], self._num_waiting(run.decided(num_steps - 1))
            self._in_flight, self._row = plan, run.row(num_steps - 1, num_steps, counts, free)
        else:
            log.add_step(run.row(0, num_steps, counts, free))
            self.server.complete(plan, end)
