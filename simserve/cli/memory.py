"""`simserve memory`: what fills a GPU, in the lines of vLLM's start-up log."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import typer

from simserve.cli.arguments import Json, Overrides, ScenarioName, load
from simserve.cli.console import print_json, print_notes, print_table
from simserve.spec.pools import POOLS

if TYPE_CHECKING:
    from simserve.spec.scenario import Scenario

LINES = {
    "weights": "weights of one GPU",
    "activations": "activation peak of a step of max_num_batched_tokens",
    "framework": "CUDA context, communication, workspaces",
    "cuda_graphs": "captured CUDA graphs",
    "kv": "KV cache",
    "outside": "left alone by gpu_memory_utilization",
    "total": "the card, as the driver reports it",
}


def memory(scenario: ScenarioName, overrides: Overrides = None, json: Json = False) -> None:
    """Show what fills the memory of one GPU, and how much KV cache is left.

    Compare it with the start-up log of a vLLM server; engine.num_gpu_blocks takes the server's own number.

    Example: simserve memory quickstart engine.gpu_memory_utilization=0.85
    """
    spec = load(scenario, overrides)

    from simserve.cost.memory import memory_ledger

    engines = {"": spec} if spec.cluster.pools is None else {name: spec.of_pool(name) for name in POOLS}
    ledgers = {name: memory_ledger(engine).as_dict() for name, engine in engines.items()}
    if json:
        said = {name: ledger | {"notes": spec.model.notes} for name, ledger in ledgers.items()}
        print_json(said.get("", said))
        return
    for name, ledger in ledgers.items():
        _print(f"{name} pool" if name else "", ledger, engines[name])
    print_notes(spec.model.notes)


def _print(title: str, ledger: Mapping[str, float | int | str], spec: "Scenario") -> None:
    print_table(
        title, ["line", "GiB", "what"], ([name, f"{int(ledger[name]) / 2**30:.2f}", LINES[name]] for name in LINES)
    )
    typer.echo(
        f"GPU KV cache size: {ledger['kv_tokens']:,} tokens ({ledger['num_gpu_blocks']:,} blocks of"
        f" {spec.engine.block_size}, by {ledger['source']})\n"
        f"Maximum concurrency for {spec.engine.max_model_len:,} tokens per request: {ledger['max_concurrency']:.2f}x"
    )
