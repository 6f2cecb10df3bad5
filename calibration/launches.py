"""What handing work to the device takes the CPU: a bare kernel, an operator called from Python, a captured graph.

The step is that of a model without work, so that next to nothing but the handing over is timed. A CPU has no queue and
no graphs: there an operator's dispatch is part of the step itself.
"""

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any, NamedTuple

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from calibration.engine.batch import Batch
from calibration.engine.runner import ModelRunner

BURST = 200
"""Kernels launched in a row; a GPU's queue holds more, so that the CPU never waits for room in it."""
REPEATS = 21


class Launches(NamedTuple):
    """CPU seconds of handing over a bare kernel, an operator of the engine, and the graph of a step (None: no graphs).

    `operators` is how many the eager decode step of one sequence has.
    """

    kernel: float
    eager: float
    graph: float | None
    operators: int


def measure_launches(idle: ModelRunner) -> Launches:
    """Launch times of a runner whose model has no work: medians, on the runner's clock."""
    batch, captured = idle.synthetic_batch([16]), idle.use_graphs
    idle.use_graphs = False
    operators = num_operators(idle, batch)
    eager = _issuing(idle, idle.prepare(batch)[0]) / operators
    idle.use_graphs = captured
    execute, rows = idle.prepare(batch)
    graph = _issuing(idle, execute) if rows and idle.device.type == "cuda" else None
    return Launches(_bare_kernel(idle), eager, graph, operators)


def _issuing(runner: ModelRunner, work: Callable[[], object]) -> float:
    """Seconds until `work` returns to a CPU that does not wait for the device."""
    times = []
    for _ in range(REPEATS):
        _wait(runner.device)
        began = runner.timer()
        work()
        times.append(runner.timer() - began)
    _wait(runner.device)
    return statistics.median(times)


def _bare_kernel(runner: ModelRunner) -> float:
    """The least that torch has: one number counted up in place."""
    number = torch.zeros(1, device=runner.device)

    @torch.inference_mode()
    def burst() -> None:
        for _ in range(BURST):
            number.add_(1)

    burst()
    return _issuing(runner, burst) / BURST


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def num_operators(runner: ModelRunner, batch: Batch) -> int:
    """Launches of a batch, executed eagerly: operators of torch that compute, and Triton kernels."""
    execute, _ = runner.prepare(batch)
    counted = _Operators()
    with counted, _triton_kernels(counted) if runner.backend == "triton" else nullcontext():
        execute()
    return counted.number


class _Operators(TorchDispatchMode):
    """Counts operators but for those that only look at a tensor in another way, or make room for one."""

    def __init__(self) -> None:
        TorchDispatchMode.__init__(self)
        self.number = 0

    def __torch_dispatch__(
        self, operator: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        self.number += not (operator.is_view or "empty" in operator.name())
        return operator(*args, **(kwargs or {}))


@contextmanager
def _triton_kernels(counted: _Operators) -> Iterator[None]:
    """Adds the launches of Triton kernels, of which torch's dispatcher knows nothing."""
    from triton.runtime.jit import JITFunction

    launch: Callable[..., Any] = JITFunction.run

    def run(kernel: Any, *args: Any, **options: Any) -> Any:
        counted.number += 1
        return launch(kernel, *args, **options)

    JITFunction.run = run
    try:
        yield
    finally:
        JITFunction.run = launch
