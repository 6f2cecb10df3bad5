"""How many tokens: the length distributions a scenario can name. `simserve.workload.lengths` draws from them."""

from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, GetCoreSchemaHandler, GetJsonSchemaHandler, model_validator
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from simserve.spec.quantities import PositiveCount, PositiveNumber
from simserve.spec.resources import data_path
from simserve.spec.strict import Strict


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
        _check_mean(self.mean, self.min, self.max)
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
        _check_mean(self.mean, self.min, self.max)
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


def _check_mean(mean: float, low: int, high: int | None) -> None:
    """Refuse a mean that no lengths between the bounds can have."""
    if mean < low or (high is not None and mean > high):
        bounds = f"min {low}" if mean < low else f"max {high}"
        problem = f"mean {mean:g} cannot be the mean of lengths clipped to {bounds}; change one of them"
        raise PydanticCustomError("mean", "{problem}", {"problem": problem})


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
