"""The whole question: one model, one workload, one fleet, one engine, with every default resolved."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Self

import yaml
from pydantic import Field, PrivateAttr, ValidationError, ValidationInfo, field_validator, model_validator
from pydantic_core import PydanticCustomError

from simserve.spec.catalogue import resolve_model
from simserve.spec.cluster import ClusterSpec
from simserve.spec.complaints import describe
from simserve.spec.data_files import with_absolute_files
from simserve.spec.deployable import problems
from simserve.spec.document import Document, parse_document
from simserve.spec.engine import EngineSpec, fill_engine
from simserve.spec.errors import ScenarioError
from simserve.spec.gpus import resolve_gpu
from simserve.spec.hardware import GpuSpec
from simserve.spec.model import ModelSpec
from simserve.spec.overlay import apply_override
from simserve.spec.pools import fill_pools, hand_down_engine
from simserve.spec.quantities import Count
from simserve.spec.run import CostSpec, RunSpec
from simserve.spec.slo import SloSpec
from simserve.spec.strict import Strict
from simserve.spec.workload import WorkloadSpec


class Scenario(Strict):
    """A question, complete: nothing that the simulation needs is left to a default elsewhere."""

    name: str = "scenario"
    description: str = ""
    seed: Count = 0
    model: ModelSpec
    workload: WorkloadSpec
    cluster: ClusterSpec
    engine: EngineSpec = Field(default_factory=dict, validate_default=True)
    cost: CostSpec = Field(default_factory=dict, validate_default=True)
    slo: SloSpec | None = None
    run: RunSpec = RunSpec()

    _document: Document | None = PrivateAttr(default=None)

    __hash__: ClassVar[None] = None  # type: ignore[assignment]

    @model_validator(mode="before")
    @classmethod
    def _hand_down_engine(cls, data: Any) -> Any:
        return hand_down_engine(data)

    @field_validator("model", mode="before")
    @classmethod
    def _find_model(cls, value: Any) -> Any:
        return _resolved(resolve_model, value)

    @field_validator("cluster", mode="before")
    @classmethod
    def _find_gpu(cls, value: Any, info: ValidationInfo) -> Any:
        if not isinstance(value, Mapping) or "gpu" not in value:
            return value
        value = {**value, "gpu": _resolved(resolve_gpu, value["gpu"], key="gpu")}
        if value.get("pools") is None:
            return value
        gpu = GpuSpec.model_validate(value["gpu"])
        stages = value.get("pipeline_parallel") or 1
        return _section(value, info, "model") | {"pools": fill_pools(value["pools"], info.data["model"], gpu, stages)}

    @field_validator("engine", mode="before")
    @classmethod
    def _fill_engine(cls, value: Any, info: ValidationInfo) -> Any:
        value = _section(value, info, "model", "cluster")
        if not isinstance(value, Mapping):
            return value
        cluster = info.data["cluster"]
        return fill_engine(value, info.data["model"], cluster.gpu, cluster.pipeline_parallel)

    @field_validator("cost", mode="before")
    @classmethod
    def _fill_host(cls, value: Any, info: ValidationInfo) -> Any:
        value = _section(value, info, "cluster")
        host = value.get("host") or {} if isinstance(value, Mapping) else None
        if not isinstance(host, Mapping):
            return value
        return {**value, "host": {**info.data["cluster"].gpu.host.model_dump(), **host}}

    @classmethod
    def explain_unknown(cls, key: str) -> str:
        """As for any section, but a key of one of the sections is sent there."""
        sections: dict[str, type[Strict]] = {"workload": WorkloadSpec, "cluster": ClusterSpec, "engine": EngineSpec}
        home = next((name for name, section in sections.items() if key in section.key_names()), None)
        return f"belongs under {home}:" if home else super().explain_unknown(key)

    @model_validator(mode="after")
    def _deployable(self) -> Self:
        found = list(problems(self.model, self.cluster, self.engine, self.cost, self.run))
        trace = self.workload.trace
        if trace is not None and not trace.path.is_file():
            found.append(("workload.trace.file", f"no such file: {trace.path}"))
        if found:
            raise PydanticCustomError("not_deployable", "cannot be deployed", {"problems": found})
        return self

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Scenario):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in type(self).model_fields)

    def of_pool(self, name: str) -> "Scenario":
        """The same question to one of the pools alone, `prefill` or `decode`: its replicas, its engine."""
        engine = getattr(self.cluster.pools, name).engine
        return self.model_copy(update={"cluster": self.cluster.of_pool(name), "engine": engine})

    @classmethod
    def of(cls, document: Document, overrides: Sequence[str] = ()) -> "Scenario":
        """Scenario of merged data with `a.b.c=value` applied; it keeps them as written, so that later overrides resolve
        the defaults anew.

        Raises:
            ScenarioError: an override is malformed, or the result is not a valid scenario; one line per problem.
        """
        for override in overrides:
            document = apply_override(document, override)
        if overrides:
            document = with_absolute_files(document, Path.cwd())
        try:
            scenario = cls.model_validate(document.data)
        except ValidationError as error:
            raise ScenarioError(describe(error, document)) from None
        assert scenario.__pydantic_private__ is not None
        scenario.__pydantic_private__["_document"] = document
        return scenario

    def with_overrides(self, overrides: Sequence[str]) -> "Scenario":
        """This scenario with `a.b.c=value` applied to what was written; defaults follow: another GPU brings its own.

        Raises:
            ScenarioError: an override is malformed, or the result is not a valid scenario.
        """
        document = self._document
        if document is None:
            document = with_absolute_files(parse_document(self.to_yaml(), "<text>"), Path.cwd())
        return Scenario.of(document, overrides)

    def to_yaml(self) -> str:
        """Every value spelled out, no file needed beside those of data; loads again to an equal scenario."""
        data = _with_whole_keys(self.model_dump(mode="json", by_alias=True))
        dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
        return str(
            yaml.dump(data, Dumper=dumper, sort_keys=False, allow_unicode=True, width=120, default_flow_style=None)
        )


def _section(value: Any, info: ValidationInfo, *needed: str) -> Any:
    """The section as it stands; silent where a section that it depends on is already in error."""
    if any(name not in info.data for name in needed):
        raise PydanticCustomError("skipped", "waits for {needed}", {"needed": ", ".join(needed)})
    return value


def _resolved(resolve: Callable[[Any], Any], value: Any, **context: str) -> Any:
    try:
        return resolve(value)
    except ScenarioError as error:
        raise PydanticCustomError("unresolved", "{reason}", {"reason": str(error), **context}) from None


def _with_whole_keys(value: Any) -> Any:
    """JSON data with the whole numbers among its keys restored."""
    if isinstance(value, dict):
        return {int(key) if key.isdigit() else key: _with_whole_keys(item) for key, item in value.items()}
    return [_with_whole_keys(item) for item in value] if isinstance(value, list) else value
