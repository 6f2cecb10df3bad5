"""From a Hugging Face `config.json` to a `ModelSpec`: the key names of the model families, their defaults, and their checkpoints' formats.

Sources of the defaults: the configuration classes of transformers (a key that a config omits has its class's default).
"""

from collections.abc import Mapping
from typing import Any

from simserve.spec.dtypes import ALIASES, BYTES_PER_ELEMENT
from simserve.spec.errors import ScenarioError
from simserve.spec.model import ModelSpec

Config = Mapping[str, Any]

_NOT_MODELLED_KEYS = {
    "mamba_d_state": "state-space layers",
    "ssm_state_size": "state-space layers",
    "linear_num_key_heads": "linear attention",
    "layers_block_type": "hybrid layers",
    "encoder_layers": "an encoder",
    "index_topk": "sparse attention",
}
_NOT_GATED = {"gpt2", "gpt_neox", "gptj", "opt", "bloom", "falcon", "phi", "starcoder2", "mpt"}
_TIED_BY_DEFAULT = {"gemma", "gemma2", "gemma3_text", "gemma3"}
_QKV_BIAS_BY_DEFAULT = {"qwen2", "qwen2_moe", "qwen2_5_vl_text"}
_QK_NORM = {"qwen3", "qwen3_moe", "gemma3_text", "gemma3"}


def model_from_config(config: Config, name: str) -> ModelSpec:
    """Model of a Hugging Face configuration (its parsed JSON).

    Raises:
        ScenarioError: a key is missing or has no meaning here, or the architecture is not modelled yet.
    """
    outer, config = config, _text_config(config)
    _refuse_unmodelled(config, name)
    num_heads = _count(config, "num_attention_heads", name)
    hidden_size = _count(config, "hidden_size", name)
    family = str(config.get("model_type", ""))
    tied = config.get("tie_word_embeddings", outer.get("tie_word_embeddings", family in _TIED_BY_DEFAULT))
    attention_bias = bool(config.get("attention_bias", config.get("qkv_bias", family in _QKV_BIAS_BY_DEFAULT)))
    fields: dict[str, Any] = {
        "name": name,
        "source": str(outer.get("_source", "")),
        "hidden_size": hidden_size,
        "num_layers": _count(config, "num_hidden_layers", name),
        "num_heads": num_heads,
        "num_kv_heads": config.get("num_key_value_heads") or num_heads,
        "head_dim": config.get("head_dim") or hidden_size // num_heads,
        "vocab_size": _count(config, "vocab_size", name),
        "tie_word_embeddings": bool(tied),
        "max_position_embeddings": _count(config, "max_position_embeddings", name),
        "attention_bias": attention_bias,
        "output_bias": attention_bias and family not in _QKV_BIAS_BY_DEFAULT,
        "qk_norm": family in _QK_NORM,
    }
    return ModelSpec(
        **fields,
        **_mlp(config, family, name),
        **_mla(config),
        **_window(config, family),
        **_formats(outer, config, name),
    )


def _text_config(config: Config) -> Config:
    """The language model inside a multimodal configuration."""
    nested = config.get("text_config") or config.get("llm_config")
    return nested if isinstance(nested, Mapping) else config


def _refuse_unmodelled(config: Config, name: str) -> None:
    for key, what in _NOT_MODELLED_KEYS.items():
        if config.get(key):
            raise ScenarioError(f"model {name}: {what} ({key}) is not modelled yet")
    if config.get("model_type") in _NOT_GATED or config.get("is_encoder_decoder"):
        raise ScenarioError(f"model {name}: the architecture {config.get('model_type')!r} is not modelled yet")
    for kind in set(config.get("layer_types") or ()) - {"full_attention", "sliding_attention", "chunked_attention"}:
        raise ScenarioError(f"model {name}: layers of type {kind!r} are not modelled yet")


def _count(config: Config, key: str, name: str) -> int:
    value = config.get(key)
    if value is None:
        raise ScenarioError(f"model {name}: its config.json has no {key!r}")
    if isinstance(value, bool) or not isinstance(value, int) or value <= 0:
        raise ScenarioError(f"model {name}: {key} in its config.json must be a positive whole number, got {value!r}")
    return value


def _first(config: Config, *keys: str) -> int:
    return next((int(config[key]) for key in keys if config.get(key)), 0)


def _mlp(config: Config, family: str, name: str) -> dict[str, Any]:
    num_experts = _first(config, "num_local_experts", "num_experts", "n_routed_experts")
    if num_experts == 0:
        return {"intermediate_size": _count(config, "intermediate_size", name)}
    num_layers = _count(config, "num_hidden_layers", name)
    width = _first(config, "moe_intermediate_size", "intermediate_size")
    num_dense = _num_dense_layers(config, num_layers)
    shared = _first(config, "shared_expert_intermediate_size")
    num_shared = 1 if shared else _first(config, "n_shared_experts", "num_shared_experts")
    return {
        "num_experts": num_experts,
        "experts_per_token": _first(config, "num_experts_per_tok", "experts_per_token"),
        "moe_intermediate_size": width,
        "expert_bias": family == "gpt_oss",
        "num_shared_experts": num_shared,
        "shared_intermediate_size": shared or (width if num_shared else 0),
        "num_dense_layers": num_dense,
        "intermediate_size": _count(config, "intermediate_size", name) if num_dense else 0,
    }


def _num_dense_layers(config: Config, num_layers: int) -> int:
    """Dense layers of a mixture: the first ones (DeepSeek), or those that the step and the list of Qwen leave out."""
    first = _first(config, "first_k_dense_replace")
    step = _first(config, "decoder_sparse_step") or 1
    listed = set(config.get("mlp_only_layers") or ())
    return sum(layer < first or layer in listed or (layer + 1) % step != 0 for layer in range(num_layers))


def _mla(config: Config) -> dict[str, Any]:
    keys = ("kv_lora_rank", "q_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")
    return {key: int(config.get(key) or 0) for key in keys} if config.get("kv_lora_rank") else {}


def _window(config: Config, family: str) -> dict[str, Any]:
    window = config.get("sliding_window")
    if not window or config.get("use_sliding_window") is False:
        return {}
    num_layers = int(config["num_hidden_layers"])
    kinds = config.get("layer_types")
    if kinds:
        num_window = sum(kind == "sliding_attention" for kind in kinds)
    elif family in {"gpt_oss", "gemma2"}:
        num_window = (num_layers + 1) // 2
    elif pattern := _first(config, "sliding_window_pattern"):
        num_window = num_layers - num_layers // pattern
    else:
        num_window = (
            num_layers - _first(config, "max_window_layers") if config.get("use_sliding_window") else num_layers
        )
    return {"sliding_window": window, "num_window_layers": num_window} if num_window else {}


def _formats(outer: Config, config: Config, name: str) -> dict[str, Any]:
    stated = str(
        config.get("dtype") or config.get("torch_dtype") or outer.get("torch_dtype") or outer.get("dtype") or "bf16"
    )
    dtype = ALIASES.get(stated.removeprefix("torch."), stated)
    activation = "bf16" if dtype == "fp32" else dtype
    weight, parts = dtype if dtype != "fp32" else "bf16", "linear"
    quantization = outer.get("quantization_config") or config.get("quantization_config")
    if quantization:
        weight = _quantized_dtype(quantization, name)
        parts = "experts" if weight == "mxfp4" else "linear"
    return {"activation_dtype": activation, "kv_dtype": activation, "weight_dtype": weight, "quantized": parts}


def _quantized_dtype(quantization: Config, name: str) -> str:
    method = str(quantization.get("quant_method", "")).replace("-", "_")
    if method in {"fp8", "fbgemm_fp8", "mxfp4"}:
        return {"fbgemm_fp8": "fp8"}.get(method, method)
    if method in {"awq", "gptq"}:
        return _of_bits("int", quantization.get("bits", quantization.get("w_bit", 4)), name)
    if method == "modelopt" or quantization.get("quant_algo"):
        algorithm = str(quantization.get("quant_algo", "")).lower()
        return _known(algorithm if algorithm != "fp8_pb_wo" else "fp8", name)
    if method == "compressed_tensors":
        groups = quantization.get("config_groups") or {}
        weights = next(iter(groups.values()), {}).get("weights") or {}
        if weights.get("type") == "float" and weights.get("num_bits") == 4:
            return "nvfp4"
        return _of_bits("fp" if weights.get("type") == "float" else "int", weights.get("num_bits"), name)
    raise ScenarioError(f"model {name}: quant_method {method!r} is not modelled yet; state weight_dtype beside config")


def _of_bits(kind: str, bits: object, name: str) -> str:
    return _known(f"{kind}{bits}", name)


def _known(dtype: str, name: str) -> str:
    if dtype not in BYTES_PER_ELEMENT:
        raise ScenarioError(
            f"model {name}: weights in {dtype!r} are not modelled yet; state weight_dtype beside config"
        )
    return dtype
