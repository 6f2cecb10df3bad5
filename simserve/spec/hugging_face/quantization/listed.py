"""Lists of modules in a file: names, wildcards and regular expressions, and which of them name nothing."""

import re
from collections.abc import Iterable
from fnmatch import translate

from simserve.spec.hugging_face.quantization.modules import Module, group_of


class BadEntryError(ValueError):
    """An entry that is no regular expression."""


class Listed:
    """Modules that a list names. An entry is `re:` and a regular expression that a name begins with, a name with
    wildcards, or a plain name: of the module, of what it is in, or of one of the experts that it stands for. `inside`:
    a plain name also means all whose names contain it, wherever (AWQ, ModelOpt).

    Raises:
        BadEntryError: an entry is no regular expression.
    """

    def __init__(self, entries: Iterable[str], *, inside: bool = False) -> None:
        self.entries = tuple(dict.fromkeys(entries))
        self._inside = inside
        plain = [entry for entry in self.entries if not _is_pattern(entry)]
        self._plain = frozenset(plain)
        self._groups = frozenset(group_of(entry) for entry in plain if group_of(entry) != entry)
        self._wild = _compiled("|".join(_wild(entry) for entry in self.entries if _is_wild(entry)) or r"(?!)")
        self._expressions = [_compiled(_inner(entry)) for entry in self.entries if entry.startswith("re:")]

    def __contains__(self, module: Module) -> bool:
        """Whether the list names it."""
        if not self._plain.isdisjoint(module.above) or not self._groups.isdisjoint(module.group):
            return True
        names = (*module.names, *module.group)
        if any(each.match(name) for each in (self._wild, *self._expressions) for name in names):
            return True
        whole = module.group or module.names
        return self._inside and any(entry in name for entry in self._plain for name in whole)

    def is_used(self, entry: str, modules: Iterable[Module]) -> bool:
        """Whether an entry of it names one of some modules."""
        alone = Listed([entry], inside=self._inside)
        return any(module in alone for module in modules)


def _is_wild(entry: str) -> bool:
    return not entry.startswith("re:") and any(sign in entry for sign in "*?[")


def _is_pattern(entry: str) -> bool:
    return entry.startswith("re:") or _is_wild(entry)


def _inner(entry: str) -> str:
    return entry.removeprefix("re:")


def _wild(entry: str) -> str:
    """A wildcard means what it names and all that is in it."""
    return translate(entry) if entry.endswith("*") else f"{translate(entry)}|{translate(f'{entry}.*')}"


def _compiled(expression: str) -> re.Pattern[str]:
    try:
        return re.compile(expression)
    except re.error as error:
        raise BadEntryError(f"{expression!r} is no regular expression: {error}") from None
