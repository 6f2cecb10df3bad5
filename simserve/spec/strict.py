"""The base of everything a user writes: frozen, and a key that is not known is refused with the nearest one that is.

A key that the design names but that nothing computes yet is listed in `NOT_MODELLED` of its section and refused in those words, so that no
setting is ever taken in and ignored.
"""

import difflib
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, model_validator
from pydantic_core import PydanticCustomError


def nearest(word: str, known: Iterable[str]) -> str | None:
    """The known word that a typing error most likely meant."""
    by_case = {name.lower(): name for name in known}
    close = difflib.get_close_matches(word.lower(), by_case, n=1, cutoff=0.6)
    return by_case[close[0]] if close else None


class Strict(BaseModel):
    """Immutable section of a scenario or profile that knows all its keys."""

    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=False, populate_by_name=True)

    NOT_MODELLED: ClassVar[Mapping[str, str]] = {}
    """Key -> what it would be; refused as "not modelled yet"."""

    @model_validator(mode="before")
    @classmethod
    def _refuse_unknown_keys(cls, data: Any) -> Any:
        if isinstance(data, Mapping):
            known = {field.alias or name for name, field in cls.model_fields.items()}
            for key in data:
                if key in cls.NOT_MODELLED:
                    if data[key] is not None:
                        raise PydanticCustomError(
                            "not_modelled", "{what} is not modelled yet", {"what": cls.NOT_MODELLED[key], "key": key}
                        )
                elif key not in known and key not in cls.model_fields:
                    raise PydanticCustomError("unknown_key", "{reason}", {"reason": _unknown(key, known), "key": key})
            return {key: value for key, value in data.items() if key not in cls.NOT_MODELLED}
        return data


def _unknown(key: object, known: set[str]) -> str:
    near = nearest(str(key), known)
    remedy = f"did you mean {near!r}?" if near else f"known here: {', '.join(sorted(known))}"
    return f"unknown key {str(key)!r}, {remedy}"
