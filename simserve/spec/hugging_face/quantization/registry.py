"""The list of all ways to quantise: a further one is a file of its own and a line here."""

from collections.abc import Callable

from simserve.spec.hugging_face.keys import Keys
from simserve.spec.hugging_face.quantization.auto_round import auto_round
from simserve.spec.hugging_face.quantization.awq import awq
from simserve.spec.hugging_face.quantization.compressed_tensors import compressed_tensors
from simserve.spec.hugging_face.quantization.fp8 import fbgemm_fp8, fp8
from simserve.spec.hugging_face.quantization.gptq import gptq
from simserve.spec.hugging_face.quantization.modelopt import modelopt, mxfp8_of_minimax
from simserve.spec.hugging_face.quantization.mxfp4 import mxfp4
from simserve.spec.hugging_face.quantization.quark import quark
from simserve.spec.hugging_face.quantization.rules import FormatRules, refused
from simserve.spec.hugging_face.quantization.torchao import torchao
from simserve.spec.strict import nearest

Method = Callable[[Keys, Keys], FormatRules]
"""From the section that says how weights are quantised, and the keys of the language model, to its rules."""

METHODS: dict[str, Method] = {
    "auto-round": auto_round,
    "auto_awq": awq,
    "auto_gptq": gptq,
    "awq": awq,
    "awq_marlin": awq,
    "compressed-tensors": compressed_tensors,
    "deepseek_v4_fp8": fp8,
    "fbgemm_fp8": fbgemm_fp8,
    "fp8": fp8,
    "gptq": gptq,
    "gptq_marlin": gptq,
    "inc": auto_round,
    "modelopt": modelopt,
    "modelopt_fp4": modelopt,
    "modelopt_mixed": modelopt,
    "modelopt_mxfp8": modelopt,
    "mxfp4": mxfp4,
    "mxfp8": mxfp8_of_minimax,
    "quark": quark,
    "torchao": torchao,
}
"""By `quant_method`, as vLLM 0.33 knows it."""

_NO_METHOD = "vLLM 0.33 has no method for it"
_NOT_MODELLED = "its formats are not modelled"

_WITHOUT_METHOD = (
    *("aqlm", "auto_round", "bitblas", "bitnet", "bitsandbytes", "deepspeedfp", "eetq", "fouroversix", "gguf", "higgs"),
    *("hqq", "intel/auto-round", "marlin", "nvfp4", "quanto", "quip", "sinq", "spqr", "squeezellm", "tpu_int8", "vptq"),
)
_WITHOUT_MODEL = ("experts_int8", "fp_quant", "humming", "moe_wna16", "online")

REFUSED = {**dict.fromkeys(_WITHOUT_METHOD, _NO_METHOD), **dict.fromkeys(_WITHOUT_MODEL, _NOT_MODELLED)}
"""Methods that are known and not read, and why."""


def method_named(keys: Keys, name: str) -> Method:
    """The method of a `quant_method`.

    Raises:
        ScenarioError: there is none, or it is not read.
    """
    found = METHODS.get(name)
    if found is not None:
        return found
    if name in REFUSED:
        raise refused(keys, "quant_method", f"{name}: {REFUSED[name]}")
    near = nearest(name, list(METHODS))
    raise refused(keys, "quant_method", f"{name} is not known" + (f" (did you mean {near}?)" if near else ""))
