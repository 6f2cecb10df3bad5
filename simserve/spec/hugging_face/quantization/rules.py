"""Which module of a checkpoint is in which number format, and that of the KV cache."""

from collections.abc import Callable
from typing import NamedTuple

from simserve.spec.errors import ScenarioError
from simserve.spec.hugging_face.keys import Keys
from simserve.spec.hugging_face.quantization.listed import BadEntryError, Listed
from simserve.spec.hugging_face.quantization.modules import Module, module
from simserve.spec.layers.weights import WeightFormat

FormatOf = Callable[[Module], WeightFormat | None]


class FormatRules(NamedTuple):
    """What one file says. `format_of`: the format of a module, None where it is not quantised; `kv_dtype`: that of the
    KV cache, None where it is the activations'; `lists`: the file's lists by their keys; `is_plain`: nothing is
    quantised.
    """

    format_of: FormatOf = lambda _: None
    kv_dtype: str | None = None
    warnings: tuple[str, ...] = ()
    lists: dict[str, Listed] = {}  # noqa: RUF012
    is_plain: bool = False

    def weights(self, name: str) -> WeightFormat | None:
        """Format of the module that the checkpoint calls so; None where it is not quantised."""
        return self.format_of(module(name))


PLAIN = FormatRules(is_plain=True)

REMEDY = "to simulate it all the same, state `weight_dtype` beside `config:`"


def refused(keys: Keys, key: str, what: str) -> ScenarioError:
    """The error for what vLLM does not serve or nobody has described here, with the way out."""
    return keys.error(key, f"{what}; {REMEDY}")


def listed(keys: Keys, *names: str, inside: bool = False) -> dict[str, Listed]:
    """A list of modules by its key; an empty one where the key is not there.

    Raises:
        ScenarioError: an entry is no text or no regular expression.
    """
    entries = keys.texts(*names)
    name = next((each for each in names if each in keys), names[0])
    try:
        return {name: Listed(entries, inside=inside)}
    except BadEntryError as error:
        raise keys.error(name, str(error)) from None


def all_but(lists: dict[str, Listed], format_of: FormatOf) -> FormatRules:
    """Formats of all modules that no list names."""

    def outside(module: Module) -> WeightFormat | None:
        return None if any(module in each for each in lists.values()) else format_of(module)

    return FormatRules(outside, lists=lists)


def linear(fmt: WeightFormat, *, head: bool = False, experts: WeightFormat | None = None) -> FormatOf:
    """One format for every linear layer, the output projection only with `head`; routed experts may have another."""

    def format_of(module: Module) -> WeightFormat | None:
        if module.is_head and not head:
            return None
        return experts if module.is_expert and experts is not None else fmt

    return format_of


def needed(keys: Keys, *spellings: tuple[str, ...]) -> None:
    """Refuse a section that lacks a key without which vLLM does not start.

    Raises:
        ScenarioError: one is missing.
    """
    for names in spellings:
        if not any(name in keys for name in names):
            raise refused(keys, names[0], "is missing, and vLLM 0.33 needs it")
