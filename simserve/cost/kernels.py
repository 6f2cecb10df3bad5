"""A step spelled out: every launch and every kernel it starts, in order.

The sums that `ModelledStepCost` answers with are sums over exactly these integers, so that a simulation kernel by
kernel ends on the same tick.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from simserve.cost.forward import Forward
from simserve.cost.launch import GraphMode
from simserve.cost.operators import Kernel, TokenOperator
from simserve.cost.shape import Layer


class StepLaunch(NamedTuple):
    """CPU ticks of one launch, the kernels that it starts one after the other, and whether the CPU waits for them."""

    cpu: int
    kernels: tuple[Kernel, ...]
    sync: bool = False


class Batch(NamedTuple):
    """A step as the cost model is asked for it; see `StepCost.step`."""

    chunks: Sequence[tuple[int, int]]
    num_decodes: int
    context: int
    num_sampled: int


def launches_of_step(forward: Forward, mode: GraphMode, rows: int, batch: Batch) -> list[StepLaunch]:
    """Launches of a step whose token operators run on `rows` rows in graph mode `mode`.

    Kernels of a graph come in one launch, and so does the attention of a layer outside a graph (an engine passes chunks
    and decodes in one call); all others come one by one. lm_head and sampler are outside any graph.
    """
    body: list[StepLaunch] = []
    piece: list[Kernel] = []
    for operators, kernels in _body(forward, rows, batch):
        if mode is GraphMode.NONE and operators is not None:
            cpu = map(forward.launch.of, operators)
            body += [StepLaunch(each, (kernel,)) for each, kernel in zip(cpu, kernels, strict=True)]
        elif mode is GraphMode.FULL or operators is not None:
            piece += kernels
        else:
            if mode is GraphMode.PIECEWISE:
                body.append(StepLaunch(forward.launch.graph, tuple(piece)))
                piece = []
            body.append(StepLaunch(forward.launch.python, tuple(kernels)))
    if piece:
        body.append(StepLaunch(forward.launch.graph, tuple(piece)))
    head = forward.kernels(forward.shape.head, batch.num_sampled)
    return body + [StepLaunch(forward.launch.kernel, (kernel,)) for kernel in head]


Operators = tuple[TokenOperator, ...]


def _body(forward: Forward, rows: int, batch: Batch) -> Iterator[tuple[Operators | None, list[Kernel]]]:
    """Operators from embedding to last norm with the kernel of each; attention apart, without operators."""
    shape = forward.shape
    yield shape.embed, forward.kernels(shape.embed, rows)
    for repeat, layers in shape.layers:
        group: list[tuple[Operators | None, list[Kernel]]] = []
        for layer in layers:
            group.append((layer.before, forward.kernels(layer.before, rows)))
            group.append((None, _attention(forward, layer, batch)))
            group.append((layer.after, forward.kernels(layer.after, rows)))
        yield from group * repeat
    yield shape.norm, forward.kernels(shape.norm, rows)


def _attention(forward: Forward, layer: Layer, batch: Batch) -> list[Kernel]:
    return forward.attention_time(layer).kernels(batch.chunks, batch.num_decodes, batch.context)
