"""Which profile a name means: its own, what `nvidia-smi` and torch print, or words by which people tell it."""

import re
from collections.abc import Iterator
from functools import cache

import yaml

from simserve.spec import resources
from simserve.spec.errors import ScenarioError
from simserve.spec.other_devices import other_device
from simserve.spec.strict import unknown

FILE = "names.yaml"
"""Profile -> what drivers call the card. Profiles that it does not name have no name but their own."""


def profile_named(name: str) -> str:
    """Profile of the catalogue that a name means: its own; what its driver says (`NVIDIA H20`); or words that are all
    among those of one profile and of no other, however written (`h100-sxm`, `H100 SXM`, `h100sxm`).

    Raises:
        ScenarioError: several fit, none does, or the device is not a GPU that simserve models.
    """
    known = resources.names("hardware_profiles")
    if name in known:
        return name
    asked = _words(name)
    drivers = names_of_drivers()
    fitting = [profile for profile, names in drivers.items() if asked in map(_words, names)]
    fitting = fitting or [profile for profile, words in _words_of_profiles().items() if asked and set(asked) <= words]
    if len(fitting) == 1:
        return fitting[0]
    if fitting:
        raise ScenarioError(f"{name} is {', '.join(fitting[:-1])} or {fitting[-1]}; name one")
    maker = other_device(frozenset(asked))
    if maker is not None:
        raise ScenarioError(
            f"{name!r} is {maker}: graphs and kernels are others there, simserve models GPUs of NVIDIA and AMD alone"
        )
    raise ScenarioError(f"{unknown('GPU', name, known)} (a GPU of your own is the path of its profile.yaml)")


@cache
def names_of_drivers() -> dict[str, list[str]]:
    """Profile -> what drivers call the card, those of the file that comes with simserve."""
    text = (resources.folder("hardware_profiles") / FILE).read_text(encoding="utf-8")
    names: dict[str, list[str]] = yaml.safe_load(text)
    return names


@cache
def _words_of_profiles() -> dict[str, frozenset[str]]:
    return {
        profile: frozenset(word for each in (profile, *names) for word in _spellings(each))
        for profile, names in sorted(names_of_drivers().items())
    }


def _words(name: str) -> list[str]:
    return [word for word in re.findall(r"[a-z0-9.]+", name.lower()) if word != "gpu"]


def _spellings(name: str) -> Iterator[str]:
    """Words of a name, and rows of them written as one: `rtx4090` of `rtx-4090-24gb`."""
    words = _words(name)
    for start in range(len(words)):
        for end in range(start + 1, len(words) + 1):
            yield "".join(words[start:end])
