"""From a scenario to its fleet: pools, what their replicas hold and cost, and who chooses among them."""

from collections.abc import Callable
from functools import cache, partial

from simserve.cluster.admission import Admission
from simserve.cluster.disaggregation import Disaggregation, KvLink
from simserve.cluster.fleet import Build, Fleet
from simserve.cluster.impatient import patience_of_classes
from simserve.cluster.pool import Pool
from simserve.cluster.prompts import Prompts
from simserve.cluster.routers import ROUTERS
from simserve.cost import StepCost, memory_ledger
from simserve.cost.drafter import models_with_kv
from simserve.cost.kv_pool import sent_bytes
from simserve.engine.clock import Clock
from simserve.engine.replica import Listener
from simserve.spec.pools import DECODE, PREFILL, Role
from simserve.spec.scenario import Scenario
from simserve.spec.ticks import to_ticks
from simserve.workload.columns import Workload
from simserve.workload.streams import random_stream

StepCostOf = Callable[[Scenario], StepCost]


def build_fleet(
    scenario: Scenario,
    clock: Clock,
    workload: Workload,
    build: Build,
    step_cost: StepCostOf,
    *,
    listener: Listener | None,
) -> Fleet:
    """The pools of a scenario and their replicas, which `build` makes and whose steps take what `step_cost` says of the
    question to a pool; `listener` is told of all answers.

    Raises:
        ScenarioError: the deployment cannot exist.
    """
    specs, sent_again = scenario.cluster.pools, bool(patience_of_classes(scenario.workload))
    admission = Admission.of(scenario)
    if specs is None:
        pool = build_pool(Role.WHOLE, scenario, clock, step_cost, is_counted=admission.queue_limits is not None)
        prompts = build_prompts([pool], workload, sent_again)
        return Fleet(clock, [pool], build, prompts, admission, listener=listener, sent_again=sent_again)
    prefill = build_pool(Role.PREFILL, scenario.of_pool(PREFILL), clock, step_cost)
    question = scenario.of_pool(DECODE)
    looks = specs.stay_below > 0 and question.engine.enable_prefix_caching
    decode = build_pool(Role.DECODE, question, clock, step_cost, is_looked_into=looks)
    return Disaggregation(
        clock,
        (prefill, decode),
        build,
        build_prompts([prefill, decode], workload, sent_again),
        admission,
        link=kv_link(scenario, decode),
        stay_below=specs.stay_below,
        listener=listener,
        sent_again=sent_again,
    )


def build_pool(
    role: Role,
    scenario: Scenario,
    clock: Clock,
    step_cost: StepCostOf,
    *,
    is_counted: bool = False,
    is_looked_into: bool = False,
) -> Pool:
    """The pool of that role, and name; `scenario` is the question to it alone."""
    stream = "prefill_router" if role is Role.PREFILL else "router"
    router = ROUTERS[scenario.cluster.router](random_stream(scenario.seed, stream))
    return Pool(
        role.value,
        role,
        clock,
        scenario=scenario,
        ledger=memory_ledger(scenario),
        cost=step_cost(scenario),
        router=router,
        is_counted=is_counted,
        is_looked_into=is_looked_into,
    )


def build_prompts(pools: list[Pool], workload: Workload, sent_again: bool) -> Prompts | None:
    """Where prompts hang in the prefix trie; None where nothing is shared or nothing is cached."""
    is_cached = any(pool.scenario.engine.enable_prefix_caching for pool in pools)
    if not is_cached or not (sent_again or workload.shares_text):
        return None
    engine = pools[-1].scenario.engine
    return Prompts(workload, engine.block_size, engine.max_model_len, sent_again)


def kv_link(scenario: Scenario, decode: Pool) -> KvLink:
    """What lies between two pools, of which `decode` asks for the KV."""
    spec, own = scenario.cluster.kv_link, decode.scenario
    assert spec is not None, "pools have a link"
    models = models_with_kv(own.engine.speculative, own.model)
    num_bytes = cache(partial(sent_bytes, models, own.cluster.tensor_parallel, own.engine.block_size))
    return KvLink(spec.bandwidth, spec.backbone, to_ticks(spec.latency), num_bytes)
