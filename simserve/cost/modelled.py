"""Step cost from the operators of the model on the GPU of the scenario, compiled for each batch size it meets."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from simserve.cost.breakdown import step_time_breakdown
from simserve.cost.forward import Forward
from simserve.cost.kernels import Batch, StepLaunch, launches_of_step
from simserve.cost.launch import GraphMode, GraphPolicy, LaunchTotals, Line
from simserve.cost.step import UNBOUNDED, DecodeCost, Piece, StepTime


@dataclass(frozen=True, slots=True)
class HostTicks:
    """Engine-core CPU ticks of a step: before its first launch, for each sequence (before it too), and afterwards.

    `after` is what lies between the end of the GPU's work and the tokens being known. A synchronous engine waits for
    it before it plans again, so that it may as well count as `before`.
    """

    before: int
    per_sequence: int
    after: int


class ModelledStepCost:
    """A `StepCost` that sums operators. Every part that depends on a count alone is computed once for that count."""

    def __init__(self, forward: Forward, policy: GraphPolicy, host: HostTicks) -> None:
        self.update = host.after
        self.forward = forward
        self.policy = policy
        self.host = host
        self._decodes: dict[int, DecodeCost] = {}
        self._bodies: dict[tuple[int, GraphMode], LaunchTotals] = {}
        self._mixed: dict[int, tuple[LaunchTotals, int]] = {}
        self._heads: dict[int, tuple[LaunchTotals, int]] = {}

    def decode(self, num_decodes: int) -> DecodeCost:
        """Cost of a step of `num_decodes` decodes and nothing else."""
        cost = self._decodes.get(num_decodes)
        if cost is None:
            cost = self._decodes[num_decodes] = self._compile_decode(num_decodes)
        return cost

    def step(self, chunks: Sequence[tuple[int, int]], num_decodes: int, context: int, num_sampled: int) -> StepTime:
        """Cost of any step; see `StepCost.step`."""
        if not chunks:
            return self.decode(num_decodes).at(context)
        tokens = num_decodes
        for new, _ in chunks:
            tokens += new
        body, padded = self._mixed.get(tokens) or self._compile_mixed(tokens)
        head, head_end = self._heads.get(num_sampled) or self._compile_head(num_sampled)
        full = window = 0
        if (time := self.forward.full) is not None:
            full = time.prefill(chunks) + time.decode(num_decodes, context)
        if (time := self.forward.window) is not None:
            window = time.prefill(chunks) + time.decode(num_decodes, context)
        end = body.cpu + head_end
        for base, full_layers, window_layers in body.critical:
            line = base + full_layers * full + window_layers * window + head.gpu
            if line > end:  # noqa: PLR1730 (max() takes three times as long)
                end = line
        host = self.host.before + self.host.per_sequence * (num_decodes + len(chunks))
        return StepTime(
            host + body.cpu + head.cpu + self.host.after,
            body.gpu + body.full * full + body.window * window + head.gpu,
            host + end,
            padded,
        )

    def graph_of(self, chunks: Sequence[tuple[int, int]], num_decodes: int) -> tuple[GraphMode, int]:
        """Graph mode of a step, and the tokens that its GEMMs run on."""
        return self.policy.choose(num_decodes + sum(new for new, _ in chunks), decode_only=not chunks)

    def launches(
        self, chunks: Sequence[tuple[int, int]], num_decodes: int, context: int, num_sampled: int
    ) -> list[StepLaunch]:
        """Launches and kernels of a step, in order; between `host.before` and `host.after` of CPU time."""
        mode, rows = self.graph_of(chunks, num_decodes)
        return launches_of_step(self.forward, mode, rows, Batch(chunks, num_decodes, context, num_sampled))

    def breakdown(self, steps: Mapping[str, NDArray[Any]]) -> dict[str, float]:
        """Seconds of each group of operators over a step log; see `step_time_breakdown`."""
        return step_time_breakdown(self.forward, self.policy, steps)

    def _body(self, tokens: int, *, decode_only: bool) -> tuple[LaunchTotals, int]:
        """Sums of the body for a step of `tokens` tokens, and the size of its graph (0 without)."""
        mode, rows = self.policy.choose(tokens, decode_only=decode_only)
        body = self._bodies.get((rows, mode))
        if body is None:
            body = self._bodies[rows, mode] = self.forward.body(rows, mode)
        return body, 0 if mode is GraphMode.NONE else rows

    def _compile_mixed(self, tokens: int) -> tuple[LaunchTotals, int]:
        self._mixed[tokens] = self._body(tokens, decode_only=False)
        return self._mixed[tokens]

    def _compile_head(self, rows: int) -> tuple[LaunchTotals, int]:
        head = self.forward.head(rows)
        self._heads[rows] = head, max(line.base for line in head.critical)
        return self._heads[rows]

    def _compile_decode(self, num_decodes: int) -> DecodeCost:
        body, padded = self._body(num_decodes, decode_only=True)
        head, head_end = self._compile_head(num_decodes)
        host = self.host.before + self.host.per_sequence * num_decodes
        flat = [(UNBOUNDED, 0, 0)]
        full = self.forward.full.decode_pieces(num_decodes) if self.forward.full else flat
        window = self.forward.window.decode_pieces(num_decodes) if self.forward.window else flat
        pieces: list[Piece] = []
        start = 0
        for until in sorted({piece[0] for piece in full + window}):
            x, y = (next(piece[1:] for piece in side if start <= piece[0]) for side in (full, window))
            base, slope = _along(Line(body.gpu + head.gpu, body.full, body.window), x, y)
            ends = [_along(line, x, y) for line in body.critical]
            lines = [(host + head.gpu + end, rise) for end, rise in ends] + [(host + body.cpu + head_end, 0)]
            pieces += [Piece(stop, base, slope, *line) for stop, line in _upper_envelope(lines, start, until)]
            start = until + 1
        cpu = host + body.cpu + head.cpu + self.host.after
        return DecodeCost(cpu, padded > 0, padded, tuple(pieces))


def _along(line: Line, full: tuple[int, int], window: tuple[int, int]) -> tuple[int, int]:
    """(base, slope) in the context, of a line whose attentions are themselves (base, slope) in it."""
    return (
        line.base + line.full * full[0] + line.window * window[0],
        line.full * full[1] + line.window * window[1],
    )


def _upper_envelope(lines: list[tuple[int, int]], start: int, until: int) -> list[tuple[int, tuple[int, int]]]:
    """(last context, line) of the greatest of some (base, slope) lines at each integer from `start` to `until`."""
    envelope: list[tuple[int, tuple[int, int]]] = []
    while start <= until:
        base, slope = top = max(lines, key=lambda line: (line[0] + line[1] * start, line[1]))
        stop = min([until, *((base - b) // (s - slope) for b, s in lines if s > slope)])
        envelope.append((stop, top))
        start = stop + 1
    return envelope
