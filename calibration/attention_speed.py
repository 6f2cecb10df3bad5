"""Speed of the Triton decode attention against PyTorch's on one device, and of a captured graph against eager launches.

`python -m calibration.attention_speed --model llama-3.1-8b [--device cuda]` prints a table of milliseconds. On a CPU
there is neither Triton nor a graph: what remains is a check that the script runs.
"""

import argparse
import statistics
from collections.abc import Sequence
from typing import Any

import torch

from calibration.engine.config import model_config
from calibration.engine.runner import ModelRunner
from simserve.engine.config import SchedulerConfig

COLUMNS = ("batch", "context", "torch", "triton", "triton graph")


def rows(model: str, device: str, dtype: str, cases: Sequence[tuple[int, int]]) -> list[tuple[int, int, list[float]]]:
    """(batch, context, ms of a decode step): PyTorch SDPA, Triton eager, Triton in a graph, as far as they go."""
    most = max(count for count, _ in cases)
    blocks = max(count * -(-context // 16) for count, context in cases) + 2
    longest = max(context for _, context in cases) + 16
    config = SchedulerConfig(most, max(512, most), longest, blocks, async_scheduling=False)
    cuda = device == "cuda"
    found: dict[tuple[int, int], list[float]] = {case: [] for case in cases}
    for backend in ("torch", "triton") if cuda else ("torch",):
        sizes = sorted({count for count, _ in cases}) if backend == "triton" else []
        chosen: Any = backend
        runner = ModelRunner(model_config(model), config, device=device, backend=chosen, dtype=dtype, graph_sizes=sizes)
        for use_graphs in (False, True) if sizes else (False,):
            runner.use_graphs = use_graphs
            for count, context in cases:
                batch = runner.synthetic_batch([context] * count)
                times = [runner.run(batch).times.device for _ in range(12 if cuda else 3)][2:]
                found[count, context].append(statistics.median(times) * 1e3)
        del runner
        if cuda:
            torch.cuda.empty_cache()
    return [(count, context, times) for (count, context), times in found.items()]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--model", default="tiny-llama")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype", default="bf16")
    given = parser.parse_args()
    torch.set_num_threads(1)
    large = [(1, 512), (16, 1024), (64, 1024), (64, 4096), (128, 2048)]
    print("  ".join(f"{name:>12}" for name in COLUMNS), " (ms a step)")
    for count, context, times in rows(
        given.model, given.device, given.dtype, large if given.device == "cuda" else [(1, 64), (4, 128)]
    ):
        print("  ".join(f"{value:>12.4g}" for value in (count, context, *times)))


if __name__ == "__main__":
    main()
