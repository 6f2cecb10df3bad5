"""Step cost from the coefficients that a calibration found: a few multiplications per step, in integer ticks."""

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simserve.cost.step import UNBOUNDED, DecodeCost, Piece, StepTime
from simserve.cost.unevenness import Unevenness
from simserve.spec.calibrated import CalibratedSpec
from simserve.spec.model import ModelSpec
from simserve.spec.ticks import to_ticks


class TokenTicks:
    """Ticks by the number of tokens: linear between the points of a table, and beyond the last as between the last."""

    def __init__(self, table: Mapping[int, float]) -> None:
        self._counts = sorted(table)
        self._ticks = [to_ticks(table[count]) for count in self._counts]
        self._known: dict[int, int] = {}

    def __getitem__(self, tokens: int) -> int:
        known = self._known.get(tokens)
        if known is None:
            known = self._known[tokens] = self._compute(tokens)
        return known

    def _compute(self, tokens: int) -> int:
        right = min(max(bisect_left(self._counts, tokens), 1), len(self._counts) - 1)
        (low, high), (start, end) = self._counts[right - 1 : right + 1], self._ticks[right - 1 : right + 1]
        return max(start + (end - start) * (tokens - low) // (high - low), 0)


class CalibratedStepCost:
    """A `StepCost` of one calibrated model. Its host time can be hidden by asynchronous scheduling, the rest cannot.

    `graphs` is whether decodes run as captured graphs, where the calibration has them.
    """

    update = 0

    uneven: Unevenness | None = None

    def __init__(self, spec: CalibratedSpec, *, graphs: bool = True) -> None:
        self._spec = spec
        each = spec.coefficients
        self._per_decode, self._per_context = to_ticks(each.per_decode), to_ticks(each.per_context_token)
        self._with_chunks, self._per_chunk = to_ticks(each.with_chunks), to_ticks(each.per_chunk)
        self._per_kv, self._per_pair = to_ticks(each.per_chunk_kv_token), to_ticks(each.per_chunk_pair)
        self._host, self._host_sequence = to_ticks(spec.host.per_step), to_ticks(spec.host.per_sequence)
        self._tokens = TokenTicks(spec.tokens)
        self._graph_sizes = spec.graph_sizes if graphs else ()
        self._graph_tokens = TokenTicks(spec.graph_tokens or spec.tokens)
        self._decodes: dict[int, DecodeCost] = {}

    def for_one_run(self) -> "CalibratedStepCost":
        """Itself: it remembers no steps."""
        return self

    def decode(self, num_decodes: int) -> DecodeCost:
        """Cost of a step of `num_decodes` decodes and nothing else."""
        cost = self._decodes.get(num_decodes)
        if cost is None:
            cost = self._decodes[num_decodes] = self._compile_decode(num_decodes)
        return cost

    def _compile_decode(self, num_decodes: int) -> DecodeCost:
        index = bisect_left(self._graph_sizes, num_decodes)
        padded = self._graph_sizes[index] if index < len(self._graph_sizes) else 0
        tokens = self._graph_tokens[padded] if padded else self._tokens[num_decodes]
        cpu = self._host + self._host_sequence * num_decodes
        gpu = tokens + self._per_decode * num_decodes
        piece = Piece(UNBOUNDED, gpu, self._per_context, cpu + gpu, self._per_context)
        return DecodeCost(cpu, padded > 0, padded, (piece,))

    def step(self, chunks: Sequence[tuple[int, int]], num_decodes: int, context: int, num_sampled: int) -> StepTime:
        """Cost of any step; see `StepCost.step`."""
        return StepTime(*self.ticks(chunks, num_decodes, context, num_sampled))

    def ticks(
        self,
        chunks: Sequence[tuple[int, int]],
        num_decodes: int,
        context: int,
        num_sampled: int,  # noqa: ARG002 (the engine runs its head on every sequence)
    ) -> tuple[int, int, int, int]:
        """`step` as a plain tuple; see `StepCost.ticks`."""
        tokens = num_decodes
        num_chunks = kv = pairs = 0
        for new, history in chunks:
            tokens += new
            if new == 1:
                num_decodes += 1
                context += history + 1
            else:
                num_chunks += 1
                kv += history + new
                pairs += new * (history + new)
        if not num_chunks:
            return self.decode(num_decodes).ticks(context)
        cpu = self._host + self._host_sequence * (num_decodes + num_chunks)
        gpu = self._tokens[tokens] + self._per_decode * num_decodes + self._per_context * context
        gpu += self._with_chunks + self._per_chunk * num_chunks + self._per_kv * kv + self._per_pair * pairs
        return cpu, gpu, cpu + gpu, 0

    def breakdown(self, steps: Mapping[str, NDArray[Any]]) -> dict[str, float]:
        """The fit does not tell operators apart: the model, in one group."""
        return {"model": float(steps["gpu_time"].sum())}

    def extrapolated_steps(self, steps: Mapping[str, NDArray[Any]]) -> int:
        """Steps larger than any that was measured; the history of chunks is not in the log and does not count."""
        domain = self._spec.domain
        prefill, decodes, context, repeat = (
            steps[name].astype(np.int64) for name in ("prefill_tokens", "decodes", "context_tokens", "steps")
        )
        inside = np.clip((domain.context - context) // np.maximum(decodes, 1) + 1, 0, repeat)
        too_wide = (prefill + decodes > domain.tokens) | (decodes > domain.decodes)
        return int(np.where(too_wide, repeat, repeat - inside).sum())


def is_calibrated_for(spec: CalibratedSpec, model: ModelSpec, tensor_parallel: int, block_size: int) -> bool:
    """Whether the calibration is of this deployment."""
    return (
        tensor_parallel == 1
        and block_size == spec.block_size
        and (model.num_parameters, model.num_layers) == (spec.num_parameters, spec.num_layers)
        and (model.hidden_size, model.weight_dtype) == (spec.hidden_size, spec.weight_dtype)
    )
