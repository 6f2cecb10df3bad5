"""Number format of the KV cache that a checkpoint asks for, as far as vLLM 0.33 takes it for `kv_cache_dtype: auto`."""

from typing import NamedTuple

from simserve.spec.hugging_face.keys import Keys
from simserve.spec.hugging_face.quantization.rules import refused
from simserve.spec.quantities import shown

_PLAIN = "so its KV cache keeps the activations' format; state `kv_dtype` if it is served with --kv-cache-dtype"


class KvCache(NamedTuple):
    """`dtype`: what vLLM takes, None for that of the activations; `warnings`: what the file asks for beyond that."""

    dtype: str | None = None
    warnings: tuple[str, ...] = ()


def of_modelopt(keys: Keys, inner: Keys) -> KvCache:
    """ModelOpt's scheme, or its name of the algorithm (utils/torch_utils.py, get_kv_cache_quant_algo_string). `inner`:
    the section inside `keys` that says how weights are quantised, or `keys` again.

    Raises:
        ScenarioError: a format that is not modelled.
    """
    asked = None
    for name in ("kv_cache_scheme", "kv_cache_quant_algo"):
        asked = asked or inner.value(name) or keys.value(name)
    if not asked:
        return KvCache()
    if isinstance(asked, dict):
        eight = asked.get("num_bits") == 8 and asked.get("dynamic") is False
        name = ("fp8" if eight else "nvfp4" if asked.get("num_bits") == 4 else "") * (asked.get("type") == "float")
    else:
        name = str(asked).lower()
    if name == "nvfp4":
        raise inner.error("kv_cache_quant_algo", "a KV cache in nvfp4 is not modelled; fp8 and 16 bit are")
    if name == "fp8":
        return KvCache("fp8")
    return KvCache(None, (f"the checkpoint asks for a KV cache in {shown(asked)}, which vLLM 0.33 ignores, {_PLAIN}",))


def of_compressed_tensors(keys: Keys, text: Keys) -> KvCache:
    """`kv_cache_scheme`, which turns a layer of attention to fp8, but for one over a latent
    (attention/attention.py, compressed_tensors.py, validate_kv_cache_scheme).

    Raises:
        ScenarioError: a scheme that vLLM does not serve.
    """
    scheme = keys.section("kv_cache_scheme")
    if scheme is None:
        return KvCache()
    scheme.know(*scheme.raw())
    if "kv_lora_rank" in text:
        said = "the checkpoint asks for an fp8 KV cache by kv_cache_scheme, which vLLM 0.33 does not read for"
        return KvCache(None, (f"{said} attention over a latent, {_PLAIN}",))
    served = {"type": ("float",), "num_bits": (8,), "symmetric": (True,), "strategy": ("tensor", "attn_head")}
    for key, values in served.items():
        if scheme.raw().get(key) not in values:
            known = " or ".join(shown(value) for value in values)
            raise refused(scheme, key, f"{shown(scheme.raw().get(key))}: vLLM 0.33 serves a KV cache with {known}")
    return KvCache("fp8")


def classes(whole: Keys, text: Keys) -> list[str]:
    """Names of the model's classes, and of its type."""
    names = whole.raw().get("architectures")
    return [str(name) for name in (*(names if isinstance(names, list) else ()), text.raw().get("model_type"))]


_FP8_ON_BLACKWELL = ("GlmMoeDsaForCausalLM", "glm_moe_dsa", "Glm5NextForCausalLM", "Glm5NextForConditionalGeneration")


def of_the_class(whole: Keys, text: Keys, asked: KvCache) -> KvCache:
    """What the class of the model makes of it (models/config.py): DeepSeek V4 always has an fp8 layout of its own,
    GLM-5 takes fp8 on one kind of GPU where nobody asks for another.
    """
    names = classes(whole, text)
    if any(name.lower().startswith(("deepseekv4", "deepseek_v4")) for name in names):
        return KvCache("fp8")
    if asked.dtype is None and any(name in _FP8_ON_BLACKWELL for name in names):
        said = "vLLM 0.33 keeps its KV cache in fp8 on Blackwell (SM 10.x), and in the activations' format elsewhere"
        return KvCache(None, (f"{said}: state `kv_dtype: fp8` for such a GPU",))
    return KvCache(asked.dtype)
