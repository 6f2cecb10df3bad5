"""Replicas that share experts: the data-parallel ranks of one engine, which take every step together.

Each layer of a mixture gathers the tokens of all ranks, and before a step the ranks agree on its size, so that none
gets ahead of another (vLLM 0.32, v1/engine/core.py, DPEngineCoreProc, and v1/worker/dp_utils.py). A step of the group
is one step, with the CPU and GPU times of `simserve.cost.peers`, decided by all ranks at once:

    A_k = max(A_{k-1} + cpu_{k-1}, E_{k-2} + update)        E_k = max(E_{k-1} + gpu_k, A_k + latency_k)

A rank without anybody to serve joins with a dummy batch of one token, until all are idle. Where its last tokens are
still in flight, it first waits for them, and the others for it. So a request that reaches an idle rank waits for the
step that the others are in.
"""

from collections.abc import Generator
from typing import NamedTuple

from simpy import Event

from simserve.cost.peers import PeerCost
from simserve.cost.step import StepCost, StepTime
from simserve.engine.clock import Clock
from simserve.engine.counters import Counters
from simserve.engine.instant import DECIDE, Due
from simserve.engine.pace.doorbell import Doorbell
from simserve.engine.pace.one_ahead import OneAhead
from simserve.engine.pace.server import Server
from simserve.engine.plan import StepPlan
from simserve.engine.step_log import step_row


class Decided(NamedTuple):
    """A step of one rank, its time if it were that of all ranks, and its tokens."""

    plan: StepPlan
    time: StepTime
    tokens: int


class JointStep(NamedTuple):
    """A step that all ranks take: decided at `at`, it ends at `end`; the next one can be decided at `ready`."""

    time: StepTime
    at: int
    end: int
    ready: int


class Rank(OneAhead):
    """One rank: a scheduler and a GPU that step when the group `group` does."""

    def __init__(self, cost: StepCost, group: "Lockstep") -> None:
        super().__init__(cost)
        self.group = group
        self._num_dummy_steps = 0
        """Dummy batches, which have no row in the log."""
        self._waited = 0
        """Ticks that its GPU waited for those of its peers."""

    def begin(self, server: Server) -> None:
        """The replica is built: it steps when its group does."""
        super().begin(server)
        self.group.join(self)

    def counters(self) -> Counters:
        """Its dummy batches, and the ticks that its GPU waited for those of its peers."""
        return super().counters() | {"dummy_steps": self._num_dummy_steps, "waited_for_peers": self._waited}

    def disturb(self) -> None:
        """Something outside has changed what the next step may do."""
        self._stalled = False
        self.group.disturb()

    @property
    def has_work(self) -> bool:
        """Whether this rank keeps its group going."""
        return self._in_flight is not None or (self.scheduler.has_requests and not self._stalled)

    @property
    def has_tokens_in_flight(self) -> bool:
        """Whether the tokens of the step before are not known yet."""
        return self._in_flight is not None

    def decide(self) -> Decided:
        """Decide a step; what it would take if all ranks had as many tokens. Without anybody it is a dummy batch."""
        self.server.part()
        plan = self.scheduler.schedule()
        if plan.is_empty:
            return Decided(plan, StepTime(*self.decode_cost(1).ticks(1)), 1)
        chunks = [(chunk.num_tokens, chunk.history) for chunk in plan.chunks]
        context = self.balanced_context(plan)
        time = self.cost.ticks(chunks, plan.num_decodes, context, plan.num_decodes + len(chunks))
        return Decided(plan, StepTime(*time), plan.num_prefill_tokens + plan.num_decodes)

    def decide_again(self, plan: StepPlan, at: int) -> int:
        """All ranks have decided for nobody; returns when this one can decide again."""
        self.pass_over(plan, at)
        return self._ready

    def run(self, plan: StepPlan, gpu: int, step: JointStep) -> None:
        """Write down this rank's part of a step, of which its GPU computes `gpu` ticks, and take in the tokens that are
        due.
        """
        time, at, end, ready = step
        if plan.is_empty:
            self._num_dummy_steps += 1
            self.pass_over(plan, at)
            self._end, self._ready = end, ready
            return
        row = step_row(plan, self.ledger, self.num_preempted(plan), at, end, gpu, time.cpu, time.padded)
        if self._asynchronous:
            if self._in_flight is not None:
                self.take_tokens(max(self._end, at + time.cpu))
            self._in_flight, self._row = plan, row
        else:
            self.log.add_step(row)
            self.server.complete(plan, end)
        self._end, self._ready = end, ready
        self._waited += time.gpu - gpu
        self.log.add_gaps(plan)


class Lockstep:
    """A group of ranks as one SimPy process, which takes their steps."""

    def __init__(self, env: Clock, cost: StepCost, *, asynchronous: bool) -> None:
        self.env = env
        self.cost = PeerCost(cost)
        self._ranks: list[Rank] = []
        self._update = cost.update
        self._asynchronous = asynchronous
        self._ready = 0
        """When the next step can be decided."""
        self._end = 0
        """When the GPUs finish the step decided last."""
        self._bell = Doorbell(env)
        env.process(self._serve())

    def join(self, rank: Rank) -> None:
        """One rank more, before the first request comes."""
        self._ranks.append(rank)

    def disturb(self) -> None:
        """There is something to do again; a group that is not idle sees it when it next decides."""
        if self._bell.is_idle:
            self._bell.ring(max(self._ready, int(self.env.now)))

    def _serve(self) -> Generator[Event, None, None]:
        env = self.env
        while True:
            at = self._ready
            if not any(rank.has_work for rank in self._ranks):
                yield self._bell.idle()
                at = max(at, int(env.now))
            elif at >= env.peek():
                yield Due(env, at, DECIDE)
            self._step(at)

    def _step(self, at: int) -> None:
        """All ranks decide the step that is due at `at`, and take it."""
        decided = [rank.decide() for rank in self._ranks]
        if all(each.plan.is_empty for each in decided):
            self._ready = max(rank.decide_again(each.plan, at) for rank, each in zip(self._ranks, decided, strict=True))
            return
        time, gpus = self.cost.step([each.time for each in decided], [each.tokens for each in decided])
        end = ready = at + time.latency
        if self._asynchronous:
            known = self._end + self._update
            end, ready = max(end, self._end + time.gpu), max(at + time.cpu, known)
            for rank, (plan, dummy, _) in zip(self._ranks, decided, strict=True):
                if plan.is_empty and rank.has_tokens_in_flight:
                    end, ready = max(end, known + dummy.latency), max(ready, known + dummy.cpu)
        self._end, self._ready = end, ready
        step = JointStep(time, at, end, ready)
        for rank, each, gpu in zip(self._ranks, decided, gpus, strict=True):
            rank.run(each.plan, gpu, step)
