"""From a Hugging Face `config.json` to a `ModelSpec`: key names of the model families, defaults, checkpoint formats.

A key that a config.json omits has the default of its class in transformers (configuration_*.py of the family).
"""

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from simserve.spec.complaints import describe
from simserve.spec.document import Document, Place
from simserve.spec.dtypes import canonical_dtype, is_dtype
from simserve.spec.errors import ScenarioError
from simserve.spec.model import ModelSpec
from simserve.spec.quantities import shown

Config = Mapping[str, Any]
Fields = dict[str, Any]

_NOT_MODELLED = {
    "mamba_d_state": "state-space layers",
    "ssm_state_size": "state-space layers",
    "linear_num_key_heads": "linear attention",
    "layers_block_type": "a hybrid of layer types",
    "encoder_layers": "an encoder",
    "is_encoder_decoder": "an encoder",
    "index_topk": "sparse attention",
}
_LAYER_TYPES = {"full_attention": "full", "sliding_attention": "window", "chunked_attention": "window"}
"""What transformers calls a layer in `layer_types` -> its kind of attention."""
_NOT_GATED = {"gpt2", "gpt_neox", "gptj", "opt", "bloom", "falcon", "phi", "starcoder2", "mpt"}
_TIED = {"gemma", "gemma2", "gemma3", "gemma3_text"}
_QKV_BIAS = {"qwen2", "qwen2_moe"}
"""Families whose q, k and v have a bias that no key mentions; there the output projection has none."""
_QK_NORM = {"qwen3", "qwen3_moe", "gemma3", "gemma3_text"}


def model_from_config(config: Config, name: str) -> ModelSpec:
    """Model of a Hugging Face configuration, which is the parsed JSON.

    Raises:
        ScenarioError: a key is missing or makes no sense, or the architecture is not modelled yet.
    """
    whole, config = config, _language_model(config)
    _refuse_unmodelled(config, name)
    family = str(config.get("model_type", ""))
    heads, hidden_size = _count(config, "num_attention_heads", name), _count(config, "hidden_size", name)
    bias = bool(config.get("attention_bias", family in _QKV_BIAS))
    fields: Fields = {
        "name": name,
        "source": str(whole.get("_source", "")),
        "hidden_size": hidden_size,
        "num_layers": _count(config, "num_hidden_layers", name),
        "num_heads": heads,
        "num_kv_heads": _first(config, "num_key_value_heads") or heads,
        "head_dim": _first(config, "head_dim") or hidden_size // heads,
        "vocab_size": _count(config, "vocab_size", name),
        "tie_word_embeddings": bool(_of_either(config, whole, "tie_word_embeddings", family in _TIED)),
        "max_position_embeddings": _count(config, "max_position_embeddings", name),
        "attention_bias": bias,
        "output_bias": bias and family not in _QKV_BIAS,
        "qk_norm": family in _QK_NORM,
    }
    fields |= _mlp(config, family, name) | _mla(config) | _window(config, family) | _formats(whole, config, name)
    try:
        return ModelSpec.model_validate(fields)
    except ValidationError as error:
        raise ScenarioError(describe(error, Document(fields, {(): Place(f"model {name}")}))) from None


def _language_model(config: Config) -> Config:
    """The part of a multimodal configuration that generates text."""
    nested = config.get("text_config") or config.get("llm_config")
    return nested if isinstance(nested, Mapping) else config


def _refuse_unmodelled(config: Config, name: str) -> None:
    found = [f"{what} ({key})" for key, what in _NOT_MODELLED.items() if config.get(key)]
    found += [f"layers of type {kind}" for kind in sorted(set(config.get("layer_types") or ()) - set(_LAYER_TYPES))]
    if config.get("model_type") in _NOT_GATED or config.get("hidden_act") == "relu2":
        found.append(f"the MLP without a gate of the architecture {config.get('model_type')}")
    if found:
        raise ScenarioError(f"model {name}: {found[0]}: not modelled yet")


def _count(config: Config, key: str, name: str) -> int:
    value = config.get(key)
    if isinstance(value, bool) or not isinstance(value, int) or value <= 0:
        raise ScenarioError(f"model {name}: config.json: {key}: expected a positive whole number, got {shown(value)}")
    return value


def _first(config: Config, *keys: str) -> int:
    """The first of these keys that is given and not 0, or 0."""
    return next((int(config[key]) for key in keys if config.get(key)), 0)


def _of_either(config: Config, whole: Config, key: str, default: Any) -> Any:
    return config.get(key, whole.get(key, default))


def _mlp(config: Config, family: str, name: str) -> Fields:
    experts = _first(config, "num_local_experts", "num_experts", "n_routed_experts")
    if experts == 0:
        return {"intermediate_size": _count(config, "intermediate_size", name)}
    width = _first(config, "moe_intermediate_size", "intermediate_size")
    dense = _num_dense_layers(config)
    one_shared = _first(config, "shared_expert_intermediate_size") or (width if family == "llama4_text" else 0)
    num_shared = 1 if one_shared else _first(config, "n_shared_experts", "num_shared_experts")
    return {
        "num_experts": experts,
        "experts_per_token": _first(config, "num_experts_per_tok", "experts_per_token") or 1,
        "moe_intermediate_size": width,
        "expert_bias": family == "gpt_oss",
        "num_shared_experts": num_shared,
        "shared_intermediate_size": (one_shared or width) if num_shared else 0,
        "num_dense_layers": dense,
        "intermediate_size": _first(config, "intermediate_size_mlp", "intermediate_size") if dense else 0,
    }


def _num_dense_layers(config: Config) -> int:
    """Dense layers of a mixture: the first ones (DeepSeek), those a list names or a step leaves out (Qwen, Llama 4)."""
    first = _first(config, "first_k_dense_replace")
    step = _first(config, "decoder_sparse_step", "interleave_moe_layer_step") or 1
    listed = set(config.get("mlp_only_layers") or ())
    layers = range(int(config["num_hidden_layers"]))
    return sum(layer < first or layer in listed or (layer + 1) % step != 0 for layer in layers)


def _mla(config: Config) -> Fields:
    keys = ("kv_lora_rank", "q_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")
    return {key: _first(config, key) for key in keys} if config.get("kv_lora_rank") else {}


def _window(config: Config, family: str) -> Fields:
    window = _first(config, "sliding_window", "attention_chunk_size")
    if not window or config.get("use_sliding_window") is False:
        return {}
    num_window = _num_window_layers(config, family, int(config["num_hidden_layers"]))
    return {"sliding_window": window, "num_window_layers": num_window} if num_window else {}


def _num_window_layers(config: Config, family: str, layers: int) -> int:
    if kinds := config.get("layer_types"):
        return sum(_LAYER_TYPES[kind] == "window" for kind in kinds)
    if config.get("use_sliding_window"):
        return layers - _first(config, "max_window_layers")
    # Every so many layers one attends to everything.
    period = _first(config, "sliding_window_pattern") or {
        "gpt_oss": 2,
        "gemma2": 2,
        "gemma3_text": 6,
        "llama4_text": 4,
    }.get(family, 0)
    return layers - layers // period if period else layers


def _formats(whole: Config, config: Config, name: str) -> Fields:
    stated = _of_either(config, whole, "dtype", None) or _of_either(config, whole, "torch_dtype", None) or "bf16"
    # vLLM serves a checkpoint in fp32 as bf16 unless told otherwise (config/model.py, dtype auto).
    activation = {"fp32": "bf16"}.get(dtype := str(canonical_dtype(stated)), dtype)
    quantization = _of_either(config, whole, "quantization_config", None)
    weight = _quantized_dtype(quantization, name) if quantization else activation
    return {
        "activation_dtype": activation,
        "kv_dtype": activation,
        "weight_dtype": weight,
        "quantized": "experts" if weight == "mxfp4" else "linear",
    }


def _quantized_dtype(quantization: Config, name: str) -> str:
    method = str(canonical_dtype(quantization.get("quant_method", quantization.get("quant_algo", ""))))
    method = method.lower().replace("-", "_")
    match method:
        case "fp8" | "fbgemm_fp8" | "mxfp4" | "nvfp4":
            dtype = method.removeprefix("fbgemm_")
        case "awq" | "gptq":
            dtype = f"int{quantization.get('bits', 4)}"
        case "modelopt":
            dtype = str(quantization.get("quant_algo", "fp8")).lower()
        case "compressed_tensors":
            dtype = _compressed_dtype(quantization)
        case _:
            dtype = method
    if not is_dtype(dtype):
        raise ScenarioError(f"model {name}: quantization {dtype!r}: not modelled yet; state weight_dtype beside config")
    return dtype


def _compressed_dtype(quantization: Config) -> str:
    """Format of the weights in the first group of a compressed-tensors configuration."""
    group: Config = next(iter((quantization.get("config_groups") or {}).values()), {})
    weights: Config = group.get("weights") or {}
    kind, bits = weights.get("type"), weights.get("num_bits")
    return "nvfp4" if (kind, bits) == ("float", 4) else f"{'fp' if kind == 'float' else 'int'}{bits}"
