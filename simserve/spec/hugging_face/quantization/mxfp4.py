"""MXFP4 of the routed experts alone, as gpt-oss is published. Keys: vLLM 0.33, quantization/mxfp4.py."""

from simserve.spec.hugging_face.keys import Keys
from simserve.spec.hugging_face.quantization.formats import mxfp4 as fp4
from simserve.spec.hugging_face.quantization.rules import FormatRules


def mxfp4(keys: Keys, text: Keys) -> FormatRules:
    """Experts in MXFP4, all else as it is. vLLM does not read the list of what is not converted.

    Raises:
        ScenarioError: the list is none of texts.
    """
    del text
    keys.texts("modules_to_not_convert")
    keys.know("dequantize")
    fmt = fp4()
    return FormatRules(lambda module: fmt if module.is_expert else None)
