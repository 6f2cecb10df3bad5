"""Which layers look back on a window only, as lists, numbers and letters of a configuration say it."""

from simserve.spec.hugging_face.keys import Keys
from simserve.spec.hugging_face.latents import disagree
from simserve.spec.hugging_face.parts import FULL, SLIDING, with_windows
from simserve.spec.layers.attention import GroupedAttention
from simserve.spec.quantities import shown

_LOCAL, _GLOBAL = "L", "G"


def is_window(keys: Keys, layers: int, period: int, *spellings: str) -> list[bool]:
    """Whether each layer has a window: `layer_types` says so; where it is absent, the last of every `period` layers
    looks at all tokens, and with a period of 0 all layers do. `spellings`: keys of the period, a number or letters:
    `LLLG` is three local layers, then a global one.

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
        every = period if value is None else keys.whole(*spellings)
        return [every > 0 and (layer + 1) % every != 0 for layer in range(layers)]
    if not value or set(value) - {_LOCAL, _GLOBAL}:
        raise keys.error(spellings[0], f"expected a number, or letters L and G in turn, got {shown(value)}")
    return [value[layer % len(value)] == _LOCAL for layer in range(layers)]


def windowed(
    keys: Keys, attention: GroupedAttention, marks: list[bool], default: int | None, *spellings: str
) -> list[GroupedAttention]:
    """The attention of each layer; those that `marks` names look back on `sliding_window` tokens (other names:
    `spellings`), which are `default` where the file does not say. A null or 0 is none, as vLLM has it.

    Raises:
        ScenarioError: there are such layers, and neither file nor class says how far they look.
    """
    names = ("sliding_window", *spellings)
    window = keys.whole(*names, default=default or 0, null=0)
    unsaid = default is None and not keys.is_null(*names) and not any(name in keys for name in names)
    if any(marks) and unsaid:
        raise keys.error("sliding_window", "is needed and not given: the tokens that sliding layers look back on")
    return with_windows(attention, window, marks)


def last_ones_read(
    keys: Keys, attentions: list[GroupedAttention], kinds: list[str], last: int
) -> list[GroupedAttention]:
    """The attentions, of which the `last` ones read keys and values of an earlier layer of their kind
    (`num_kv_shared_layers`).

    Raises:
        ScenarioError: there is no such layer before them.
    """
    own = len(kinds) - last
    if own <= 0 or set(kinds) != set(kinds[:own]):
        raise keys.error(
            "num_kv_shared_layers", f"{last} of {len(kinds)} leave no layer of some kind whose keys they could read"
        )
    reader = {"shares_kv": True, "keys_are_values": False}
    return [*attentions[:own], *(each.model_copy(update=reader) for each in attentions[own:])]
