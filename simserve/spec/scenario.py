"""The whole question: one model, one workload, one fleet, one engine. What the simulation reads, with every default resolved."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, Self

import yaml
from pydantic import BeforeValidator, Field, PrivateAttr, ValidationInfo, field_validator, model_validator
from pydantic_core import PydanticCustomError

from simserve.spec.catalogue import resolve_gpu, resolve_model
from simserve.spec.cluster import ClusterSpec
from simserve.spec.document import Document
from simserve.spec.engine import EngineSpec, engine_defaults
from simserve.spec.errors import ScenarioError
from simserve.spec.model import ModelSpec
from simserve.spec.quantities import Count
from simserve.spec.run import CostSpec, RunSpec
from simserve.spec.slo import SloSpec
from simserve.spec.strict import Strict
from simserve.spec.workload import WorkloadSpec


class Scenario(Strict):
    """A question, complete: nothing the simulation needs is left to a default elsewhere."""

    name: str = "scenario"
    description: str = ""
    seed: Count = 0
    model: ModelSpec
    workload: WorkloadSpec
    cluster: ClusterSpec
    engine: EngineSpec = Field(default_factory=dict, validate_default=True)  # type: ignore[arg-type]
    cost: CostSpec = Field(default_factory=dict, validate_default=True)  # type: ignore[arg-type]
    slo: SloSpec | None = None
    run: RunSpec = RunSpec()

    _document: Document | None = PrivateAttr(default=None)

    @field_validator("model", mode="before")
    @classmethod
    def _find_model(cls, value: Any) -> Any:
        return _custom(resolve_model, value)

    @field_validator("cluster", mode="before")
    @classmethod
    def _find_gpu(cls, value: Any) -> Any:
        if isinstance(value, Mapping) and "gpu" in value:
            return {**value, "gpu": _custom(resolve_gpu, value["gpu"], key="gpu")}
        return value

    @field_validator("engine", mode="before")
    @classmethod
    def _fill_engine(cls, value: Any, info: ValidationInfo) -> Any:
        if "model" not in info.data or "cluster" not in info.data:
            raise PydanticCustomError("skipped", "waits for the model and the GPU")
        value = {} if value is None else value
        return (
            engine_defaults(value, info.data["model"], info.data["cluster"].gpu)
            if isinstance(value, Mapping)
            else value
        )

    @field_validator("cost", mode="before")
    @classmethod
    def _fill_host(cls, value: Any, info: ValidationInfo) -> Any:
        if "cluster" not in info.data:
            raise PydanticCustomError("skipped", "waits for the GPU")
        value = {} if value is None else value
        if not isinstance(value, Mapping):
            return value
        stated = value.get("host")
        if stated is not None and not isinstance(stated, Mapping):
            return value
        return {**value, "host": {**info.data["cluster"].gpu.host.model_dump(), **(stated or {})}}

    @model_validator(mode="after")
    def _possible(self) -> Self:
        return self

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Scenario) and all(
            getattr(self, name) == getattr(other, name) for name in type(self).model_fields
        )

    __hash__: ClassVar[None] = None  # type: ignore[assignment]

    def remember(self, document: Document) -> None:
        """Keep the data as written, so that `with_overrides` resolves defaults anew."""
        object.__setattr__(self, "__pydantic_private__", {"_document": document})

    def with_overrides(self, overrides: Sequence[str]) -> "Scenario":
        """This scenario with `a.b.c=value` applied to what was written; defaults follow (another GPU brings its own limits).

        Raises:
            ScenarioError: the result is not a valid scenario.
        """
        from simserve.spec.load import build_scenario, parse_scenario

        if self._document is None:
            return parse_scenario(self.to_yaml(), overrides)
        return build_scenario(self._document, overrides)

    def to_yaml(self) -> str:
        """Resolved YAML: every value spelled out, no file needed beside traces; loads again to an equal scenario."""
        return yaml.safe_dump(
            self.model_dump(mode="json", by_alias=True), sort_keys=False, allow_unicode=True, width=160
        )


def _custom(resolve: Any, value: Any, **context: str) -> Any:
    try:
        return resolve(value)
    except ScenarioError as error:
        raise PydanticCustomError("unresolved", "{reason}", {"reason": str(error), **context}) from None
