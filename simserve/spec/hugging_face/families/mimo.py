"""MiMo of Xiaomi: 7B, which is Qwen 2 with layers that propose drafts; V2, windows with heads of their own beside full
attention, experts behind the first layer.

Keys and defaults: of the 7B, those of Qwen 2, which its class is made from (vLLM 0.33, models/mimo.py); of V2,
transformers 5.24, mimo_v2_flash, and the keys of the published file by vLLM 0.33, models/mimo_v2.py.
"""

from simserve.spec.hugging_face.families.qwen import qwen2
from simserve.spec.hugging_face.family import Decoder, Family
from simserve.spec.hugging_face.keys import Keys
from simserve.spec.hugging_face.latents import DENSE, SPARSE, disagree, routed
from simserve.spec.hugging_face.parts import FULL, SLIDING, decoder, dense, grouped, mixed_layers, num_layers
from simserve.spec.layers.attention import GroupedAttention


def _mimo(keys: Keys) -> Decoder:
    keys.expect("attention_bias", True, why="is not what the class does: queries, keys and values have biases")
    return qwen2(keys)._replace(drafting_layers=keys.whole("num_nextn_predict_layers", default=0, null=0))


def _marks(keys: Keys, name: str, words: str, kinds: tuple[str, str], made: list[bool]) -> list[bool]:
    """Whether each layer is of the second of two kinds: by numbers 0 and 1, or by words; `made` where none says.

    Raises:
        ScenarioError: both are there and differ.
    """
    layers = len(made)
    numbers, stated = keys.wholes(name, length=layers), keys.words(words, known=kinds, length=layers)
    if numbers is not None and set(numbers) - {0, 1}:
        raise keys.error(name, f"expected 0 ({kinds[0]}) or 1 ({kinds[1]}) for each layer in the list")
    by_number = None if numbers is None else [number == 1 for number in numbers]
    by_word = None if stated is None else [word == kinds[1] for word in stated]
    if by_number is not None and by_word is not None and by_number != by_word:
        raise disagree(keys, words, name)
    return by_number or by_word or made


def _window(keys: Keys) -> int:
    """Tokens that sliding layers look back on. transformers adds the token itself, vLLM does not."""
    window = keys.count("sliding_window_size", "sliding_window", default=128)
    keys.expect("attention_chunk_size", window, why=f"is not the window, {window}, which vLLM reads in its place")
    return window


def _sliding(keys: Keys, full: GroupedAttention) -> GroupedAttention:
    """Attention of the layers with a window: its sizes have keys of their own."""
    heads = keys.count("swa_num_attention_heads", default=full.num_heads)
    kv_heads = keys.count("swa_num_key_value_heads", default=2 * full.num_kv_heads)
    if heads % kv_heads:
        raise keys.error("swa_num_key_value_heads", f"{kv_heads} does not divide swa_num_attention_heads {heads}")
    sizes = {
        "num_heads": heads,
        "num_kv_heads": kv_heads,
        "head_dim": keys.count("swa_head_dim", default=full.head_dim),
        "v_head_dim": keys.count("swa_v_head_dim", default=full.value_dim),
        "window": _window(keys),
        "sinks": keys.flag("add_swa_attention_sink_bias", default=True),
    }
    return full.model_copy(update=sizes)


def _mimo_v2(keys: Keys) -> Decoder:
    layers = num_layers(keys)
    full = grouped(keys, kv_heads=4, head_dim=192, qkv_bias=keys.flag("attention_bias", default=False))
    full = full.model_copy(
        update={
            "v_head_dim": keys.count("v_head_dim", default=128),
            "sinks": keys.flag("add_full_attention_sink_bias", default=False),
        }
    )
    sliding = _sliding(keys, full)
    every_sixth = [layer != 0 and (layer + 1) % 6 != 0 for layer in range(layers)]
    is_sliding = _marks(keys, "hybrid_layer_pattern", "layer_types", (FULL, SLIDING), every_sixth)
    but_first = [layer > 0 for layer in range(layers)]
    is_moe = _marks(keys, "moe_layer_freq", "mlp_layer_types", (DENSE, SPARSE), but_first)
    defaults = {"n_routed_experts": 256, "num_experts_per_tok": 8, "moe_intermediate_size": 2048, "n_shared_experts": 0}
    rows = mixed_layers(
        [sliding if each else full for each in is_sliding],
        lambda layer: not is_moe[layer],
        dense(keys),
        routed(keys, defaults, "num_local_experts"),
    )
    return decoder(keys, rows, tied=False, max_positions=131072)


FAMILIES = (
    Family("mimo", ("mimo",), ("MiMoForCausalLM",), _mimo, ("use_mrope",)),
    Family(
        "mimo_v2_flash",
        ("mimo_v2_flash",),
        ("MiMoV2FlashForCausalLM",),
        _mimo_v2,
        ("attention_value_scale",),
    ),
)
