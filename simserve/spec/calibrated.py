"""What `simserve calibrate` found on one machine with one model: the time of a step as a few coefficients.

    seconds = host(sequences) + tokens(N) + sum of coefficient x feature

where `tokens` is piecewise linear in the step's tokens N and rises. No coefficient is negative, so that more work never
takes less time. `calibration/README.md` says how each number is measured.
"""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from simserve.spec.quantities import BytesPerSecond, FlopsPerSecond, PositiveCount, Seconds
from simserve.spec.strict import Strict

SecondsByCount = Annotated[dict[PositiveCount, Seconds], Field(min_length=2)]
Ratio = Annotated[float, Field(ge=0)]


class Coefficients(Strict):
    """Seconds for one of each; requests with one new token count as decodes, all others as chunks."""

    per_decode: Seconds = 0.0
    per_context_token: Seconds = 0.0
    """A token of KV that a decode reads."""
    with_chunks: Seconds = 0.0
    """Once, in a step that has chunks."""
    per_chunk: Seconds = 0.0
    per_chunk_kv_token: Seconds = 0.0
    """A token of KV that a chunk reads: its history and its own."""
    per_chunk_pair: Seconds = 0.0
    """A pair of a new token and a token of KV: new x (history + new)."""


class EngineHost(Strict):
    """CPU time of deciding the step, building its batch and handing its tokens over."""

    per_step: Seconds
    per_sequence: Seconds


class Domain(Strict):
    """The largest step that was measured; beyond it simserve extrapolates, and counts the steps."""

    tokens: PositiveCount
    decodes: PositiveCount
    context: PositiveCount
    """Tokens of KV that the decodes of a step read together."""
    chunk_pairs: PositiveCount


class FitErrors(Strict):
    """Relative errors of a form; `mape` is their mean, `p95` their 95th percentile, `bias` the error of the sum."""

    mape: Ratio
    p95: Ratio
    bias: float


class Quality(Strict):
    """How far to believe the fit. `noise_floor` is how much two halves of the passes disagree, as a mean ratio."""

    noise_floor: Ratio
    held_out: FitErrors
    residuals: dict[str, FitErrors]
    """Kind of step (decode, prefill, mixed) -> errors on held-out steps of that kind."""
    candidates: dict[str, FitErrors]
    """Form -> errors on the held-out steps; the form that was kept has the least mape."""
    points: PositiveCount
    passes: PositiveCount
    probe_drift: Ratio
    """How much the same step's time moved between begin and end."""
    wall_over_cpu: Ratio
    """Wall-clock time over the clock's; far above 1 on a busy CPU."""


class Overheads(Strict):
    """The step with nothing to compute, base and per sequence: what launching takes, and what `launch` of the profile
    was derived from. Only for reading.
    """

    zero_work_step: Seconds
    zero_work_sequence: Seconds
    zero_work_graph: Seconds | None = None
    """The same from a captured graph."""
    zero_work_operators: PositiveCount | None = None
    """Operators of that step for one sequence, Triton kernels included; null where they were not counted."""


class Roofs(Strict):
    """What the device reaches at best. Only for reading."""

    copy_bandwidth: BytesPerSecond
    gemm_peak: FlopsPerSecond


class CalibratedSpec(Strict):
    """Step times of one model on one machine, fitted to measurements of the engine in `calibration/`."""

    model: str
    num_parameters: PositiveCount
    """Together with `num_layers` and `hidden_size`: holds for this model alone."""
    num_layers: PositiveCount
    hidden_size: PositiveCount
    weight_dtype: str
    block_size: PositiveCount
    device: Literal["cpu", "cuda"]
    backend: Literal["torch", "triton"]
    clock: Literal["thread_cpu", "cuda_events"]
    form: str
    tokens: SecondsByCount
    """Tokens of the step -> seconds, linear in between and beyond the last."""
    graph_sizes: tuple[PositiveCount, ...] = ()
    """Decode batches for which a CUDA graph was captured; a batch is padded to the next."""
    graph_tokens: SecondsByCount | None = None
    """As `tokens`, for a step that a graph runs."""
    coefficients: Coefficients
    host: EngineHost
    domain: Domain
    quality: Quality
    overheads: Overheads
    roofs: Roofs
    machine: dict[str, str]
    software: dict[str, str]
    samples: str = ""
    """SHA-256 of samples.csv beside the profile."""

    @model_validator(mode="after")
    def _rising(self) -> Self:
        for key, table in (("tokens", self.tokens), ("graph_tokens", self.graph_tokens or {})):
            times = [time for _, time in sorted(table.items())]
            if times != sorted(times):
                raise PydanticCustomError("order", "more tokens take less time", {"key": key})
        if bool(self.graph_sizes) != (self.graph_tokens is not None):
            raise PydanticCustomError("graphs", "needs graph_tokens, and the other way round", {"key": "graph_sizes"})
        return self
