"""AWQ (Lin et al., 2023, arXiv 2306.00978) in the layout of AutoAWQ. Keys: vLLM 0.33, quantization/auto_awq.py."""

from simserve.spec.hugging_face.keys import Keys
from simserve.spec.hugging_face.quantization.formats import integers
from simserve.spec.hugging_face.quantization.rules import FormatRules, all_but, linear, listed, needed, refused


def awq(keys: Keys, text: Keys) -> FormatRules:
    """4-bit groups with zero points.

    Raises:
        ScenarioError: a key is missing, or vLLM does not serve it.
    """
    del text
    needed(keys, ("bits", "w_bit"), ("group_size", "q_group_size"), ("zero_point",))
    if (bits := keys.count("bits", "w_bit")) != 4:
        raise refused(keys, "bits", f"AWQ with {bits} bits: vLLM 0.33 serves 4")
    group = group_size(keys, "group_size", "q_group_size")
    fmt = integers(bits, group, zeros=keys.flag("zero_point", default=True))
    # Which kernel the layout was made for; vLLM lays the weights out anew.
    keys.know("version", "backend", "do_fuse", "fuse_max_seq_len", "modules_to_fuse", "exllama_config")
    lists = listed(keys, "modules_to_not_convert", inside=True)
    return all_but(lists, linear(fmt, head=keys.flag("lm_head", default=False)))


def group_size(keys: Keys, *names: str) -> int:
    """Inputs that share a scale; -1 for all of a channel.

    Raises:
        ScenarioError: neither -1 nor a positive whole number.
    """
    value = keys.value(*names)
    if value == -1 and not isinstance(value, bool):
        return -1
    return keys.count(*names)
