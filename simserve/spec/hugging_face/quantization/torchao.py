"""torchao: PyTorch's own formats, one for all linear layers or one for each that is named; routed experts stay as they
are. Keys: vLLM 0.33, quantization/torchao.py.
"""

import re
from collections.abc import Callable

from simserve.spec.hugging_face.keys import Keys
from simserve.spec.hugging_face.quantization.formats import fp8_channel, fp8_tensor, integers
from simserve.spec.hugging_face.quantization.modules import Module
from simserve.spec.hugging_face.quantization.rules import FormatRules, needed, refused
from simserve.spec.layers.weights import WeightFormat

_GROUP = 128
_BY_NAME = "ModuleFqnToConfig"
_DEFAULT = "_default"


def torchao(keys: Keys, text: Keys) -> FormatRules:
    """The configuration under `quant_type`.

    Raises:
        ScenarioError: a key is missing or makes no sense, or a format that is not modelled.
    """
    del text
    needed(keys, ("quant_type",))
    outer = keys.section("quant_type")
    found = None if outer is None else outer.section("default")
    if found is None:
        raise refused(keys, "quant_type", "has no `default`, and vLLM 0.33 reads that alone")
    format_of = _by_name(found) if found.text("_type", default="") == _BY_NAME else _for_all(found)
    skipped = keys.texts("modules_to_not_convert")
    keys.know("quant_type_kwargs", "include_input_output_embeddings", "untie_embedding_weights", "autoquant_cache")

    def outside(module: Module) -> WeightFormat | None:
        if module.is_head or module.is_expert or any(_is_part(part, name) for part in skipped for name in module.names):
            return None
        return format_of(module)

    return FormatRules(outside)


def _is_part(part: str, name: str) -> bool:
    """Whether some whole parts of a name are these."""
    return f".{part}." in f".{name}."


def _for_all(keys: Keys) -> Callable[[Module], WeightFormat | None]:
    fmt = _format(keys)
    return lambda _: fmt


def _by_name(keys: Keys) -> Callable[[Module], WeightFormat | None]:
    """Formats by names, by expressions (`re:`) that match all of a name, and for the rest; null is not quantised."""
    keys.know("_version")
    data = keys.section("_data")
    named = None if data is None else data.section("module_fqn_to_config")
    if named is None:
        raise keys.error("_data", "has no module_fqn_to_config")
    exact: dict[str, WeightFormat | None] = {}
    expressions: list[tuple[re.Pattern[str], WeightFormat | None]] = []
    for name in named.raw():
        one = named.section(name)
        fmt = None if one is None else _format(one)
        try:
            expressions += [(re.compile(name.removeprefix("re:")), fmt)] if name.startswith("re:") else []
        except re.error as error:
            raise named.error(name, f"is no regular expression: {error}") from None
        exact[name] = fmt

    def format_of(module: Module) -> WeightFormat | None:
        by_name = [exact[name] for name in module.names if name in exact]
        by_form = [fmt for each, fmt in expressions if any(each.fullmatch(name) for name in module.names)]
        return next(iter([*by_name, *by_form]), exact.get(_DEFAULT))

    return format_of


def _format(keys: Keys) -> WeightFormat:
    """The format of one configuration, by the name of its class in torchao."""
    keys.know("_version")
    name, data = keys.text("_type", default=""), keys.section("_data")
    raw = {} if data is None else data.raw()
    if data is not None:
        data.know(*raw)
    match name:
        case "Int4WeightOnlyConfig":
            group = _GROUP if data is None else data.count("group_size", default=_GROUP)
            return WeightFormat(dtype="int4", scale_bytes=4 / group, weight_only=True)  # a scale and a zero in 16 bit
        case "Int8WeightOnlyConfig" | "Int8DynamicActivationInt8WeightConfig":
            return integers(8, -1, zeros=False, weight_only="WeightOnly" in name)
        case "Float8WeightOnlyConfig":
            return fp8_channel(weight_only=True)
        case "Float8DynamicActivationFloat8WeightConfig":
            return fp8_channel() if "PerRow" in str(raw.get("granularity")) else fp8_tensor()
    said = (
        "Int4WeightOnlyConfig, Int8WeightOnlyConfig, Float8WeightOnlyConfig and dynamic activations in int8 and float8"
    )
    raise refused(keys, "_type", f"{name or 'null'} is not modelled; {said} are")
