"""Which section of a checkpoint says how it is quantised, as vLLM 0.33 finds it, and what vLLM passes over.

Order and names: vLLM 0.33, transformers_utils/config.py and model_arch_config_convertor.py.
"""

from collections.abc import Mapping

from simserve.spec.errors import ScenarioError
from simserve.spec.hugging_face.keys import Keys
from simserve.spec.hugging_face.quantization.kv_cache import KvCache, of_compressed_tensors, of_modelopt, of_the_class
from simserve.spec.hugging_face.quantization.registry import method_named
from simserve.spec.hugging_face.quantization.rules import PLAIN, FormatRules, refused
from simserve.spec.quantities import shown

_BESIDE = "hf_quant_config.json"
_MODELOPT = "modelopt"
_NESTED = ("FP8", "FP8_PER_CHANNEL_PER_TOKEN", "FP8_PB_WO", "NVFP4", "MIXED_PRECISION")
"""Algorithms that vLLM takes from a section inside `quantization`."""


def format_rules(whole: Keys, text: Keys, beside: object = None, *, replaced: bool = False) -> FormatRules:
    """Rules of a configuration: of its `quantization_config`, or where it has none at the top of `hf_quant_config.json`
    `beside` it. `replaced`: the user states the format of the weights, so that only the KV cache is the file's.

    Raises:
        ScenarioError: a method or a format that is not known, or a key that makes no sense.
    """
    if beside is not None and not isinstance(beside, Mapping):
        raise ScenarioError(f"model {whole.model}: {_BESIDE}: expected a mapping, got {shown(beside)}")
    other = None if beside is None else Keys(beside, whole.model, _BESIDE)
    keys = whole.section("quantization_config")
    read = keys or other or _of_old(whole) or text.section("quantization_config") or _of_old(text)
    rules = PLAIN if read is None else (_replaced if replaced else _rules)(read, text, other)
    if keys is not None and other is not None:
        rules = rules._replace(warnings=(*rules.warnings, *_passed_over(keys, other, rules)))
    if read is other and other is not None and not replaced:
        _refuse_unread(other)
    cache = of_the_class(whole, text, KvCache(rules.kv_dtype))
    return rules._replace(kv_dtype=cache.dtype, warnings=(*rules.warnings, *cache.warnings))


def _of_old(keys: Keys) -> Keys | None:
    """The name that compressed-tensors once gave its section."""
    return keys.section("compression_config")


def _rules(keys: Keys, text: Keys, other: Keys | None) -> FormatRules:
    name = _method(keys)
    if not name:
        return _unquantised(keys)
    if name.startswith(_MODELOPT) and other is not None and _lacks_its_layers(keys):
        keys.know(*keys.raw())
        keys = other
    return method_named(keys, name)(keys, text)


def _method(keys: Keys) -> str:
    """Name of the method; empty where vLLM finds none and takes the model as it is."""
    name = keys.text("quant_method", default="").lower().replace("compressed_tensors", "compressed-tensors")
    inner = keys.section("quantization")
    if inner is None or not _is_of_modelopt(keys, inner):
        return name
    algorithm = inner.text("quant_algo", default="").upper()
    if algorithm and algorithm not in _NESTED:
        raise refused(inner, "quant_algo", f"{algorithm}: inside `quantization` vLLM 0.33 serves {', '.join(_NESTED)}")
    return _MODELOPT if algorithm else name


def _is_of_modelopt(keys: Keys, inner: Keys) -> bool:
    producer = keys.section("producer")
    named = producer is not None and producer.raw().get("name") == _MODELOPT
    if producer is not None:
        producer.know(*producer.raw())
    return named or "modelopt_quant_config" in inner


def _lacks_its_layers(keys: Keys) -> bool:
    mixed = str(keys.raw().get("quant_algo", "")).upper() == "MIXED_PRECISION"
    return mixed and "quantized_layers" not in keys


def _unquantised(keys: Keys) -> FormatRules:
    keys.know(*keys.raw())
    for inner in keys.opened():
        inner.know(*inner.raw())
    nested = keys.raw().get("quantization")
    algorithm = (nested if isinstance(nested, dict) else keys.raw()).get("quant_algo")
    if not keys.raw():
        return PLAIN
    asked = f", though it says {shown(algorithm)}" if algorithm else ""
    said = (
        f"{keys.path} names no quant_method{' and no producer' if 'producer' not in keys else ''}: vLLM 0.33 takes the "
        f"model as unquantised{asked}, and so it is counted; state `weight_dtype` to count it otherwise"
    )
    return PLAIN._replace(warnings=(said,))


def _replaced(keys: Keys, text: Keys, other: Keys | None) -> FormatRules:
    """Nothing but the KV cache, from a section whose weights the user states otherwise."""
    del other
    keys.know(*keys.raw())
    try:
        name = _method(keys)
        inner = keys.section("quantization") or keys
        cache = KvCache()
        if name.startswith(_MODELOPT):
            cache = of_modelopt(keys, inner)
        elif name == "compressed-tensors":
            cache = of_compressed_tensors(keys, text)
    except ScenarioError as error:
        cache = KvCache(None, (str(error),))
    for each in keys.opened():
        each.know(*each.raw())
    return PLAIN._replace(kv_dtype=cache.dtype, warnings=cache.warnings)


def _passed_over(keys: Keys, other: Keys, rules: FormatRules) -> list[str]:
    """What the file beside says that vLLM does not read, since config.json has a section of its own."""
    inner = other.raw().get("quantization")
    raw = inner if isinstance(inner, dict) else other.raw()
    asked, algorithm = raw.get("kv_cache_quant_algo"), raw.get("quant_algo")
    unread = f"{_BESIDE} beside config.json, which vLLM 0.33 does not read where that has a quantization_config"
    found = []
    if str(asked).upper() == "FP8" and rules.kv_dtype is None:
        found.append(f"an fp8 KV cache is asked for only by {unread}: it keeps the activations' format")
    if algorithm and "quant_algo" in keys and str(keys.raw()["quant_algo"]).upper() != str(algorithm).upper():
        found.append(f"quant_algo {shown(algorithm)} stands in {unread}: it is passed over")
    return found


def _refuse_unread(keys: Keys) -> None:
    unread = next(keys.unread(), None)
    if unread is not None:
        path, key, value = unread
        raise ScenarioError(
            f"model {keys.model}: {path}: {key}: {shown(value)}: not known, so what it changes is not guessed; "
            "take it out of the file if it changes nothing"
        )
