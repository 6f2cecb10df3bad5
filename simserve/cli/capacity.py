"""`simserve capacity`: the largest load within the SLO, and the fleet for a given one."""

import math
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from simserve.cli.arguments import Json, Overrides, ScenarioName, Seeds, Workers, load
from simserve.cli.console import fail, print_json, print_notes, progress_bar

if TYPE_CHECKING:
    from simserve.planning.capacity import Capacity
    from simserve.planning.fleet import Fleet
    from simserve.spec.cluster import ClusterSpec
    from simserve.spec.scenario import Scenario


def capacity(
    scenario: ScenarioName,
    overrides: Overrides = None,
    rate: Annotated[
        float | None,
        typer.Option(metavar="LOAD", help="Load to size a fleet for: how many replicas hold it, at what price."),
    ] = None,
    seeds: Seeds = 3,
    workers: Workers = None,
    json: Json = False,
) -> None:
    """Find the largest load within the SLO, what binds there, and the fleet for a given rate.

    The load is the arrival rate, a trace's speed-up (as its rate), or the users of a closed loop. It is searched to 2 %
    for each seed; the answer is their geometric mean with its 95 % interval (Student's t).

    Example: simserve capacity quickstart --rate 40 cluster.price_per_gpu_hour=2.5
    """
    from simserve.planning.capacity import find_capacity
    from simserve.planning.executor import default_workers, open_executor
    from simserve.planning.fleet import find_fleet

    if rate is not None and rate <= 0:
        fail(f"--rate: a load is above 0, got {rate:g}")
    spec = load(scenario, overrides)
    with open_executor(workers or default_workers(seeds)) as executor:
        with progress_bar("searching the capacity", seeds, patience=0) as progress:
            found = find_capacity(spec, seeds, executor, progress)
        fleet = None
        if rate is not None:
            with progress_bar("sizing the fleet", seeds, patience=0) as progress:
                fleet = find_fleet(spec, rate, found, executor, progress)
    if json:
        print_json(_answer(spec, found, fleet))
        return
    for label, text in _lines(spec, found, fleet):
        typer.echo(f"{label:<14}{text}")
    print_notes(spec.model.notes)


def _answer(scenario: "Scenario", found: "Capacity", fleet: "Fleet | None") -> dict[str, Any]:
    """The answer for programs; nan becomes null."""
    from dataclasses import asdict

    from simserve.planning.capacity import PRECISION

    interval = found.interval
    return {
        "scenario": scenario.name,
        "unit": found.load.unit,
        "capacity": interval.mean,
        "interval": None if math.isnan(interval.low) else [interval.low, interval.high],
        "precision": PRECISION,
        "binding_slo": asdict(found.binding),
        "binding_resource": found.bottleneck.resource,
        "waiting_shares": dict(found.bottleneck.waiting),
        "step_time_shares": dict(found.bottleneck.step_time),
        "replicas": scenario.cluster.replicas,
        "num_gpus": scenario.cluster.num_gpus,
        **found.measures,
        "seeds": [
            {
                "seed": one.seed,
                "holds": one.holds,
                "fails": one.fails,
                "binding_slo": asdict(one.binding),
                "binding_resource": one.bottleneck.resource,
            }
            for one in found.seeds
        ],
        "fleet": asdict(fleet) if fleet else None,
        "notes": scenario.model.notes,
    }


def _lines(scenario: "Scenario", found: "Capacity", fleet: "Fleet | None") -> Iterator[tuple[str, str]]:
    """The answer for people: label and text of each line."""
    from simserve.planning.capacity import PRECISION
    from simserve.planning.trial import describe

    cluster, interval, unit = scenario.cluster, found.interval, found.load.unit
    yield "Capacity", f"{interval.mean:.3g} {unit}: {scenario.name}, {_fleet_words(cluster, cluster.replicas)}"
    if len(found.seeds) > 1:
        seeds = f"95 % interval over {len(found.seeds)} seeds"
        yield "", f"{interval.low:.3g} to {interval.high:.3g} ({seeds}, each searched to {PRECISION:.0%})"
    else:
        one = "one seed" if found.load.seeded else "a replayed trace: nothing to draw"
        yield "", f"searched to {PRECISION:.0%} ({one})"
    yield "Fails next", describe(found.binding)
    yield "What binds", _resource_words(found.bottleneck.resource, found.bottleneck.waiting)
    shares = sorted(found.bottleneck.step_time.items(), key=lambda item: -item[1])
    yield "Step time", ", ".join(f"{name} {share:.0%}" for name, share in shares if share >= 0.005)
    yield "Throughput", _throughput_words(found.measures, cluster.num_gpus)
    if "price_per_gpu_hour" in found.measures:
        yield "Price", _price_words(found.measures)
    if fleet is not None:
        yield "Fleet", f"{_fleet_words(cluster, fleet.replicas)} for {fleet.target:g} {unit}"
        if "price_per_gpu_hour" in fleet.measures:
            per_hour = fleet.num_gpus * fleet.measures["price_per_gpu_hour"]
            yield "", f"${per_hour:.2f} an hour; {_price_words(fleet.measures)}"


def _fleet_words(cluster: "ClusterSpec", replicas: int) -> str:
    gpus, plural = cluster.gpus_per_replica, "s" * (replicas > 1)
    words = f"{replicas} replica{plural}" if cluster.pools is None else f"{replicas} set{plural} of both pools"
    return words if gpus == 1 else f"{words} of {gpus} GPUs"


def _resource_words(resource: str, waiting: Mapping[str, float]) -> str:
    """The resource in words; see `simserve.planning.bottleneck` for the definitions."""
    waited = {"kv": "KV blocks", "seats": "seats (max_num_seqs)", "batch": "static batches to end"}
    if resource in waited:
        return f"{waited[resource]}: requests waited for them in {waiting[resource]:.0%} of the busy time"
    spent = {
        "bandwidth": "HBM bandwidth",
        "compute": "compute (FLOP/s)",
        "network": "collectives between GPUs",
        "floor": "short kernels",
        "host": "host and launches",
        "peers": "waiting for peers",
    }
    return f"{spent.get(resource, resource)}: the largest part of the step time"


def _throughput_words(measures: Mapping[str, float], gpus: int) -> str:
    output, total = measures["output_throughput"], measures["total_token_throughput"]
    attained = f", {measures['slo_attainment']:.1%} of requests within the SLO" if "slo_attainment" in measures else ""
    return f"{output:,.0f} output tokens/s ({output / gpus:,.0f} per GPU), {total:,.0f} in all{attained}"


def _price_words(measures: Mapping[str, float]) -> str:
    output, total = measures["cost_per_million_output_tokens"], measures["cost_per_million_tokens"]
    return (
        f"${output:.3g} per million output tokens, ${total:.3g} per million tokens,"
        f" at ${measures['price_per_gpu_hour']:.2f} per GPU hour"
    )
