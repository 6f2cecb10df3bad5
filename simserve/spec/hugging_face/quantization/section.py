"""Which section of a checkpoint says how it is quantised, as vLLM 0.33 finds it, and what vLLM passes over.

Order and names: vLLM 0.33, transformers_utils/config.py and model_arch_config_convertor.py.
"""

from collections.abc import Mapping

from simserve.spec.errors import ScenarioError
from simserve.spec.hugging_face.keys import Keys
from simserve.spec.hugging_face.quantization.compressed_tensors import experts_alone
from simserve.spec.hugging_face.quantization.kv_cache import (
    KvCache,
    classes,
    of_compressed_tensors,
    of_modelopt,
    of_the_class,
)
from simserve.spec.hugging_face.quantization.registry import method_named
from simserve.spec.hugging_face.quantization.rules import PLAIN, FormatRules, refused
from simserve.spec.quantities import shown

_BESIDE = "hf_quant_config.json"
_NAME, _OLD = "quantization_config", "compression_config"
"""Where a configuration says it; the second is what compressed-tensors once called it."""
_MODELOPT = "modelopt"
_KIMI_K3, _MXFP4 = "KimiK3ForConditionalGeneration", "mxfp4-pack-quantized"
"""A class that has such experts read by another method (models/config.py)."""
_NVFP4_GROUP = 16
"""Weights that share a scale in NVFP4, where a section leaves it out."""
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
    found = [whole.section(_NAME), other, whole.section(_OLD), text.section(_NAME), text.section(_OLD)]
    read, *others = dict.fromkeys(each for each in found if each is not None) or [None]
    if read is None:
        rules = PLAIN
    elif replaced:
        rules = _kv_cache_alone(read, text)
    else:
        rules = _rules(read, whole, text, other)
    if other is not None and read is other and not replaced:
        _refuse_unread(other)
    passed_over = [said for each in others if each is not None for said in _passed_over(each, read, rules)]
    cache = of_the_class(whole, text, KvCache(rules.kv_dtype))
    return rules._replace(kv_dtype=cache.dtype, warnings=(*rules.warnings, *passed_over, *cache.warnings))


def _rules(keys: Keys, whole: Keys, text: Keys, other: Keys | None) -> FormatRules:
    name = _method(keys)
    if not name:
        return _unnamed(keys, text)
    if name.startswith(_MODELOPT) and other is not None and _lacks_its_layers(keys):
        return _with_layers_of(other, keys, text)
    if name == "compressed-tensors" and keys.raw().get("format") == _MXFP4 and _KIMI_K3 in classes(whole, text):
        return experts_alone(keys, text)
    return method_named(keys, name)(keys, text)


def _with_layers_of(other: Keys, keys: Keys, text: Keys) -> FormatRules:
    """Formats that the file beside names by module, where config.json does not; the KV cache is config.json's."""
    keys.know(*keys.raw())
    rules = method_named(other, _MODELOPT)(other, text)
    _refuse_unread(other)
    cache = of_modelopt(keys, keys)
    return rules._replace(kv_dtype=cache.dtype, warnings=cache.warnings)


def _method(keys: Keys) -> str:
    """Name of the method; empty where vLLM finds none."""
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


def _unnamed(keys: Keys, text: Keys) -> FormatRules:
    """Formats of a section that names no method. vLLM passes it over, yet the weights of the checkpoint are what it
    says: they are counted so, and that is said. The KV cache is as vLLM has it.
    """
    raw = keys.raw()
    nested = raw.get("quantization")
    said = nested if isinstance(nested, Mapping) else raw
    algorithm, cache = said.get("quant_algo"), said.get("kv_cache_quant_algo")
    keys.know(*raw)
    for inner in keys.opened():
        inner.know(*inner.raw())
    if not algorithm:
        return PLAIN
    as_usual = {"quant_algo": algorithm, "group_size": said.get("group_size", _NVFP4_GROUP)}
    as_usual["exclude_modules"] = said.get("exclude_modules", ["lm_head"])
    rules = method_named(keys, _MODELOPT)(Keys(as_usual, keys.model, keys.path), text)
    producer = "" if "producer" in raw else " and no producer"
    also = f", and its KV cache, for which it asks {shown(cache)}, in the activations' format" if cache else ""
    warning = (
        f"{keys.path} says {shown(algorithm)} but names no quant_method{producer}: the weights are counted in that "
        f"format; vLLM 0.33 passes the section over and takes them as unquantised{also}"
    )
    return rules._replace(kv_dtype=None, warnings=(*rules.warnings, warning))


def _kv_cache_alone(keys: Keys, text: Keys) -> FormatRules:
    """What a section says of the KV cache, where the user states the weights."""
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


def _passed_over(keys: Keys, read: Keys | None, rules: FormatRules) -> list[str]:
    """What another section or file says that vLLM does not read, since it reads the one before it."""
    keys.know(*keys.raw())
    inner = keys.raw().get("quantization")
    raw = inner if isinstance(inner, Mapping) else keys.raw()
    cache, own = raw.get("kv_cache_quant_algo"), {} if read is None else read.raw()
    where = f"{keys.path}, which vLLM 0.33 does not read beside {read.path if read else 'another'}"
    found = []
    if str(cache).upper() == "FP8" and rules.kv_dtype is None:
        found.append(f"an fp8 KV cache is asked for only by {where}: it keeps the activations' format")
    for key in ("quant_method", "quant_algo"):
        said, others = str(own.get(key) or "").upper(), str(raw.get(key) or "").upper()
        if others and said != others and (said or (key == "quant_algo" and not own.get("quant_method"))):
            found.append(f"{key} {shown(raw[key])} stands in {where}: it is passed over")
    return found


def _refuse_unread(keys: Keys) -> None:
    unread = next(keys.unread(), None)
    if unread is not None:
        path, key, value = unread
        raise ScenarioError(
            f"model {keys.model}: {path}: {key}: {shown(value)}: not known, so what it changes is not guessed; "
            "take it out of the file if it changes nothing"
        )
