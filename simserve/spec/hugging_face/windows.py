"""Which layers look back on a window only, as lists, numbers and letters of a configuration say it."""

from simserve.spec.hugging_face.keys import Keys
from simserve.spec.hugging_face.latents import disagree
from simserve.spec.hugging_face.parts import FULL, SLIDING, with_windows
from simserve.spec.layers.attention import GroupedAttention
from simserve.spec.quantities import shown

_LOCAL, _GLOBAL = "L", "G"


def is_window(keys: Keys, layers: int, period: int, *spellings: str) -> list[bool]:
    """Whether each layer has a window: `layer_types` says so; where it is absent, the last of every `period` layers
    looks at all tokens. `spellings`: keys of the period, which is a number or letters: `LLLG` is three local layers,
    then a global one.

    Raises:
        ScenarioError: both are there and differ.
    """
    made = _by_turns(keys, layers, period, spellings)
    kinds = keys.words("layer_types", known=(FULL, SLIDING), length=layers)
    if kinds is None:
        return made
    stated = [kind == SLIDING for kind in kinds]
    if stated != made and any(name in keys for name in spellings):
        raise disagree(keys, "layer_types", " and ".join(spellings))
    return stated


def _by_turns(keys: Keys, layers: int, period: int, spellings: tuple[str, ...]) -> list[bool]:
    value = keys.value(*spellings) if spellings else None
    if not isinstance(value, str):
        every = period if value is None else keys.count(*spellings)
        return [(layer + 1) % every != 0 for layer in range(layers)]
    if not value or set(value) - {_LOCAL, _GLOBAL}:
        raise keys.error(spellings[0], f"expected a number, or letters L and G in turn, got {shown(value)}")
    return [value[layer % len(value)] == _LOCAL for layer in range(layers)]


def windowed(keys: Keys, attention: GroupedAttention, marks: list[bool], default: int | None) -> list[GroupedAttention]:
    """The attention of each layer; those that `marks` names look back on `sliding_window` tokens, which are `default`
    where the file does not say. A null or 0 is none, as vLLM has it.

    Raises:
        ScenarioError: there are such layers, and neither file nor class says how far they look.
    """
    window = keys.whole("sliding_window", default=default or 0, null=0)
    if any(marks) and default is None and "sliding_window" not in keys and not keys.is_null("sliding_window"):
        raise keys.error("sliding_window", "is needed and not given: the tokens that sliding layers look back on")
    return with_windows(attention, window, marks)
