"""What binds at a load: seats, KV blocks, the token budget, or what the time of a step is spent on.

Two views of the records of a run, both as shares of the time in which the engine was busy:

- *Waiting*: in the steps that left requests waiting, what stood in their way. `seats`: as many requests were running as
  `max_num_seqs` (or `max_num_active_seqs`) allows. `budget`: the step carried `max_num_batched_tokens`. `kv`: neither,
  so that blocks were missing. `batch`: a static batch had to end, whatever was free.
- *Step time*: `host` is the time in which the GPU ran no kernel (engine-core work and launches that were waited for),
  `peers` that in which it waited for replicas that share its experts.
  The rest is split by the bound of each operator, over steps drawn evenly in time: `network` (collectives), `floor`
  (kernels too short to be bound by anything else), and `compute` or `bandwidth` by which of FLOPs and bytes would take
  longer at the data sheet's rates. The cost model's own word is not used for these two: the efficiency of a GEMM of few
  rows, measured where memory binds, makes its FLOPs look slow.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from simserve.cost.explain import operators_of_step
from simserve.planning.trial import SUSTAINED
from simserve.spec.pools import POOLS
from simserve.spec.result import Result
from simserve.spec.scenario import Scenario

SAMPLES = 64
"""Steps that stand for all when step time is split."""
ROOFLINE = ("memory", "compute")
"""The cost model's words for an operator that bytes or FLOPs bind."""


class Bottleneck(NamedTuple):
    """`resource` binds; the shares say how clearly."""

    resource: str
    waiting: Mapping[str, float]
    step_time: Mapping[str, float]


def find_bottleneck(result: Result, condition: str) -> Bottleneck:
    """What binds in a run whose tightest condition is a limit on this latency, or that the load is sustained.

    Where requests wait for seats or blocks in more of the busy time than the SLO leaves (5 % for a p95) and waiting can
    break the condition, that is what binds. Otherwise it is the largest part of the step time.
    """
    waiting = waiting_shares(result)
    step_time = step_time_shares(result)
    slo = result.scenario.slo
    tolerated = 1 - (slo.percentile if slo else 95.0) / 100
    queue = {cause: share for cause, share in waiting.items() if cause != "budget" and share > tolerated}
    binding = queue if queue and _waiting_breaks(condition) else step_time
    return Bottleneck(max(binding, key=lambda resource: binding[resource]), waiting, step_time)


def _waiting_breaks(condition: str) -> bool:
    """Whether waiting can break a condition; the others feel the step time alone."""
    from simserve.report.metrics import METRICS

    return condition == SUSTAINED or METRICS[condition].queued


def waiting_shares(result: Result) -> dict[str, float]:
    """Share of busy time in which requests waited, by what stood in their way."""
    steps = result.steps
    busy = busy_time(steps)
    blocked = steps["waiting"] > 0
    if result.scenario.engine.scheduler == "static":
        return {"batch": float(busy[blocked].sum() / (busy.sum() or 1.0))}
    members, which = _engines(result)
    most_running = np.array([min(each.engine.max_num_seqs, each.engine.max_num_active_seqs) for each in members])
    most_tokens = np.array([each.engine.max_num_batched_tokens for each in members])
    seats = blocked & (steps["running"] >= most_running[which])
    tokens = steps["prefill_tokens"] + steps["decodes"]
    budget = blocked & ~seats & (tokens >= most_tokens[which])
    kv = blocked & ~seats & ~budget
    total = busy.sum() or 1.0
    return {
        name: float(busy[rows].sum() / total) for name, rows in {"seats": seats, "budget": budget, "kv": kv}.items()
    }


def step_time_shares(result: Result) -> dict[str, float]:
    """Share of busy time by what a step spends it on."""
    steps = result.steps
    busy = busy_time(steps)
    total = float(busy.sum())
    if total <= 0 or result.scenario.cost.constant_step is not None:
        return {"constant_step": 1.0}
    gpu = min(1.0, float(steps["gpu_time"].sum()) / total)
    bounds: dict[str, float] = {}
    members, which = _engines(result)
    for row in _spread(np.cumsum(steps["gpu_time"])):
        engine = members[which[row]]
        for bound, time in _bounds_of(engine, {name: column[row] for name, column in steps.items()}).items():
            bounds[bound] = bounds.get(bound, 0.0) + time
    whole = sum(bounds.values()) or 1.0
    breakdown: Any = result.meta["step_time_breakdown"]
    waited = {name: min(1 - gpu, time / total) for name, time in breakdown.items() if name == "peers"}
    idle = 1 - gpu - sum(waited.values())
    return {"host": idle} | waited | {bound: gpu * time / whole for bound, time in sorted(bounds.items())}


def _engines(result: Result) -> tuple[list[Scenario], NDArray[np.int64]]:
    """The question to each kind of replica, and for each row of the log which of them ran it."""
    scenario, replica = result.scenario, result.steps["replica"]
    if scenario.cluster.pools is None:
        return [scenario], np.zeros(len(replica), np.int64)
    members = [scenario.of_pool(name) for name in POOLS]
    return members, (replica >= members[0].cluster.replicas).astype(np.int64)


def _spread(cumulative: NDArray[Any]) -> list[int]:
    """Rows at the middles of equal parts of a cumulative time."""
    rows: list[int] = np.searchsorted(cumulative, (np.arange(SAMPLES) + 0.5) / SAMPLES * cumulative[-1]).tolist()
    return rows


def busy_time(steps: Mapping[str, NDArray[Any]]) -> NDArray[np.float64]:
    """Time that each row keeps its replica busy: from the end of the row before it, or its own start after a pause.

    With asynchronous scheduling rows overlap (a step is decided while the one before it runs); these parts do not.
    """
    before = np.where(np.diff(steps["replica"], prepend=-1) == 0, np.concatenate(([0.0], steps["end"][:-1])), 0.0)
    busy: NDArray[np.float64] = steps["end"] - np.maximum(steps["start"], before)
    return busy


def _bounds_of(scenario: Scenario, row: Mapping[str, Any]) -> dict[str, float]:
    """Parts of the GPU time of a row's middle step by bound, summing to 1; prompt tokens are taken as one chunk."""
    prefill, decodes = int(row["prefill_tokens"]), int(row["decodes"])
    context = int(row["context_tokens"]) + decodes * (int(row["steps"]) - 1) // 2
    chunks = [(prefill, 0)] if prefill else []
    gpu = scenario.cluster.gpu
    ridge = gpu.peak_flops.get(scenario.model.weight_dtype, gpu.peak_flops["bf16"]) / gpu.hbm_bandwidth
    times: dict[str, float] = {}
    for operator in operators_of_step(scenario, chunks, decodes, context, decodes + len(chunks)):
        bound = operator.bound
        if bound in ROOFLINE:
            bound = "compute" if operator.flops > ridge * operator.bytes else "bandwidth"
        times[bound] = times.get(bound, 0.0) + operator.time
    whole = sum(times.values()) or 1.0
    return {bound: time / whole for bound, time in times.items()}
