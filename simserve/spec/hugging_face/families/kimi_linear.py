"""Kimi-Linear and Kimi K3: three layers of Kimi Delta Attention, then one of latent attention; a mixture of experts.

Keys and defaults: transformers 5.24, kimi_linear; what K3 has beyond that: vLLM 0.33, models/kimi_k3.
"""

from simserve.spec.hugging_face.family import Decoder, Family, Modules
from simserve.spec.hugging_face.keys import Keys
from simserve.spec.hugging_face.latents import dense_layers, latent
from simserve.spec.hugging_face.parts import GATED, check_top_k, decoder, num_layers
from simserve.spec.layers.layer import Attention, LayerSpec
from simserve.spec.layers.linear_attention import KimiDelta
from simserve.spec.layers.mlp import DenseMlp, Mixture

_LATENT = {"kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128}


def _attentions(keys: Keys, layers: int) -> list[Attention]:
    linear = keys.section("linear_attn_config")
    if linear is None:
        raise keys.error("linear_attn_config", "is needed and not given: heads and places of the linear layers")
    places = {name: linear.wholes(name, least=1) for name in ("kda_layers", "full_attn_layers")}
    delta = KimiDelta(
        num_heads=linear.count("num_heads"),
        head_dim=linear.count("head_dim"),
        conv_kernel=linear.count("short_conv_kernel_size", default=4),
        full_rank_gate=linear.flag("use_full_rank_gate", default=False),
    )
    linear.know("gate_lower_bound")
    base = latent(keys, _LATENT, q_lora_rank=0)
    full = base.model_copy(update={"output_gate": keys.flag("mla_use_output_gate", default=False)})
    # Places count from 1; those behind the last layer are of drafting layers.
    kda = {place for place in places["kda_layers"] or () if place <= layers}
    whole = {place for place in places["full_attn_layers"] or () if place <= layers}
    if kda & whole or kda | whole != set(range(1, layers + 1)):
        raise linear.error("kda_layers", f"and full_attn_layers do not name each of {layers} layers once")
    return [delta if place in kda else full for place in range(1, layers + 1)]


def _mixture(keys: Keys) -> Mixture:
    width = keys.count("moe_intermediate_size", default=1024)
    size = keys.whole("routed_expert_hidden_size", default=0, null=0)
    norm = keys.flag("latent_moe_use_norm", default=False)
    if norm and not size:
        raise keys.error("latent_moe_use_norm", "true, yet there is no routed_expert_hidden_size to norm")
    mixture = Mixture(
        num_experts=keys.count("num_experts", "num_local_experts", default=256),
        experts_per_token=keys.count("num_experts_per_token", "num_experts_per_tok", default=8),
        width=width,
        router_bias=True,
        num_shared_experts=keys.whole("num_shared_experts", "n_shared_experts", default=1, null=0),
        shared_width=width,
        latent_size=size,
        extra_vectors=size * norm,
    )
    return check_top_k(keys, mixture, "num_experts_per_token")


def _kimi_linear(keys: Keys) -> Decoder:
    layers, hidden = num_layers(keys), keys.count("hidden_size", default=2304)
    keys.expect("hidden_act", *GATED, "situ", why="is not an activation that this family is known to have a gate with")
    mlp, mixture = DenseMlp(width=keys.count("intermediate_size", default=9216)), _mixture(keys)
    is_dense = dense_layers(keys, layers, 1)
    residual = keys.whole("attn_res_block_size", default=0, null=0)
    # Where blocks read the sums of earlier ones, each has a norm and a score over them (attention residuals of K3).
    rows = [
        LayerSpec(attention=each, mlp=mlp if first else mixture, extra_parameters=4 * hidden * (residual > 0))
        for each, first in zip(_attentions(keys, layers), is_dense, strict=True)
    ]
    keys.flag("mla_use_nope", default=False)
    positions = keys.count("max_position_embeddings", "model_max_length", default=1048576)
    found = decoder(keys, rows, tied=False, max_positions=positions, modules=_MODULES)
    return found._replace(
        drafting_layers=keys.whole("num_nextn_predict_layers", default=0, null=0),
        extra_parameters={"residual of attention at the end": 2 * hidden} if residual else {},
        left_out=(f"the residuals of attention over blocks of {residual} layers",) if residual else (),
    )


_EXPERTS = {"gate_proj": "w1", "down_proj": "w2", "up_proj": "w3"}
_MODULES = Modules(
    renamed={f"experts.0.{ours}": f".block_sparse_moe.experts.0.{theirs}" for ours, theirs in _EXPERTS.items()}
    | {
        "shared_experts.": ".block_sparse_moe.shared_experts.",
        "fc1_latent_proj": ".block_sparse_moe.routed_expert_down_proj",
        "fc2_latent_proj": ".block_sparse_moe.routed_expert_up_proj",
    }
)

_HARMLESS = (
    *("head_dim", "moe_renormalize", "num_expert_group", "use_grouped_topk", "activation_situ_beta"),
    *("activation_situ_linear_beta", "tf_legacy_loss", "is_encoder_decoder"),
)
"""`head_dim`: the class puts that of the positions in its place; the rest: how scores and activations are computed."""

FAMILIES = (Family("kimi_linear", ("kimi_linear",), ("KimiLinearForCausalLM",), _kimi_linear, _HARMLESS),)
