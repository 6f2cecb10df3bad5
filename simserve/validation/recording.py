"""What a recorder writes down: a workload for a scheduler, counted in steps, and the trace of what it did.

The format is documented in `tests/golden/FORMAT.md`; anyone may record an engine of theirs in it and ask
`simserve fidelity` whether simserve decides alike.
"""

import gzip
import json
from pathlib import Path
from typing import Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from simserve.spec.errors import ScenarioError

Json = dict[str, object]
"""An object of a trace as it stands in its file."""

ModelT = TypeVar("ModelT", bound=BaseModel)


class WorkloadConfig(BaseModel):
    """The scheduler's settings; names and meanings are vLLM's, defaults the recorder's own."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    max_num_seqs: int = Field(16, gt=0)
    max_num_batched_tokens: int = Field(256, gt=0)
    max_model_len: int = Field(2048, gt=1)
    block_size: int = Field(16, gt=0)
    num_gpu_blocks: int = Field(128, gt=1)
    enable_prefix_caching: bool = True
    enable_chunked_prefill: bool = True
    long_prefill_token_threshold: int = Field(0, ge=0)
    policy: Literal["fcfs", "priority"] = "fcfs"
    watermark: float = Field(0.0, ge=0, lt=1)
    scheduler_reserve_full_isl: bool = True
    async_scheduling: bool = False
    max_num_active_seqs: int | None = Field(None, gt=0)
    max_steps: int = Field(20_000, gt=0)
    stall_steps: int = Field(20, gt=0)


class WorkloadRequest(BaseModel):
    """One request: when it arrives, its lengths, and whose tokens its prompt begins with."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    id: str
    arrival_step: int = Field(ge=0)
    prompt_len: int = Field(gt=0)
    output_len: int = Field(gt=0)
    max_tokens: int | None = None
    priority: int = 0
    prefix_group: int | str | None = None
    prefix_len: int = Field(0, ge=0)
    parent: str | None = None
    abort_step: int | None = None

    @model_validator(mode="after")
    def _check(self) -> "WorkloadRequest":
        if self.max_tokens is not None and self.max_tokens < self.output_len:
            raise ValueError(f"{self.id}: max_tokens {self.max_tokens} is below output_len {self.output_len}")
        if self.prefix_group is not None and self.parent is not None:
            raise ValueError(
                f"{self.id}: a prompt begins with a group's prefix or with a parent's conversation, not both"
            )
        if self.abort_step is not None and self.abort_step < self.arrival_step:
            raise ValueError(f"{self.id}: abort_step {self.abort_step} is before arrival_step {self.arrival_step}")
        if self.prefix_len > self.prompt_len:
            raise ValueError(f"{self.id}: prefix_len {self.prefix_len} is longer than the prompt, {self.prompt_len}")
        return self


class SchedulerWorkload(BaseModel):
    """A workload of a scheduler: its settings and the requests, in order of arrival."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    config: WorkloadConfig
    requests: tuple[WorkloadRequest, ...]

    @model_validator(mode="after")
    def _check(self) -> "SchedulerWorkload":
        earlier: dict[str, WorkloadRequest] = {}
        arrival_step = 0
        for request in self.requests:
            if request.id in earlier:
                raise ValueError(f"{request.id}: two requests have this id")
            if request.arrival_step < arrival_step:
                raise ValueError(f"{request.id}: requests must stand in order of arrival_step")
            if request.prompt_len >= self.config.max_model_len:
                raise ValueError(
                    f"{request.id}: prompt_len {request.prompt_len} leaves no token below max_model_len "
                    f"{self.config.max_model_len}; vLLM's front end rejects it, leave it out"
                )
            self._check_parent(request, earlier)
            earlier[request.id] = request
            arrival_step = request.arrival_step
        return self

    @staticmethod
    def _check_parent(request: WorkloadRequest, earlier: dict[str, WorkloadRequest]) -> None:
        if request.parent is None:
            return
        if request.parent not in earlier:
            raise ValueError(f"{request.id}: parent {request.parent!r} is not an earlier request")
        parent = earlier[request.parent]
        head = parent.prompt_len + parent.output_len
        if head > request.prompt_len:
            raise ValueError(
                f"{request.id}: prompt_len {request.prompt_len} is shorter than its parent's conversation, {head}"
            )


def parse_workload(content: object, origin: str = "<workload>") -> SchedulerWorkload:
    """A workload from the parsed JSON of its file. Raises ScenarioError if it is not one."""
    return _validate(SchedulerWorkload, content, origin)


def parse_config(content: object, origin: str = "<config>") -> WorkloadConfig:
    """The scheduler's settings from parsed JSON. Raises ScenarioError if they are not."""
    return _validate(WorkloadConfig, content, origin)


def _validate(model: type[ModelT], content: object, origin: str) -> ModelT:
    try:
        return model.model_validate(content)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        message = first["msg"].removeprefix("Value error, ")
        raise ScenarioError(f"{origin}: {place + ': ' if place else ''}{message}") from None


def load_workload(path: Path) -> SchedulerWorkload:
    """Read `NAME.in.json`. Raises ScenarioError if it cannot be read or is not a workload."""
    return parse_workload(read_json(path), str(path))


def load_trace(path: Path) -> Json:
    """Read `NAME.trace.json` or `.json.gz`. Raises ScenarioError if it cannot be read or has no steps."""
    trace = read_json(path)
    steps = trace.get("steps") if isinstance(trace, dict) else None
    if not isinstance(trace, dict) or not isinstance(steps, list) or not all(isinstance(step, dict) for step in steps):
        raise ScenarioError(f"{path}: not a trace: it has no list of `steps`")
    return trace


def read_json(path: Path) -> object:
    """Parse a JSON file, gzipped if its name ends in `.gz`. Raises ScenarioError."""
    try:
        data = path.read_bytes()
        content: object = json.loads(gzip.decompress(data) if path.suffix == ".gz" else data)
    except FileNotFoundError:
        raise ScenarioError(f"{path}: no such file") from None
    except (OSError, EOFError) as error:
        raise ScenarioError(f"{path}: cannot be read: {error}") from None
    except ValueError as error:  # bad JSON or bad UTF-8
        raise ScenarioError(f"{path}: not JSON: {error}") from None
    return content
