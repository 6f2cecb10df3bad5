"""The base of everything a user writes: frozen, and a key that is not known is refused together with the nearest one.

What the design names but nothing computes yet is listed in `NOT_MODELLED` of its section and refused in those words, so
that no setting is ever taken in and ignored.
"""

import difflib
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, model_validator
from pydantic_core import PydanticCustomError


def nearest(word: str, known: Iterable[str]) -> str | None:
    """The known word that was most likely meant: one of the two begins with the other, or they are spelled alike."""
    by_case = {name.lower(): name for name in known}
    word = word.lower()
    longer = [name for name in by_case if word and (name.startswith(word) or word.startswith(name))]
    close = sorted(longer, key=len)[-1:] or difflib.get_close_matches(word, by_case, n=1, cutoff=0.6)
    return by_case[close[0]] if close else None


class Strict(BaseModel):
    """Immutable section of a scenario or profile that knows all its keys."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    NOT_MODELLED: ClassVar[Mapping[str, str]] = {}
    """`key`, or `key=value`, of a setting that nothing computes yet -> what it would be."""

    @model_validator(mode="before")
    @classmethod
    def _know_all_keys(cls, data: Any) -> Any:
        if not isinstance(data, Mapping):
            return data
        known = cls.key_names()
        for key, value in data.items():
            what = cls.NOT_MODELLED.get(str(key)) or cls.NOT_MODELLED.get(f"{key}={value}")
            if what and value is not None:
                raise PydanticCustomError("not_modelled", "{what} is not modelled yet", {"what": what, "key": key})
            if not what and key not in known:
                reason = cls.explain_unknown(str(key))
                raise PydanticCustomError("unknown_key", "{reason}", {"reason": reason, "key": key})
        return {key: value for key, value in data.items() if key in known and not cls._is_default(key, value)}

    @classmethod
    def _is_default(cls, key: str, value: object) -> bool:
        """Whether the value is null in a field that has a default; so `null` takes a setting of a base file back."""
        fields = (field for name, field in cls.model_fields.items() if (field.alias or name) == key)
        return value is None and not next(fields).is_required()

    @classmethod
    def explain_unknown(cls, key: str) -> str:
        """What to say of a key that this section does not have."""
        return unknown("key", key, cls.key_names())

    @classmethod
    def key_names(cls) -> list[str]:
        """Names of the fields as a user writes them."""
        return [field.alias or name for name, field in cls.model_fields.items()]


_MOST_NAMED = 40
"""Known words that an error lists; of more it gives the number."""


def unknown(kind: str, word: str, known: Iterable[str]) -> str:
    """What to say of a word that is not among the known ones."""
    known = list(known)
    near = nearest(word, known)
    if near:
        return f"unknown {kind} {word!r}; did you mean {near!r}?"
    more = f" and {len(known) - _MOST_NAMED} more" if len(known) > _MOST_NAMED else ""
    return f"unknown {kind} {word!r}; known: {', '.join(known[:_MOST_NAMED])}{more}"
