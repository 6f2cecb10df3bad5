"""What the clients send: when requests arrive and how long their prompts and answers are.

`simserve.workload` turns this into columns of requests.
"""

from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, GetCoreSchemaHandler, GetJsonSchemaHandler, model_validator
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from simserve.spec import resources
from simserve.spec.quantities import (
    Count,
    Integer,
    PositiveCount,
    PositiveNumber,
    PositiveSeconds,
    PositiveShare,
    Seconds,
)
from simserve.spec.slo import SloSpec
from simserve.spec.strict import Strict


class Poisson(Strict):
    """Independent arrivals: exponential gaps."""

    process: Literal["poisson"]
    rate: PositiveNumber
    """Requests per second."""
    normalize: bool = False
    """Rescale the gaps so that the last arrival falls on count / rate, as `vllm bench serve` does."""


class Gamma(Strict):
    """Gamma-distributed gaps: more or less bursty than Poisson."""

    process: Literal["gamma"]
    rate: PositiveNumber
    burstiness: PositiveNumber | None = None
    """Shape of the gamma distribution as in `vllm bench serve`: 1 is Poisson, below is burstier."""
    cv: PositiveNumber | None = None
    """Coefficient of variation of the gaps, 1 / sqrt(burstiness)."""
    normalize: bool = False

    @model_validator(mode="after")
    def _one_shape(self) -> Self:
        if (self.burstiness is None) == (self.cv is None):
            raise PydanticCustomError("exclusive", "state exactly one of burstiness and cv (cv = 1 / sqrt(burstiness))")
        return self

    @property
    def shape(self) -> float:
        """Shape parameter of the gaps."""
        return self.burstiness if self.burstiness is not None else 1 / (self.cv or 1.0) ** 2


class Constant(Strict):
    """Equal gaps."""

    process: Literal["constant"]
    rate: PositiveNumber


class Ramp(Strict):
    """Poisson arrivals whose rate goes from one value to another over the run."""

    process: Literal["ramp"]
    start_rate: PositiveNumber
    end_rate: PositiveNumber
    shape: Literal["linear", "exponential"] = "linear"
    normalize: bool = False


class Stage(Strict):
    """Part of a piecewise load."""

    rate: PositiveNumber
    duration: PositiveSeconds


class Piecewise(Strict):
    """Poisson arrivals in stages of constant rate; after the last stage they stop."""

    process: Literal["piecewise"]
    stages: Annotated[tuple[Stage, ...], Field(min_length=1)]


class AllAtOnce(Strict):
    """Every request at time 0: an offline batch."""

    process: Literal["all_at_once"]


class ClosedLoop(Strict):
    """A fixed number of users, each of whom sends the next request after the answer to the last.

    Latency is bounded by construction here: it says nothing about an open load.
    """

    process: Literal["closed_loop"]
    users: PositiveCount
    think_time: Seconds = 0.0
    """Pause between an answer and the user's next request."""


Arrivals = Annotated[
    Poisson | Gamma | Constant | Ramp | Piecewise | AllAtOnce | ClosedLoop, Field(discriminator="process")
]


class ConstantLength(Strict):
    """Always the same number of tokens."""

    distribution: Literal["constant"]
    value: PositiveCount


class UniformLength(Strict):
    """Every whole number from min to max alike, both included."""

    distribution: Literal["uniform"]
    min: PositiveCount
    max: PositiveCount

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        _check_order(self.min, self.max)
        return self


class NormalLength(Strict):
    """Normal, rounded, clipped to [min, max]."""

    distribution: Literal["normal"]
    mean: PositiveNumber
    stddev: PositiveNumber
    min: PositiveCount = 1
    max: PositiveCount | None = None

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        _check_order(self.min, self.max)
        return self


class LognormalLength(Strict):
    """Log-normal with this mean and coefficient of variation before rounding and clipping to [min, max]."""

    distribution: Literal["lognormal"]
    mean: PositiveNumber
    cv: PositiveNumber
    min: PositiveCount = 1
    max: PositiveCount | None = None

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        _check_order(self.min, self.max)
        return self


class EmpiricalLength(Strict):
    """Drawn with replacement from listed lengths, in the scenario or one a line in a file."""

    distribution: Literal["empirical"]
    values: Annotated[tuple[PositiveCount, ...], Field(min_length=1)] | None = None
    file: str | None = None

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if (self.values is None) == (self.file is None):
            raise PydanticCustomError("exclusive", "state exactly one of values and file")
        return self

    @property
    def path(self) -> Path | None:
        """Where `file` lies."""
        return None if self.file is None else data_path(self.file)


def _check_order(low: int, high: int | None) -> None:
    if high is not None and low > high:
        raise PydanticCustomError("order", "min {low} is larger than max {high}", {"low": low, "high": high})


class _OrPlainNumber:
    """A plain number stands for the constant distribution."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_before_validator_function(self._constant, handler(source))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        return {"anyOf": [handler(schema), {"type": "integer", "minimum": 1}]}

    @staticmethod
    def _constant(value: Any) -> Any:
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        return {"distribution": "constant", "value": value} if is_number else value


LengthSpec = Annotated[
    Annotated[
        ConstantLength | UniformLength | NormalLength | LognormalLength | EmpiricalLength,
        Field(discriminator="distribution"),
    ],
    _OrPlainNumber(),
]
"""Distribution of a number of tokens; a plain number is a constant."""


def data_path(file: str) -> Path:
    """Place of a data file that a scenario names: its absolute path, or inside simserve's own scenarios."""
    return Path(file) if Path(file).is_absolute() else resources.folder("scenarios") / file


class SharedPrefix(Strict):
    """Groups of requests whose prompts begin with the same tokens; counted inside the input."""

    groups: PositiveCount
    length: PositiveCount


class TraceSpec(Strict):
    """Recorded requests to replay."""

    file: str
    format: Literal["azure", "csv", "jsonl", "vllm_bench"]
    """`azure`: the Azure LLM traces; `csv`, `jsonl`: our own; `vllm_bench`: detailed result of `vllm bench serve`."""
    limit: PositiveCount | None = None
    """Rows taken."""
    offset: Count = 0
    """Rows left out at the start."""
    speedup: PositiveNumber = 1.0
    """Gaps are divided by this."""
    skip_bad_rows: bool = False

    @property
    def path(self) -> Path:
        """Where `file` lies."""
        return data_path(self.file)


class ClassSpec(Strict):
    """A share of the requests with its own lengths, priority and objective; what it leaves out is the workload's."""

    name: Annotated[str, Field(min_length=1)]
    share: PositiveShare
    priority: Integer = 0
    """Greater is less important, as in vLLM."""
    slo: SloSpec | None = None
    input: LengthSpec | None = None
    output: LengthSpec | None = None
    max_tokens: LengthSpec | None = None
    shared_prefix: SharedPrefix | None = None


class SessionsSpec(Strict):
    """Chats: each turn's prompt is the previous prompt, the previous answer and new tokens (`input`)."""

    turns: LengthSpec
    think_time: Seconds = 0.0
    """Pause between an answer and the user's next turn."""
    first_input: LengthSpec | None = None
    """Prompt of the first turn; `input` where it is left out."""


class WorkloadSpec(Strict):
    """Requests of one run."""

    NOT_MODELLED: ClassVar = {"client": "a client with timeouts and retries"}

    arrivals: Arrivals | None = None
    input: LengthSpec | None = None
    """Prompt tokens; in sessions the new tokens of a turn."""
    output: LengthSpec | None = None
    """Generated tokens."""
    max_tokens: LengthSpec | None = None
    """Limit that the scheduler knows; the output length where it is left out, as with `ignore_eos`."""
    shared_prefix: SharedPrefix | None = None
    num_requests: PositiveCount | None = None
    duration: PositiveSeconds | None = None
    """Arrivals after this are not sent."""
    trace: TraceSpec | None = None
    classes: tuple[ClassSpec, ...] = ()
    sessions: SessionsSpec | None = None

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        problem = self._trace_problem() if self.trace else self._synthetic_problem()
        problem = problem or self._classes_problem()
        if problem:
            raise PydanticCustomError("workload", "{problem}", {"problem": problem})
        return self

    def _trace_problem(self) -> str | None:
        lengths = [key for key in ("input", "output", "max_tokens", "shared_prefix") if getattr(self, key)]
        lengths += [
            f"classes[{c.name}]" for c in self.classes if c.input or c.output or c.max_tokens or c.shared_prefix
        ]
        if lengths or self.sessions:
            return (
                f"the trace gives lengths and sessions: {', '.join(lengths) or 'sessions'} beside it would be ignored"
            )
        if self.num_requests is not None or self.duration is not None:
            return "the trace gives the requests: trace.limit takes fewer of them, not num_requests or duration"
        return None

    def _synthetic_problem(self) -> str | None:
        if self.arrivals is None:
            return "needs arrivals, for example {process: poisson, rate: 8}, or a trace"
        if (self.num_requests is None) == (self.duration is None):
            return "state exactly one of num_requests and duration (null takes one back)"
        process = self.arrivals.process
        if self.duration is not None and process in {"all_at_once", "closed_loop"}:
            return f"{process} needs num_requests in place of duration; run.max_time ends a run earlier"
        if self.duration is not None and getattr(self.arrivals, "normalize", False):
            return "arrivals.normalize puts the last of num_requests at its expected time: not with duration"
        if self.sessions and process == "closed_loop":
            return "sessions have a think time of their own: give their first turns open arrivals, not closed_loop"
        missing = [key for key in ("input", "output") if not self._is_drawn(key)]
        return f"needs {' and '.join(missing)}, for example {missing[0]}: 512" if missing else None

    def _is_drawn(self, key: str) -> bool:
        in_classes = bool(self.classes) and all(getattr(c, key) for c in self.classes)
        return in_classes or getattr(self, key) is not None

    def _classes_problem(self) -> str | None:
        names = [c.name for c in self.classes]
        if len(set(names)) < len(names):
            return f"classes need different names, got {', '.join(names)}"
        total = sum(c.share for c in self.classes)
        return f"the shares of the classes add up to {total:g}, not to 1" if names and abs(total - 1) > 1e-6 else None
