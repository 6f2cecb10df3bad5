"""Replays a recorded scheduler workload through simserve's own scheduler, the one every simulation uses.

Time is counted in steps, as the recorder counts it: arrivals, one schedule(), and the tokens of the oldest plan in
flight (the step's own, or with asynchronous scheduling the one before). `replay` writes down what happened in the
recorder's format: step by step, or, as simulations do by default, with each run of equal steps decided at once and
written out again.
"""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

from simserve.engine.config import SchedulerConfig
from simserve.engine.plan import StepPlan
from simserve.engine.policies.vllm_v1 import VllmV1
from simserve.engine.prefix import ENDLESS, Branch, extend
from simserve.engine.request import DECODING, FINISHED, Request
from simserve.engine.scheduler import UNLIMITED, Scheduler
from simserve.validation.observation import (
    blocks_of,
    ids,
    num_blocks_held,
    num_cached_blocks,
    num_computed_tokens,
    scheduled_tokens,
)
from simserve.validation.recording import Json, SchedulerWorkload, WorkloadConfig, WorkloadRequest


def replay(workload: SchedulerWorkload, runs: bool = False) -> Json:
    """Replay a workload; returns its trace. With `runs`, steps inside a run lack `cached_blocks`, known at its end."""
    replayed = Replay(workload)
    steps: list[Json] = []
    while not replayed.is_over:
        skipped = replayed.jump() if runs else []
        steps += skipped or [replayed.step()]
    return replayed.trace(steps)


def build_scheduler(config: WorkloadConfig) -> Scheduler:
    """The scheduler that a workload asks for."""
    return VllmV1(
        SchedulerConfig(
            max_num_seqs=config.max_num_seqs,
            max_num_batched_tokens=config.max_num_batched_tokens,
            max_model_len=config.max_model_len,
            num_gpu_blocks=config.num_gpu_blocks,
            block_size=config.block_size,
            enable_prefix_caching=config.enable_prefix_caching,
            enable_chunked_prefill=config.enable_chunked_prefill,
            long_prefill_token_threshold=config.long_prefill_token_threshold,
            scheduling_policy=config.policy,
            watermark=config.watermark,
            scheduler_reserve_full_isl=config.scheduler_reserve_full_isl,
            async_scheduling=config.async_scheduling,
            max_num_active_seqs=config.max_num_active_seqs,
        )
    )


def build_requests(workload: SchedulerWorkload) -> list[Request]:
    """The engine's requests of a workload, in order; their prompts share what the workload says they share."""
    block_size = workload.config.block_size
    parents = {spec.parent for spec in workload.requests}
    groups: dict[int | str, Branch] = {}
    requests: dict[str, Request] = {}
    conversations: dict[str, int] = {}
    for index, spec in enumerate(workload.requests):
        room = workload.config.max_model_len - spec.prompt_len
        max_tokens = spec.output_len if spec.max_tokens is None else spec.max_tokens
        request = Request(
            spec.id,
            spec.arrival_step + 1e-6 * index,
            spec.prompt_len,
            min(spec.output_len, room),
            min(max_tokens, room),
            spec.priority,
        )
        if spec.parent is not None:
            head = requests[spec.parent].path
            request.path = extend(head, conversations[spec.parent], block_size, request.own_branch())
        elif spec.prefix_group is not None:
            group = groups.setdefault(spec.prefix_group, Branch())
            request.path = extend(((group, ENDLESS),), spec.prefix_len, block_size, request.own_branch())
        if spec.id in parents:
            request.own_branch()
            request.is_awaited = True
        requests[spec.id] = request
        conversations[spec.id] = spec.prompt_len + spec.output_len
    return list(requests.values())


@dataclass(frozen=True, slots=True)
class PlanInFlight:
    """A plan whose tokens have not been taken in, and the requests that will get one."""

    step: int
    plan: StepPlan
    sampling: list[Request]


class Replay:
    """One replay: a scheduler, the arrivals still to come and the plans in flight."""

    def __init__(self, workload: SchedulerWorkload) -> None:
        self.config = workload.config
        self.scheduler = build_scheduler(workload.config)
        self.requests = build_requests(workload)
        self.stops = {spec.id for spec in workload.requests if _ends_by_eos(spec, workload.config.max_model_len)}
        self.arrivals = deque(zip((spec.arrival_step for spec in workload.requests), self.requests, strict=True))
        aborts = [
            (spec.abort_step, request)
            for spec, request in zip(workload.requests, self.requests, strict=True)
            if spec.abort_step is not None
        ]
        self.aborts = deque(sorted(aborts, key=lambda abort: abort[0]))
        self.in_flight: deque[PlanInFlight] = deque()
        self.last_plan: StepPlan | None = None
        self.unannounced = False
        """Whether a request finished that no schedule() has announced yet."""
        self.num_steps = 0
        self.num_jumped_steps = 0
        self.num_idle = 0
        """Steps in a row that scheduled and finished nothing although somebody waits."""
        self.num_hit_tokens = 0
        self.summary: dict[str, Json] = {}

    @property
    def is_over(self) -> bool:
        """Whether the recorder would stop here."""
        alive = self.arrivals or self.scheduler.has_requests or self.in_flight
        return not alive or self.num_idle == self.config.stall_steps or self.num_steps == self.config.max_steps

    def step(self) -> Json:
        """One step of the recorder."""
        record: Json = {"step": self.num_steps, "arrived": ids(self._arrive())}
        aborted = self._abort()
        if aborted:
            record["aborted"] = ids(aborted)
        finished: list[Request] = []
        plan = self.scheduler.schedule() if self.scheduler.has_requests or self.unannounced else None
        if plan is not None:
            self._record_plan(plan, record)
        depth = 2 if self.config.async_scheduling else 1
        if self.in_flight and (len(self.in_flight) == depth or plan is None or plan.is_empty):
            finished = self._complete(record)
        self.num_idle = self.num_idle + 1 if plan is not None and plan.is_empty and not finished else 0
        record |= self._state()
        self.num_steps += 1
        self.last_plan = plan
        return record

    def jump(self, longest: int = UNLIMITED) -> list[Json]:
        """Let the scheduler decide the run of equal steps ahead at once, at most `longest`; none if there is none."""
        num_steps = min(self._steps_ahead(), longest)
        if num_steps <= 0:
            return []
        scheduler = self.scheduler
        first, self.num_steps = self.num_steps, self.num_steps + num_steps - 1
        decoding = [request for request in scheduler.ledger.running if request.state is DECODING]
        before = self.in_flight.popleft() if self.config.async_scheduling else None
        sampling = [request for request in before.sampling if request.state is not FINISHED] if before else decoding
        room = scheduler.ledger.pool.num_free + sum(num_blocks_held(scheduler, request) for request in decoding)
        plan = self.last_plan = scheduler.repeat(num_steps)
        records = [self._within_run(decoding, step) for step in range(first, first + num_steps)]
        left = [num_computed_tokens(scheduler, request) - num_steps + 1 for request in decoding]
        records[0] |= {
            "free_blocks_after_schedule": room - sum(blocks_of(scheduler, num_tokens) for num_tokens in left),
            "got_token": ids(sampling),
        }
        self.in_flight.append(PlanInFlight(self.num_steps, plan, decoding))
        self.unannounced = False
        if before is None:
            self._complete(records[-1])
        else:
            records[0] |= {"processed_step": before.step, "finished": ids(before.plan.finishing)}
            self._note_finished(before.plan.finishing, first)
            self.unannounced = num_steps == 1 and bool(before.plan.finishing)
        records[-1] |= self._state()
        self.num_steps += 1
        self.num_jumped_steps += num_steps
        return records

    def _steps_ahead(self) -> int:
        """How many steps equal to the last one follow, none with an arrival or an abort."""
        if self.last_plan is None or self.last_plan.is_empty:
            return 0
        until = min([events[0][0] for events in (self.arrivals, self.aborts) if events], default=UNLIMITED)
        return min(self.scheduler.steps_ahead(self.last_plan), min(until, self.config.max_steps) - self.num_steps)

    def _within_run(self, decoding: list[Request], step: int) -> Json:
        """The record of a step of the run just taken, which ends at `num_steps`, counted back from the state there."""
        scheduler, left = self.scheduler, self.num_steps - step
        room = scheduler.ledger.pool.num_free + sum(num_blocks_held(scheduler, request) for request in decoding)
        computed = {str(request.id): num_computed_tokens(scheduler, request) - left for request in decoding}
        held = {name: blocks_of(scheduler, num_tokens) for name, num_tokens in computed.items()}
        num_free = room - sum(held.values())
        return {
            "step": step,
            "arrived": [],
            "scheduled": dict.fromkeys(computed, 1),
            "new": [],
            "resumed": [],
            "preempted": [],
            "hit_tokens": {},
            "num_computed": computed,
            "free_blocks_after_schedule": num_free,
            "processed_step": step - int(self.config.async_scheduling),
            "got_token": list(computed),
            "finished": [],
            "free_blocks": num_free,
            "running": list(computed),
            "waiting": ids(scheduler.ledger.waiting),
            "blocks_held": held,
        }

    def _arrive(self) -> list[Request]:
        arrived = []
        while self.arrivals and self.arrivals[0][0] <= self.num_steps:
            arrived.append(self.arrivals.popleft()[1])
            self.scheduler.add(arrived[-1])
        return arrived

    def _abort(self) -> list[Request]:
        """Those whose clients leave now, without those who have finished."""
        aborted = []
        while self.aborts and self.aborts[0][0] <= self.num_steps:
            request = self.aborts.popleft()[1]
            if request.state is not FINISHED:
                self.scheduler.abort(request)
                aborted.append(request)
        self.unannounced = self.unannounced or bool(aborted)
        return aborted

    def _record_plan(self, plan: StepPlan, record: Json) -> None:
        """Write down a plan just made, and let it be in flight."""
        self.unannounced = False
        tokens = scheduled_tokens(self.scheduler, plan)
        partial = {chunk.request for chunk in plan.chunks if not chunk.completes}
        sampling = [request for request in tokens if request not in partial]
        self.in_flight.append(PlanInFlight(self.num_steps, plan, sampling))
        history = {chunk.request: chunk.history for chunk in plan.chunks}
        hits = {str(request.id): history[request] for request in (*plan.new, *plan.resumed)}
        self.num_hit_tokens += sum(hits.values())
        record |= {
            "scheduled": {str(request.id): num_tokens for request, num_tokens in tokens.items()},
            "new": ids(plan.new),
            "resumed": ids(plan.resumed),
            "preempted": sorted(ids(plan.preempted)),
            "hit_tokens": hits,
            "num_computed": {str(request.id): num_computed_tokens(self.scheduler, request) for request in tokens},
            "free_blocks_after_schedule": self.scheduler.ledger.pool.num_free,
        }

    def _complete(self, record: Json) -> list[Request]:
        """Take in the tokens of the oldest plan in flight; returns the requests that finished."""
        oldest = self.in_flight.popleft()
        got_token = [request for request in oldest.sampling if request.state is not FINISHED]
        finished = list(self.scheduler.complete(oldest.plan))
        record |= {"processed_step": oldest.step, "got_token": ids(got_token), "finished": ids(finished)}
        self.unannounced = self.unannounced or bool(finished)
        self._note_finished(finished, self.num_steps)
        return finished

    def _note_finished(self, requests: Iterable[Request], step: int) -> None:
        for request in requests:
            self.summary[str(request.id)] = {
                "finish_step": step,
                "output_tokens": request.output_len,
                "finish_reason": "stop" if request.id in self.stops else "length",
                "preemptions": request.num_preemptions,
            }

    def _state(self) -> Json:
        scheduler = self.scheduler
        return {
            "free_blocks": scheduler.ledger.pool.num_free,
            "cached_blocks": num_cached_blocks(scheduler),
            "running": ids(scheduler.ledger.running),
            "waiting": ids(scheduler.ledger.waiting),
            "blocks_held": {
                str(request.id): num_blocks_held(scheduler, request) for request in scheduler.ledger.running
            },
        }

    def trace(self, steps: list[Json]) -> Json:
        """The whole trace, after its last step."""
        return {
            "config": self.config.model_dump(),
            "num_steps": self.num_steps,
            "stalled": self.num_idle == self.config.stall_steps,
            "unfinished": sorted(str(request.id) for request in self.requests if request.state is not FINISHED),
            "totals": {
                "preemptions": sum(request.num_preemptions for request in self.requests),
                "hit_tokens": self.num_hit_tokens,
            },
            "summary": self.summary,
            "steps": steps,
        }


def _ends_by_eos(spec: WorkloadRequest, max_model_len: int) -> bool:
    """Whether an answer ends by itself: before `max_tokens`, and within `max_model_len`."""
    return spec.output_len < (spec.max_tokens or 0) and spec.output_len <= max_model_len - spec.prompt_len
