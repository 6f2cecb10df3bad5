"""GPTQ (Frantar et al., 2022, arXiv 2210.17323) in the layout of AutoGPTQ and GPTQModel.

Keys: vLLM 0.33, quantization/auto_gptq.py and utils/gptq_utils.py.
"""

import re
from typing import NamedTuple

from simserve.spec.hugging_face.keys import Keys
from simserve.spec.hugging_face.quantization.awq import group_size
from simserve.spec.hugging_face.quantization.formats import INTEGERS, integers
from simserve.spec.hugging_face.quantization.modules import Module
from simserve.spec.hugging_face.quantization.rules import FormatRules, needed, refused
from simserve.spec.layers.weights import WeightFormat
from simserve.spec.quantities import shown

_OF_THE_MAKER = (
    *("damp_percent", "damp_auto_increment", "static_groups", "true_sequential", "model_name_or_path", "meta"),
    *("model_file_base_name", "checkpoint_format", "is_marlin_format", "use_exllama", "use_cuda_fp16", "quantizer"),
    *("max_input_length", "exllama_config", "disable_exllama", "tokenizer", "dataset", "batch_size", "pad_token_id"),
    *("module_name_preceding_first_block", "cache_block_outputs", "model_seqlen", "pack_dtype", "mse", "format"),
    *(
        "method",
        "pack_impl",
        "offload_to_disk",
        "failsafe",
        "act_order",
        "autoround_version",
        "act_group_aware",
        "hyb_act",
        "block_name_to_quantize",
    ),
)
"""Keys of how the weights were found and laid out, which change no size."""


class _Rule(NamedTuple):
    """Format of all modules whose names an expression matches; None is not quantised."""

    expression: re.Pattern[str]
    format: WeightFormat | None


def gptq(keys: Keys, text: Keys) -> FormatRules:
    """Symmetric groups of 4 or 8 bits, by `dynamic` others for some modules.

    Raises:
        ScenarioError: a key is missing or makes no sense, or vLLM does not serve it.
    """
    del text
    needed(keys, ("bits",), ("group_size",), ("desc_act",), ("sym",))
    usual = _format(keys, keys)
    rules, parts = _rules(keys), _parts(keys)
    keys.know(*_OF_THE_MAKER)
    head = keys.flag("lm_head", default=False)

    def format_of(module: Module) -> WeightFormat | None:
        names = (*module.names, *module.group)
        left_out = parts and not module.is_expert and not any(part in name for part in parts for name in names)
        if left_out or (module.is_head and not head):
            return None
        hit = next((rule for rule in rules if any(rule.expression.match(name) for name in names)), None)
        return usual if hit is None else hit.format

    return FormatRules(format_of)


def _format(keys: Keys, base: Keys) -> WeightFormat:
    """Format that some keys state, or where they lack one those of the whole file."""

    def of(name: str) -> Keys:
        base.know(name)
        return keys if name in keys else base

    bits, group = of("bits").count("bits"), group_size(of("group_size"), "group_size")
    if of("desc_act").flag("desc_act", default=False) and group != -1:
        raise refused(keys, "desc_act", "true: vLLM 0.33 serves GPTQ without activation ordering alone")
    if not of("sym").flag("sym", default=True):
        raise refused(keys, "sym", "false: vLLM 0.33 serves symmetric GPTQ alone")
    if bits not in INTEGERS:
        raise refused(keys, "bits", f"GPTQ with {bits} bits: vLLM 0.33 serves 4 and 8")
    return integers(bits, group, zeros=True, table=group > 0)


def _rules(keys: Keys) -> list[_Rule]:
    """Rules of `dynamic`: an expression that begins with `-:` takes modules out."""
    section = keys.section("dynamic")
    if section is None:
        return []
    found = []
    for pattern in section.raw():
        section.know(pattern)
        try:
            expression = re.compile(pattern.removeprefix("-:").removeprefix("+:"))
        except re.error as error:
            raise section.error(pattern, f"is no regular expression: {error}") from None
        one = None if pattern.startswith("-:") else section.section(pattern)
        found.append(_Rule(expression, None if one is None else _format(one, keys)))
    return found


def _parts(keys: Keys) -> list[str]:
    """Texts of which a quantised module has one in its name; none are all, and routed experts always are. The file may
    have lists in the list.
    """
    found: list[str] = []
    for item in keys.items("modules_in_block_to_quantize") or ():
        found += item if isinstance(item, list) else [item]
    for each in found:
        if not isinstance(each, str):
            raise keys.error("modules_in_block_to_quantize", f"expected texts, got {shown(each)}")
    return found
