"""What a scenario asked, in the few facts that reports need: load, fleet, price, objectives."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from simserve.report.counted import counted_by
from simserve.report.metrics import METRICS
from simserve.report.pools import fleet_words
from simserve.report.text import count, limit_ms, number
from simserve.spec.scenario import Scenario
from simserve.spec.slo import SloSpec
from simserve.spec.speculative import SpeculativeSpec
from simserve.spec.workload import AllAtOnce, ClosedLoop, Constant, Gamma, Poisson


class Load(NamedTuple):
    """The configured load in the words of `vllm bench serve`; "inf" stands for no limit, None for not applicable."""

    request_rate: float | str | None
    burstiness: float | str | None
    max_concurrency: int | None


def configured_load(scenario: Scenario) -> Load:
    """Rate, burstiness and concurrency that the scenario sets; a trace, a ramp and stages set no single rate."""
    match scenario.workload.arrivals:
        case Poisson(rate=rate) | Constant(rate=rate) | Gamma(rate=rate) as arrivals:
            return Load(rate, _burstiness(arrivals), None)
        case AllAtOnce():
            return Load("inf", None, None)
        case ClosedLoop(users=users):
            return Load("inf", None, users)
    return Load(None, None, None)


def _burstiness(arrivals: Poisson | Constant | Gamma) -> float | str:
    if isinstance(arrivals, Gamma):
        return arrivals.shape
    return 1.0 if isinstance(arrivals, Poisson) else "inf"


def price_per_gpu_hour(scenario: Scenario) -> float | None:
    """Dollars per GPU and hour: the cluster's, else the profile's, else None."""
    stated = scenario.cluster.price_per_gpu_hour
    return stated if stated is not None else scenario.cluster.gpu.price_per_hour


def objective_of(scenario: Scenario, class_index: int) -> SloSpec | None:
    """The objective of a request class: its own, else the scenario's."""
    classes = scenario.workload.classes
    own = classes[class_index].slo if class_index < len(classes) else None
    return own or scenario.slo


def question_facts(scenario: Scenario, summary: Mapping[str, Any]) -> dict[str, str]:
    """The question in a few lines a person checks first."""
    model, cluster, engine = scenario.model, scenario.cluster, scenario.engine
    blocks = summary.get("num_gpu_blocks")
    replicas = f"{cluster.replicas} replica{'s' if cluster.replicas > 1 else ''}"
    router = f", {cluster.router.replace('_', ' ')}" if cluster.replicas > 1 else ""
    stages = f" in {cluster.pipeline_parallel} stages" if cluster.pipeline_parallel > 1 else ""
    size = summary.get("kv_block_size", engine.block_size)
    pool = f"; {count(blocks)} KV blocks of {size}" if isinstance(blocks, int) else ""
    switches = {
        "prefix caching": engine.enable_prefix_caching,
        "chunked prefill": engine.enable_chunked_prefill,
        "async scheduling": engine.async_scheduling,
        "CUDA graphs": not engine.enforce_eager,
    }
    return {
        "Model": f"{model.name}: {model.num_parameters / 1e9:.1f} B parameters,"
        f" weights {model.weight_dtype}, KV {model.kv_dtype}",
        "Fleet": fleet_words(cluster)
        or f"{replicas} of {cluster.gpus_per_replica} x {cluster.gpu.name}{stages}{router}",
        "Requests": f"{_arrivals(scenario)}; {count(summary['num_prompts'])} counted",
        "Lengths": _lengths(summary) + _counted(summary),
        "Engine": f"{engine.scheduler}; at most {count(engine.max_num_seqs)} sequences,"
        f" {count(engine.max_num_batched_tokens)} tokens a step, {count(engine.max_model_len)} tokens a request{pool}",
        **_speculation(engine.speculative),
        "Switches": ", ".join(f"{name} {'on' if on else 'off'}" for name, on in switches.items()),
        "Objective": "; ".join(_objectives(scenario)) or "none",
        "Run": f"seed {scenario.seed}, simserve {summary.get('version', 'of unknown version')}",
    }


def _speculation(spec: SpeculativeSpec | None) -> dict[str, str]:
    if spec is None:
        return {}
    who = spec.method.replace("_", " ") if spec.draft_model is None else spec.draft_model.name
    shares = spec.acceptance[:1] if len(set(spec.acceptance)) == 1 else spec.acceptance
    right = ", ".join(f"{share:g}" for share in shares)
    return {"Drafts": f"{spec.num_speculative_tokens} a step by {who}, right with probability {right}"}


def _arrivals(scenario: Scenario) -> str:
    workload = scenario.workload
    source = f"trace {Path(workload.trace.file).name}" if workload.trace else ""
    if workload.arrivals is None:
        return source
    settings = workload.arrivals.model_dump(exclude={"process", "normalize"}, exclude_none=True)
    shown = ", ".join(
        f"{name.replace('_', ' ')} {value:g}" for name, value in settings.items() if isinstance(value, int | float)
    )
    process = workload.arrivals.process.replace("_", " ")
    return ", ".join(part for part in (source, f"{process} arrivals", shown) if part)


def _lengths(summary: Mapping[str, Any]) -> str:
    """Mean lengths of what was completed."""
    done = summary["completed"]
    if not done:
        return "nothing was completed"
    prompt, answer = (number(summary[f"total_{kind}_tokens"] / done) for kind in ("input", "output"))
    return f"{prompt} prompt tokens and {answer} output tokens on the mean"


def _counted(summary: Mapping[str, Any]) -> str:
    counted = counted_by(summary)
    return f"; input counted by {counted}" if counted else ""


def _objectives(scenario: Scenario) -> Iterator[str]:
    """Each objective in words."""
    classes = scenario.workload.classes
    common = None if classes and all(spec.slo for spec in classes) else scenario.slo
    stated = [("", common), *((f"{spec.name}: ", spec.slo) for spec in classes)]
    for whom, slo in stated:
        if slo is not None:
            shown = [f"{METRICS[key].name} <= {limit_ms(1e3 * limit)}" for key, limit in slo.limits.items()]
            yield f"{whom}p{slo.percentile:g} of {', '.join(shown)}"
