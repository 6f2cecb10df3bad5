"""RecurrentGemma: two gated linear recurrences, then one attention over a window.

Keys and defaults: transformers 5.24, recurrent_gemma. vLLM does not serve it.
"""

from simserve.spec.hugging_face.family import Decoder, Family, Modules
from simserve.spec.hugging_face.keys import Keys
from simserve.spec.hugging_face.parts import GATED, decoder, grouped
from simserve.spec.hugging_face.states import positions
from simserve.spec.layers.layer import Attention, LayerSpec
from simserve.spec.layers.mlp import DenseMlp
from simserve.spec.layers.state_space import GatedLinearRecurrence

_RECURRENT, _ATTENTION = "recurrent", "attention"


def _recurrent_gemma(keys: Keys) -> Decoder:
    layers, hidden = keys.count("num_hidden_layers", default=26), keys.count("hidden_size", default=2560)
    keys.expect("hidden_activation", *GATED, why="is not an activation that this family is known to have a gate with")
    attention = grouped(keys, qkv_bias=keys.flag("attention_bias", default=False), output_bias=True)
    window = keys.count("attention_window_size", "sliding_window", default=2048)
    width = keys.count("lru_width", default=hidden, null=hidden)
    if width % attention.num_heads:
        raise keys.error("lru_width", f"{width} is no multiple of num_attention_heads {attention.num_heads}")
    recurrence = GatedLinearRecurrence(
        width=width,
        num_blocks=attention.num_heads,
        conv_kernel=keys.count("conv1d_width", default=4),
    )
    turn = keys.words("block_types", "_block_types", known=(_RECURRENT, _ATTENTION))
    turn = [_RECURRENT, _RECURRENT, _ATTENTION] if turn is None else turn
    if not turn:
        raise keys.error("block_types", "expected recurrent and attention in a list, got an empty one")
    both = keys.count("intermediate_size", default=3 * 2560)
    if both % 2:
        raise keys.error("intermediate_size", f"expected gate and up together, an even number, got {both}")
    mlp = DenseMlp(width=both // 2, bias=True)
    kinds: dict[str, Attention] = {_RECURRENT: recurrence, _ATTENTION: attention.model_copy(update={"window": window})}
    rows = [LayerSpec(attention=kinds[turn[layer % len(turn)]], mlp=mlp) for layer in range(layers)]
    longest, warnings = positions(keys)
    found = decoder(keys, rows, tied=True, max_positions=longest, modules=_MODULES)
    return found._replace(max_positions=longest, warnings=warnings)


_MODULES = Modules(attention="temporal_block", mlp="mlp_block")

_HARMLESS = ("logits_soft_cap", "w_init_variance_scale", "final_w_init_variance_scale", "embeddings_scale_by_sqrt_dim")
"""A factor of the result; how weights began."""

FAMILIES = (
    Family("recurrent_gemma", ("recurrent_gemma",), ("RecurrentGemmaForCausalLM",), _recurrent_gemma, _HARMLESS),
)
