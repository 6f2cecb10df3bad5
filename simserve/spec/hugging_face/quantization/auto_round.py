"""AutoRound (Intel; Cheng et al., 2023, arXiv 2309.05516). Keys: vLLM 0.33, quantization/inc."""

import re

from simserve.spec.hugging_face.keys import Keys
from simserve.spec.hugging_face.quantization.awq import group_size
from simserve.spec.hugging_face.quantization.formats import INTEGERS, fp8_block, integers, mxfp4, mxfp8
from simserve.spec.hugging_face.quantization.modules import Module
from simserve.spec.hugging_face.quantization.rules import FormatRules, needed, refused
from simserve.spec.layers.weights import WeightFormat
from simserve.spec.quantities import shown

_OF_THE_MAKER = (
    *("iters", "seqlen", "nsamples", "batch_size", "gradient_accumulate_steps", "lr", "minmax_lr", "low_gpu_mem_usage"),
    *(
        "enable_quanted_input",
        "enable_minmax_tuning",
        "autoround_version",
        "amp",
        "scale_dtype",
        "dataset",
        "lr_scheduler",
    ),
    *("not_use_best_mse", "dynamic_max_gap", "enable_norm_bias_tuning", "enable_alg_ext", "enable_torch_compile"),
    *("act_bits", "act_group_size", "act_data_type", "act_sym", "act_dynamic", "activation_scheme", "fmt"),
    *("model_free", "desc_act", "damp_percent", "true_sequential"),
)
"""Keys of how the weights were found, and of activations, which change no size of a weight."""

_SPECIAL = set(r"*+?^$()[]{}|\\")
"""Signs by which vLLM knows an expression from a name."""
_PLAIN_BITS = 16


def auto_round(keys: Keys, text: Keys) -> FormatRules:
    """Groups of whole numbers, FP8 blocks or MX formats; `extra_config` has other bits for some modules.

    Raises:
        ScenarioError: a key is missing or makes no sense, or vLLM does not serve it.
    """
    del text
    needed(keys, ("bits",), ("group_size",))
    usual = _format(keys, keys)
    others = _others(keys)
    blocks = _blocks(keys)
    keys.know(*_OF_THE_MAKER)

    def format_of(module: Module) -> WeightFormat | None:
        names = (*module.names, *module.group)
        for expression, fmt in others:
            if any(expression.search(name) for name in names):
                return fmt
        inside = not blocks or any(name.startswith(block) for block in blocks for name in names)
        return usual if inside and not module.is_head else None

    return FormatRules(format_of)


def _format(keys: Keys, base: Keys) -> WeightFormat | None:
    """Format that some keys state, or where they lack one those of the whole file; None from 16 bit on."""

    def of(name: str) -> Keys:
        base.know(name)
        return keys if name in keys else base

    bits, kind = of("bits").count("bits"), of("data_type").text("data_type", default="int")
    layout = of("packing_format").text("packing_format", default="")
    keys.know("backend", "vllm_backend")
    if bits >= _PLAIN_BITS:
        keys.know("group_size", "sym")
        return None
    symmetric = of("sym").flag("sym", default=True)
    if "mx_fp" in kind and bits in {4, 8}:
        of("group_size").expect("group_size", 32, why="is no group of an MX format; 32 is")
        return mxfp4() if bits == 4 else mxfp8()
    if kind in {"fp", "fp8"}:
        block = of("group_size").wholes("group_size", least=1)
        if block is None or len(block) != 2:
            raise refused(keys, "group_size", f"{shown(block)}: vLLM 0.33 serves FP8 of AutoRound in blocks alone")
        return fp8_block(*block)
    if kind != "int" or bits not in INTEGERS:
        raise refused(keys, "bits", f"{bits} bits of {kind}: int with 4 and 8, fp8 and mx_fp are modelled")
    if "awq" not in layout and not symmetric:
        raise refused(keys, "sym", "false: vLLM 0.33 serves symmetric weights alone in the layout of GPTQ")
    group = group_size(of("group_size"), "group_size")
    return integers(bits, group, zeros=True)


def _others(keys: Keys) -> list[tuple[re.Pattern[str], WeightFormat | None]]:
    """Modules with a format of their own: by name, by the end of a name, or by an expression."""
    section = keys.section("extra_config")
    if section is None:
        return []
    found = []
    for name in section.raw():
        one = section.section(name)
        if one is None:
            continue
        one.know("act_bits", "act_group_size", "act_data_type", "act_sym", "act_dynamic", "scale_dtype")
        text = name if _SPECIAL & set(name) else rf"(^|\.){re.escape(name)}$"
        try:
            found.append((re.compile(text), _format(one, keys)))
        except re.error as error:
            raise section.error(name, f"is no regular expression: {error}") from None
    return found


def _blocks(keys: Keys) -> list[str]:
    """Beginnings of the names of quantised modules; none are all."""
    value = keys.value("block_name_to_quantize", "to_quant_block_names")
    if isinstance(value, str):
        return value.split(",")
    return keys.texts("block_name_to_quantize", "to_quant_block_names")
