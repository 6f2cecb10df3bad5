"""What the clients send: arrivals, lengths, traces, classes and chats.

`simserve.workload` turns this into columns of requests.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from simserve.spec.arrivals import AllAtOnce, Arrivals, ClosedLoop, Constant, Gamma, Piecewise, Poisson, Ramp, Stage
from simserve.spec.client import ClientSpec
from simserve.spec.lengths import (
    ConstantLength,
    EmpiricalLength,
    LengthSpec,
    LognormalLength,
    NormalLength,
    UniformLength,
)
from simserve.spec.names import TraceFormat
from simserve.spec.quantities import (
    Count,
    Integer,
    PositiveCount,
    PositiveNumber,
    PositiveSeconds,
    PositiveShare,
    Seconds,
)
from simserve.spec.resources import data_path
from simserve.spec.slo import SloSpec
from simserve.spec.strict import Strict

__all__ = [
    "AllAtOnce",
    "Arrivals",
    "ClassSpec",
    "ClosedLoop",
    "Constant",
    "ConstantLength",
    "EmpiricalLength",
    "Gamma",
    "LengthSpec",
    "LognormalLength",
    "NormalLength",
    "Piecewise",
    "Poisson",
    "Ramp",
    "SessionsSpec",
    "SharedPrefix",
    "Stage",
    "TraceSpec",
    "UniformLength",
    "WorkloadSpec",
    "data_path",
]


LOCKSTEP_JITTER = 0.01
"""Seconds. Chosen, not fitted: about what HTTP and the event loop of a load generator spread answers over that come at
once."""
TimeUnit = Literal["s", "ms", "us", "ns"]
Turns = Literal["first", "all"]


class SharedPrefix(Strict):
    """Groups of requests whose prompts begin with the same tokens."""

    groups: PositiveCount
    length: PositiveCount
    adds: bool = False
    """The shared tokens come on top of `input` (what `--random-prefix-len` of vLLM means); otherwise they are a part of
    it, and a prompt that is shorter is refused."""


class TraceSpec(Strict):
    """Recorded requests to replay."""

    file: str
    format: TraceFormat | None = None
    """Recognised where it is left out; `simserve trace inspect FILE` says what a file is."""
    limit: PositiveCount | None = None
    """Rows taken."""
    offset: Count = 0
    """Rows left out at the start."""
    speedup: PositiveNumber = 1.0
    """Gaps are divided by this."""
    rate: PositiveNumber | None = None
    """Mean rate in requests/s to which all gaps are scaled alike, so that they stay as bursty as they are."""
    time_unit: TimeUnit | None = None
    """Of the times in JSON lines of other tools, where it is not the usual one of the format."""
    block_size: PositiveCount | None = None
    """Tokens that one of the `hash_ids` stands for, where it is not the usual number of the format."""
    tokenizer: str | None = None
    """A `tokenizer.json` by which texts (ShareGPT, LMCache) are counted."""
    characters_per_token: PositiveNumber | None = None
    """Ratio by which texts are counted without a tokenizer."""
    turns: Turns = "first"
    """Of conversations (ShareGPT): the first exchange, or all of them as a chat."""
    result: Count | None = None
    """Which of several results of a benchmark in the file, from 0; all of them, one after the other, if left out."""
    chat_template_tokens: Count | None = None
    """Tokens that the server adds to each prompt that the client counted: its chat template and BOS token. Without it a
    trace that has the client's count only (`vllm_bench`, `client_input_len`) is simulated as the client counted."""
    skip_bad_rows: bool = False
    """Leave out rows that are no requests; how many, and the first of them, is said with the result."""

    @model_validator(mode="after")
    def _one_rate(self) -> Self:
        if self.rate is not None and self.speedup != 1:
            raise PydanticCustomError("exclusive", "rate and speedup both scale the gaps: state one of them")
        return self

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
    client: ClientSpec | None = None


class SessionsSpec(Strict):
    """Chats: each turn's prompt is the previous prompt, the previous answer and new tokens (`input`)."""

    turns: LengthSpec
    think_time: Seconds = 0.0
    """Pause between an answer and the user's next turn."""
    first_input: LengthSpec | None = None
    """Prompt of the first turn; `input` where it is left out."""


class WorkloadSpec(Strict):
    """Requests of one run."""

    NOT_MODELLED: ClassVar[Mapping[str, str]] = {
        "n": "several answers to one prompt (n)",
        "best_of": "several answers to one prompt (best_of)",
        "structured_output": "structured output",
        "structured_outputs": "structured output",
        "response_format": "structured output",
        "guided_decoding": "structured output",
    }

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
    client: ClientSpec | None = None
    """Who waits for an answer, how long, and what he does then; null: for as long as it takes."""
    jitter: Seconds | None = None
    """Mean of what passes beside the think time before a user of a closed loop or a chat sends again, drawn anew each
    time (exponential). Null: 0, but in a closed loop of fixed lengths without think time 10 ms: such users, who would
    stay exactly in step for ever, do not in reality (they still come in waves, which the result says)."""

    @property
    def mean_jitter(self) -> float:
        """`jitter`, or its default, in seconds."""
        if self.jitter is not None:
            return self.jitter
        return LOCKSTEP_JITTER if self.keeps_step else 0.0

    @property
    def keeps_step(self) -> bool:
        """Whether nothing would ever part users who send together."""
        arrivals = self.arrivals
        if not isinstance(arrivals, ClosedLoop) or arrivals.think_time or arrivals.users == 1:
            return False
        sources: tuple[WorkloadSpec | ClassSpec, ...] = (self, *self.classes)
        lengths = [length for each in sources for length in (each.input, each.output) if length is not None]
        return all(isinstance(length, ConstantLength) for length in lengths)

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        found = [*(self._beside_trace() if self.trace else self._synthetic()), *self._classes()]
        if found:
            raise PydanticCustomError("workload", "{problem}", {"problem": "; ".join(found)})
        return self

    def _beside_trace(self) -> Iterator[str]:
        given = [key for key in ("input", "output", "max_tokens", "shared_prefix", "sessions") if getattr(self, key)]
        given += [f"class {c.name}" for c in self.classes if c.input or c.output or c.max_tokens or c.shared_prefix]
        if given:
            yield f"the trace gives the lengths: remove {', '.join(given)}, which would be ignored"
        if self.jitter:
            yield "jitter would be ignored: the trace gives the arrivals"
        if self.num_requests is not None or self.duration is not None:
            yield "the trace gives the requests: trace.limit takes fewer of them, not num_requests or duration"

    def _synthetic(self) -> Iterator[str]:
        if self.num_requests is None and self.duration is None:
            yield "needs num_requests or duration"
        if self.num_requests is not None and self.duration is not None:
            yield "num_requests and duration are both given: state one (null takes back what a base file states)"
        missing = [key for key in ("input", "output") if not self._is_drawn(key)]
        if missing:
            yield f"needs {' and '.join(missing)}, for example {missing[0]}: 512"
        if self.jitter and not (self.sessions or isinstance(self.arrivals, ClosedLoop)):
            yield "jitter would be ignored: arrivals by the clock wait for nobody; use process: gamma for burstier ones"
        if self.arrivals is None:
            yield "needs arrivals, for example {process: poisson, rate: 8}, or a trace"
        else:
            yield from self._ends(self.arrivals)

    def _ends(self, arrivals: Arrivals) -> Iterator[str]:
        if self.duration is not None and arrivals.process in {"all_at_once", "closed_loop"}:
            yield f"{arrivals.process} needs num_requests in place of duration; run.max_time ends a run earlier"
        if self.duration is not None and getattr(arrivals, "normalize", False):
            yield "arrivals.normalize puts the last of num_requests at its expected time: not with duration"
        if self.sessions and arrivals.process == "closed_loop":
            yield "sessions have a think time of their own: give their first turns open arrivals, not closed_loop"

    def _is_drawn(self, key: str) -> bool:
        in_classes = bool(self.classes) and all(getattr(c, key) for c in self.classes)
        return in_classes or getattr(self, key) is not None

    def _classes(self) -> Iterator[str]:
        names = [c.name for c in self.classes]
        if len(set(names)) < len(names):
            yield f"classes need different names, got {', '.join(names)}"
        total = sum(c.share for c in self.classes)
        if names and abs(total - 1) > 1e-6:
            yield f"the shares of the classes add up to {total:g}, not to 1"
