"""The keys of a configuration, which remembers what has been read of it, so that nothing is passed over in silence."""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeVar

from simserve.spec.errors import ScenarioError
from simserve.spec.quantities import shown

Value = TypeVar("Value")

_MOST = 2**40
"""No size of a model is larger; what is would only overflow later."""


_MOST_FACTOR = 1024
"""No size of a model is multiplied or divided by more."""


class Keys:
    """One object of a configuration. A key that is null counts as absent. Several names of one key are its spellings:
    whichever stands there is read, and two that differ are an error.
    """

    def __init__(self, config: Mapping[str, Any], model: str, path: str = "config.json") -> None:
        self._config = config
        self.model = model
        self.path = path
        self._read: set[str] = set()
        self._sections: dict[str, Keys] = {}
        self._defaults: dict[str, object] = {}

    def __contains__(self, key: str) -> bool:
        """Whether a key stands there and is not null. It counts as read only once its value is asked for."""
        return self._config.get(key) is not None

    def value(self, *names: str) -> Any:
        """The value as it stands there; None where it does not."""
        self._read.update(names)
        found = {name: self._config[name] for name in names if self._config.get(name) is not None}
        values = list(found.values())
        if any(value != values[0] for value in values[1:]):
            said = " and ".join(f"{name}: {shown(value)}" for name, value in found.items())
            raise self.error(names[0], f"{said} are spellings of the same key and differ; leave one")
        return values[0] if values else None

    def is_null(self, *names: str) -> bool:
        """Whether one of the spellings stands there as null, and none with a value."""
        stated = [self._config[name] for name in names if name in self._config]
        return bool(stated) and all(value is None for value in stated)

    def count(self, *names: str, default: int | None = None, null: int | None = None) -> int:
        """A positive whole number; without a default it must be there. `null` is what the class makes of a null."""
        return self._whole(names, 1, "a positive whole number", default, null)

    def whole(self, *names: str, default: int | None = None, null: int | None = None) -> int:
        """A whole number, 0 allowed; without a default it must be there. `null` is what the class makes of a null."""
        return self._whole(names, 0, "a whole number", default, null)

    def _whole(self, names: Sequence[str], least: int, what: str, default: int | None, null: int | None) -> int:
        value = self.value(*names)
        if value is None:
            default = null if self.is_null(*names) else default
            if default is None:
                missing = "" if self.is_null(*names) else ", which the file lacks"
                raise self.error(
                    names[0], f"expected {what}, got null{missing}; state it in the file, or beside `config:`"
                )
            self._defaults[names[0]] = default
            return default
        name = next(each for each in names if self._config.get(each) is not None)
        self.check_whole(name, value, least, what)
        return int(value)

    def check_whole(self, key: str, value: object, least: int = 1, what: str = "a positive whole number") -> None:
        """Raise what is wrong with a value that should be a whole number."""
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= _MOST:
            raise self.error(key, f"expected {what}, got {shown(value)}")

    def number(self, *names: str, default: float | None = None) -> float:
        """A finite number; without a default it must be there."""
        value = self.value(*names)
        if value is None and default is not None:
            return default
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            raise self.error(names[0], f"expected a number, got {shown(value)}")
        return float(value)

    def factor(self, *names: str, default: float | None = None) -> float:
        """A positive number that a size is multiplied by, of a magnitude that no product overflows with."""
        value = self.number(*names, default=default)
        if not 1 / _MOST_FACTOR <= value <= _MOST_FACTOR:
            raise self.error(names[0], f"expected a factor from {1 / _MOST_FACTOR:g} to {_MOST_FACTOR}, got {value:g}")
        return value

    def flag(self, *names: str, default: bool) -> bool:
        """True or false."""
        value = self.value(*names)
        if value is None and not self.is_null(*names):
            self._defaults[names[0]] = default
            return default
        if not isinstance(value, bool):
            raise self.error(names[0], f"expected true or false, got {shown(value)}")
        return value

    def text(self, *names: str, default: str) -> str:
        """Some text."""
        value = self.value(*names)
        if value is None:
            return default
        if not isinstance(value, str):
            raise self.error(names[0], f"expected text, got {shown(value)}")
        return value

    def choice(self, name: str, choices: Sequence[str], default: str) -> str:
        """One of some words."""
        value = self.text(name, default=default)
        if value not in choices:
            raise self.error(name, f"expected one of {', '.join(choices)}, got {shown(value)}")
        return value

    def items(self, *names: str, length: int | None = None) -> list[Any] | None:
        """A list; None where it is not there. Of a longer one than `length` the first items, since drafting layers are
        appended to lists of layers; a shorter one is an error.
        """
        value = self.value(*names)
        if value is None:
            return None
        if not isinstance(value, list):
            raise self.error(names[0], f"expected a list, got {shown(value)}")
        if length is not None and len(value) < length:
            raise self.error(names[0], f"expected {length} items, one for each layer, got {len(value)}")
        return value[:length]

    def wholes(self, *names: str, length: int | None = None, least: int = 0) -> list[int] | None:
        """A list of whole numbers; None where it is not there."""
        items = self.items(*names, length=length)
        for item in items or ():
            self.check_whole(names[0], item, least, f"whole numbers, {least} or more, in the list")
        return items

    def words(self, *names: str, known: Sequence[str], length: int | None = None) -> list[str] | None:
        """A list of known words; None where it is not there."""
        items = self.items(*names, length=length)
        for item in items or ():
            if item not in known:
                raise self.error(names[0], f"expected {', '.join(known)} in the list, got {shown(item)}")
        return items

    def per_layer(self, *names: str, layers: int, default: int | None = None, least: int = 1) -> list[int]:
        """A whole number for each layer: one for all of them, or a list."""
        if isinstance(self.value(*names), list):
            found = self.wholes(*names, length=layers, least=least)
            assert found is not None
            return found
        what = "a positive whole number" if least else "a whole number"
        return [self._whole(names, least, f"{what} or a list of them", default, None)] * layers

    def texts(self, *names: str) -> list[str]:
        """A list of texts; empty where it is not there."""
        items = self.items(*names) or []
        for item in items:
            if not isinstance(item, str):
                raise self.error(names[0], f"expected a list of texts, got {shown(item)} in it")
        return items

    def section(self, *names: str) -> "Keys | None":
        """An object inside this one; None where it is not there."""
        value = self.value(*names)
        if value is None:
            return None
        if not isinstance(value, Mapping):
            raise self.error(names[0], f"expected a mapping, got {shown(value)}")
        name = next(each for each in names if self._config.get(each) is not None)
        if name not in self._sections:
            self._sections[name] = Keys(value, self.model, f"{self.path}: {name}")
        return self._sections[name]

    def with_defaults(self, defaults: Mapping[str, Any]) -> "Keys":
        """The same keys with values for those that are absent."""
        for key, value in defaults.items():
            if key not in self._config:
                self._config = {**self._config, key: value}
        return self

    def raw(self) -> Mapping[str, Any]:
        """All of it, none of it counted as read."""
        return self._config

    def know(self, *names: str) -> None:
        """Count keys as read: their values change nothing that is computed."""
        self._read.update(names)

    def opened(self) -> list["Keys"]:
        """All sections inside this one that were asked for."""
        return [each for section in self._sections.values() for each in (section, *section.opened())]

    def ignore(self, *names: str) -> None:
        """Count keys as read, here and in all sections that were opened: the user says that they change nothing."""
        for keys in (self, *self.opened()):
            keys.know(*names)

    def expect(self, name: str, *values: object, why: str) -> None:
        """Refuse a key whose value is another than those that are understood; absent is understood."""
        value = self.value(name)
        if value is not None and value not in values:
            raise self.error(name, f"{shown(value)} {why}")

    def unread(self) -> Iterator[tuple[str, str, object]]:
        """Place, key and value of all that nobody read and that says something, in this object and those inside."""
        for key, value in self._config.items():
            if key not in self._read and value is not None and not key.startswith("_"):
                yield self.path, key, value
        for section in self._sections.values():
            yield from section.unread()

    @property
    def defaults(self) -> dict[str, object]:
        """Keys that the file lacks, and what their class takes for them."""
        return dict(self._defaults)

    def error(self, key: str, what: str) -> ScenarioError:
        """The error that names model, place and key."""
        return ScenarioError(f"model {self.model}: {self.path}: {key}: {what}")
