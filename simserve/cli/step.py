"""`simserve step`: what one engine step is made of, operator by operator."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from simserve.cli.arguments import Json, Overrides, ScenarioName, load
from simserve.cli.console import fail, print_json, print_notes, print_table, say


def step(
    scenario: ScenarioName,
    overrides: Overrides = None,
    decodes: Annotated[int, typer.Option(min=0, metavar="N", help="Sequences that decode a token each.")] = 64,
    context: Annotated[
        int, typer.Option(min=1, metavar="N", help="Tokens of KV cache that each of them reads, its own included.")
    ] = 1024,
    prefill: Annotated[int, typer.Option(min=0, metavar="N", help="New tokens of a prompt in the same step.")] = 0,
    history: Annotated[int, typer.Option(min=0, metavar="N", help="Tokens of that prompt already computed.")] = 0,
    timeline: Annotated[
        Path | None,
        typer.Option(metavar="FILE.json", help="Write each launch and kernel as a trace for ui.perfetto.dev."),
    ] = None,
    json: Json = False,
) -> None:
    """Lay open one engine step: bytes, FLOPs, time and what binds each operator.

    Bounds: memory (HBM bandwidth), compute (FLOP/s), network (GPU to GPU), floor (the shortest a kernel takes).

    Example: simserve step quickstart --decodes 64 --context 1024 --prefill 512
    """
    if not decodes and not prefill:
        fail("an empty step: give --decodes or --prefill")
    if history and not prefill:
        fail("--history is the computed part of a prompt: give --prefill with it")
    if timeline is not None and timeline.suffix != ".json":
        fail(f"--timeline {timeline}: the name of a trace ends in .json")
    spec = load(scenario, overrides)
    if spec.cluster.pools is not None:
        spec = spec.of_pool("prefill" if prefill else "decode")
        say(f"a step of the {'prefill' if prefill else 'decode'} pool")
    if timeline is not None and spec.engine.speculative is not None:
        fail("--timeline: launches of a step that verifies drafts are not modelled yet; set engine.speculative=null")
    if timeline is not None and spec.cluster.pipeline_parallel > 1:
        fail("--timeline: launches on several stages are not modelled yet; set cluster.pipeline_parallel=1")

    from simserve.cost.explain import explain_step
    from simserve.cost.memory import memory_ledger

    memory_ledger(spec)  # refuses what does not fit
    chunks = [(prefill, history)] if prefill else []
    batch = chunks, decodes, decodes * context, decodes + len(chunks)
    explained = explain_step(spec, *batch)
    if json:
        print_json({**explained, "notes": spec.model.notes})
    else:
        _print_step(explained)
        print_notes(spec.model.notes)
    if timeline is not None:
        from simserve.engine.gpu.timeline import step_timeline
        from simserve.report.timeline import chrome_trace, write_timeline

        write_timeline(timeline, chrome_trace(step_timeline(spec, *batch)))
        say(f"wrote {timeline}; open it at ui.perfetto.dev")


def _print_step(explained: Mapping[str, Any]) -> None:
    gpu_time = explained["gpu_time"] or 1.0
    rows = [
        [
            operator["name"],
            str(operator["count"]),
            _scaled(operator["bytes"], "B"),
            _scaled(operator["flops"], "FLOP"),
            f"{operator['time'] * 1e3:.3f}",
            f"{operator['time'] / gpu_time:.1%}",
            operator["bound"],
        ]
        for operator in explained["operators"]
    ]
    columns = ["operator", "count", "bytes", "FLOPs", "ms", "of GPU", "bound"]
    print_table("", columns, rows, "totals over all layers, for one GPU of a replica")
    size = f"{explained['tokens']} token{'s' * (explained['tokens'] != 1)}"
    if explained["padded_tokens"] != explained["tokens"]:
        size += f", padded to {explained['padded_tokens']}"
    typer.echo(
        f"step {explained['time'] * 1e3:.3f} ms: GPU {explained['gpu_time'] * 1e3:.3f} ms,"
        f" CPU {explained['cpu_time'] * 1e3:.3f} ms; {size}; CUDA graph: {explained['graph']}"
    )


def _scaled(value: float, unit: str) -> str:
    """Number with an SI prefix."""
    for factor, prefix in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= factor:
            return f"{value / factor:.3g} {prefix}{unit}"
    return f"{value:.3g} {unit}" if value else "-"
