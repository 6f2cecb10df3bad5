"""Replays a recorded scheduler workload through simserve's own scheduler, the one every simulation uses.

Time is counted in steps, as the recorder counts it: arrivals, one schedule(), and the tokens of the oldest plan in
flight (the step's own, or with asynchronous scheduling the one before). `replay` writes down what happened in the
recorder's format: step by step, or, as simulations do by default, with each run of equal steps decided at once and
written out again.
"""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

from simserve.engine.plan import StepPlan
from simserve.engine.prefix import ENDLESS, Branch, extend
from simserve.engine.request import DECODING, DRAINING, FINISHED, Request
from simserve.engine.scheduler import UNLIMITED, Scheduler, SchedulerConfig
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
    return Scheduler(
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
        elif spec.id in parents:
            request.own_branch()
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
        record: Json = {"step": self.num_steps, "arrived": _ids(self._arrive())}
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
        plan = self.last_plan
        if plan is None or plan.is_empty:
            return []
        num_steps = min(self.scheduler.steps_ahead(plan), longest, self.config.max_steps - self.num_steps)
        if self.arrivals:
            num_steps = min(num_steps, self.arrivals[0][0] - self.num_steps)
        if num_steps <= 0:
            return []
        records = [self._within_run(ahead) for ahead in range(1, num_steps)]
        self.num_steps += num_steps - 1
        self.num_jumped_steps += num_steps
        if self.config.async_scheduling and num_steps > 1:
            before = self.in_flight.popleft()
            self.in_flight.append(PlanInFlight(self.num_steps - 1, before.plan, list(self.scheduler.running)))
        last: Json = {"step": self.num_steps, "arrived": []}
        self.last_plan = self.scheduler.repeat(num_steps)
        self._record_plan(self.last_plan, last)
        self._complete(last)
        self.num_steps += 1
        return [*records, last | self._state()]

    def _within_run(self, ahead: int) -> Json:
        """The record of the step `ahead` steps from the last one, in a run that the scheduler has not taken yet."""
        running, size = list(self.scheduler.running), self.config.block_size
        computed = {str(request.id): num_computed_tokens(self.scheduler, request) + ahead for request in running}
        held = {id: -(-num_tokens // size) for id, num_tokens in computed.items()}
        taken = sum(held.values()) - sum(num_blocks_held(self.scheduler, request) for request in running)
        num_free = self.scheduler.pool.num_free - taken
        step = self.num_steps + ahead - 1
        lag = int(self.config.async_scheduling)
        sampling = self.in_flight[0].sampling if lag and ahead == 1 else running
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
            "processed_step": step - lag,
            "got_token": _ids(request for request in sampling if request.state is not FINISHED),
            "finished": [],
            "free_blocks": num_free,
            "running": list(computed),
            "waiting": _ids(self.scheduler.waiting),
            "blocks_held": held,
        }

    def _arrive(self) -> list[Request]:
        arrived = []
        while self.arrivals and self.arrivals[0][0] <= self.num_steps:
            arrived.append(self.arrivals.popleft()[1])
            self.scheduler.add(arrived[-1])
        return arrived

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
            "new": _ids(plan.new),
            "resumed": _ids(plan.resumed),
            "preempted": sorted(_ids(plan.preempted)),
            "hit_tokens": hits,
            "num_computed": {str(request.id): num_computed_tokens(self.scheduler, request) for request in tokens},
            "free_blocks_after_schedule": self.scheduler.pool.num_free,
        }

    def _complete(self, record: Json) -> list[Request]:
        """Take in the tokens of the oldest plan in flight; returns the requests that finished."""
        oldest = self.in_flight.popleft()
        got_token = [request for request in oldest.sampling if request.state is not FINISHED]
        finished = list(self.scheduler.complete(oldest.plan))
        record |= {"processed_step": oldest.step, "got_token": _ids(got_token), "finished": _ids(finished)}
        self.unannounced = self.unannounced or bool(finished)
        for request in finished:
            self.summary[str(request.id)] = {
                "finish_step": self.num_steps,
                "output_tokens": request.output_len,
                "finish_reason": "stop" if request.id in self.stops else "length",
                "preemptions": request.num_preemptions,
            }
        return finished

    def _state(self) -> Json:
        scheduler = self.scheduler
        return {
            "free_blocks": scheduler.pool.num_free,
            "cached_blocks": num_cached_blocks(scheduler),
            "running": _ids(scheduler.running),
            "waiting": _ids(scheduler.waiting),
            "blocks_held": {str(request.id): num_blocks_held(scheduler, request) for request in scheduler.running},
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


def scheduled_tokens(scheduler: Scheduler, plan: StepPlan) -> dict[Request, int]:
    """Who gets how many tokens, in the order of vLLM's plan; to be asked right after schedule()."""
    chunks = {chunk.request: chunk.num_tokens for chunk in plan.chunks}
    finishing = set(plan.finishing)
    tokens = {}
    for request in scheduler.running:
        if request in chunks:
            tokens[request] = chunks[request]
        elif request.state is DECODING or (request.state is DRAINING and request in finishing):
            tokens[request] = 1
    return tokens


def num_computed_tokens(scheduler: Scheduler, request: Request) -> int:
    """Tokens of a request whose KV is or will be there after the steps decided so far."""
    if request.state is DECODING:
        return scheduler.decoding.clock - request.base
    return request.num_computed_tokens


def num_blocks_held(scheduler: Scheduler, request: Request) -> int:
    """Blocks that a running request holds."""
    if request.state is DECODING:
        return -(-num_computed_tokens(scheduler, request) // scheduler.config.block_size)
    return request.num_blocks


def num_cached_blocks(scheduler: Scheduler) -> int:
    """Distinct hashes that vLLM's pool would know: those entered, and those that running requests enter at release."""
    pool = scheduler.pool
    count = pool.num_entered
    if not pool.enable_prefix_caching:
        return count
    for request in scheduler.running:
        num_hashed = scheduler._num_hashed(request) if request.state is DECODING else request.num_hashed_blocks
        runs = request.branch.runs if request.branch else ()
        for index in range(request.num_entered_blocks, num_hashed):
            count += not any(run.alive_until(index) > index for run in runs)
    return count


def _ends_by_eos(spec: WorkloadRequest, max_model_len: int) -> bool:
    """Whether an answer ends by itself: before `max_tokens`, and within `max_model_len`."""
    return spec.output_len < (spec.max_tokens or 0) and spec.output_len <= max_model_len - spec.prompt_len


def _ids(requests: Iterable[Request]) -> list[str]:
    return [str(request.id) for request in requests]
