"""The recorder around the oracle: a workload in, a trace as vLLM's would be recorded out (format: golden/FORMAT.md)."""

from collections import deque
from collections.abc import Iterable

from oracle import Plan, Request, Scheduler, Token

DEFAULTS = {
    "max_num_seqs": 16, "max_num_batched_tokens": 256, "max_model_len": 2048, "block_size": 16, "num_gpu_blocks": 128,
    "enable_prefix_caching": True, "enable_chunked_prefill": True, "long_prefill_token_threshold": 0, "policy": "fcfs",
    "watermark": 0.0, "scheduler_reserve_full_isl": True, "async_scheduling": False, "max_num_active_seqs": None,
    "max_steps": 20000, "stall_steps": 20,
}  # fmt: skip


def prompt_of(spec: dict, specs: dict[str, dict]) -> list[Token]:
    head: list[Token] = []
    if spec.get("parent") is not None:
        parent = specs[spec["parent"]]
        head = prompt_of(parent, specs) + [(f"out/{parent['id']}", n) for n in range(parent["output_len"])]
    elif spec.get("prefix_group") is not None:
        head = [(f"group/{spec['prefix_group']}", n) for n in range(spec["prefix_len"])]
    assert len(head) <= spec["prompt_len"]
    return head + [(f"own/{spec['id']}", n) for n in range(spec["prompt_len"] - len(head))]


def requests_of(workload: dict) -> list[tuple[int, Request]]:
    specs = {spec["id"]: spec for spec in workload["requests"]}
    return [
        (
            spec["arrival_step"],
            Request(
                id=spec["id"],
                tokens=prompt_of(spec, specs),
                prompt_len=spec["prompt_len"],
                output_len=spec["output_len"],
                max_tokens=spec.get("max_tokens", spec["output_len"]),
                priority=spec.get("priority", 0),
                arrival=spec["arrival_step"] + 1e-6 * index,
            ),
        )
        for index, spec in enumerate(workload["requests"])
    ]


def drive(workload: dict, scheduler: type[Scheduler] = Scheduler) -> dict:
    """Run a workload as the recorder did and give its trace (format: golden/FORMAT.md)."""
    config = DEFAULTS | workload["config"]
    engine = scheduler(config)
    arrivals = deque(requests_of(workload))
    everyone = [request for _, request in arrivals]
    depth = 2 if config["async_scheduling"] else 1
    in_flight: deque[Plan] = deque()
    steps: list[dict] = []
    summary: dict[str, dict] = {}
    num_idle = 0  # steps in a row that scheduled and finished nothing although somebody waits
    while (arrivals or engine.has_live() or in_flight) and num_idle < config["stall_steps"]:
        if len(steps) == config["max_steps"]:
            break
        step: dict = {"step": len(steps), "arrived": []}
        while arrivals and arrivals[0][0] <= len(steps):
            engine.add(arrivals[0][1])
            step["arrived"].append(arrivals.popleft()[1].id)
        aborted = [r for r, spec in zip(everyone, workload["requests"], strict=True)
                   if spec.get("abort_step") == len(steps) and engine.abort(r)]  # fmt: skip
        if aborted:
            step["aborted"] = ids(aborted)
        plan = engine.schedule(len(steps)) if engine.has_live() or engine.unannounced else None
        if plan:
            in_flight.append(plan)
            step |= describe_plan(plan, engine)
        if in_flight and (len(in_flight) == depth or not (plan and plan.scheduled)):
            oldest = in_flight.popleft()
            got_token, finished = engine.complete(oldest)
            step |= {"processed_step": oldest.step, "got_token": ids(got_token), "finished": ids(finished)}
            for request in finished:
                summary[request.id] = describe_finish(request, len(steps))
        num_idle = num_idle + 1 if plan and not plan.scheduled and not step.get("finished") else 0
        steps.append(step | describe_state(engine))
    return {
        "config": config,
        "num_steps": len(steps),
        "stalled": num_idle >= config["stall_steps"],
        "unfinished": sorted(r.id for r in everyone if r.status != "finished"),
        "totals": {
            "preemptions": sum(r.num_preemptions for r in everyone),
            "hit_tokens": sum(sum(step.get("hit_tokens", {}).values()) for step in steps),
        },
        "summary": summary,
        "steps": steps,
    }


def ids(requests: Iterable[Request]) -> list[str]:
    return [request.id for request in requests]


def describe_plan(plan: Plan, engine: Scheduler) -> dict:
    return {
        "scheduled": {r.id: n for r, n in plan.scheduled.items()},
        "new": ids(plan.new),
        "resumed": ids(plan.resumed),
        "preempted": sorted(ids(plan.preempted)),
        "hit_tokens": {r.id: n for r, n in plan.hit_tokens.items()},
        "num_computed": {r.id: r.num_computed for r in plan.scheduled},
        "free_blocks_after_schedule": len(engine.pool.free_queue),
    }


def describe_state(engine: Scheduler) -> dict:
    return {
        "free_blocks": len(engine.pool.free_queue),
        "cached_blocks": len(engine.pool.cached),
        "running": ids(engine.running),
        "waiting": ids(engine.waiting),
        "blocks_held": {r.id: len(r.blocks) for r in engine.running},
    }


def describe_finish(request: Request, step: int) -> dict:
    return {
        "finish_step": step,
        "output_tokens": len(request.tokens) - request.prompt_len,
        "finish_reason": request.finish_reason,
        "preemptions": request.num_preemptions,
    }
