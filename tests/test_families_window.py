"""Families with windows, and dense ones old and new: read exactly, nothing passed over in silence."""

import csv
import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simserve.spec.catalogue import read_model
from simserve.spec.errors import ScenarioError
from simserve.spec.hugging_face.config import model_from_config
from simserve.spec.hugging_face.registry import FAMILIES
from simserve.spec.layers.attention import GroupedAttention
from simserve.spec.layers.layer import LayerSpec
from simserve.spec.model import ModelSpec
from tests.test_families_hybrid import ADDED, NONSENSE, at, attempt, changed, places, read
from tests.window_configurations import (
    APERTUS_8B,
    EXAONE_4_32B,
    FULL,
    LLAMA_4_MAVERICK,
    MIMO_V2_FLASH,
    PUBLISHED,
    QWEN_7B,
    SLIDING,
    SMALL,
    STEP_3_7_FLASH,
    STEP_3_7_FLAT,
    Config,
    turns,
)


def windows_of(model: ModelSpec) -> dict[int, int]:
    """Layers with a window, those that read the keys of others, too, by its length."""
    found: dict[int, int] = {}
    for attention, count in model.attentions.items():
        if isinstance(attention, GroupedAttention) and attention.window is not None:
            found[attention.window] = found.get(attention.window, 0) + count
    return found


@pytest.mark.parametrize("name", SMALL)
def test_small_configurations_are_counted_as_their_classes_count(name: str) -> None:
    small = SMALL[name]
    model = read(small.config)
    assert model.num_parameters == small.parameters
    assert windows_of(model) == small.windows
    assert model.tie_word_embeddings is small.tied


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_models_are_read_exactly(name: str) -> None:
    published = PUBLISHED[name]
    model = read(published.config, name)
    assert model.num_parameters == published.parameters
    assert model.num_active_parameters == published.active
    assert model.kv_bytes_per_token == published.kv_bytes
    assert tuple((row["window"], row["bytes_per_token"]) for row in model.windows) == published.windows
    assert model.max_position_embeddings == published.longest


CATALOGUE = Path(__file__).parent.parent / "simserve" / "models"
OURS = {
    *("gemma2", "gemma3", "gemma4", "gpt_oss", "llama4", "llama4_text", "mimo", "mimo_v2_flash", "step3p7", "cohere"),
    *("cohere2", "olmo3", "exaone4", "muse_glimmer", "apertus", "qwen", "phi3", "smollm3", "seed_oss", "granite"),
    *("starcoder2", "ministral3"),
}
with (Path(__file__).parent / "data" / "catalogue_parameters.csv").open(encoding="utf-8", newline="") as _file:
    COUNTED = {
        row["name"]: row
        for row in csv.DictReader(_file)
        if json.loads((CATALOGUE / f"{row['name']}.json").read_text("utf-8")).get("model_type") in OURS
    }


@pytest.mark.parametrize("name", COUNTED)
def test_the_catalogue_is_read_exactly(name: str) -> None:
    model, counted = read_model(CATALOGUE / f"{name}.json"), COUNTED[name]
    assert model.num_parameters == int(counted["parameters"])
    assert model.num_parameters - model.tower_parameters == int(counted["text_parameters"])
    assert model.num_active_parameters == int(counted["active"])


def test_the_catalogue_has_models_of_these_families() -> None:
    assert len(COUNTED) > 25


def test_mimo_v2_keeps_all_tokens_in_nine_layers() -> None:
    model = read(MIMO_V2_FLASH)
    assert model.attention_layers == {"full": 9, "window": 39}
    full, sliding = model.attentions
    assert isinstance(full, GroupedAttention)
    assert isinstance(sliding, GroupedAttention)
    assert (full.num_kv_heads, full.head_dim, full.value_dim, full.sinks) == (4, 192, 128, False)
    assert (sliding.num_kv_heads, sliding.head_dim, sliding.value_dim, sliding.sinks) == (8, 192, 128, True)
    assert model.num_moe_layers == 47
    with pytest.raises(ScenarioError, match="attention_chunk_size"):
        read({**MIMO_V2_FLASH, "attention_chunk_size": 256})


def test_step_reads_the_vendors_names_and_says_what_a_flat_file_leaves_open() -> None:
    nested, flat = read(STEP_3_7_FLASH), read(STEP_3_7_FLAT)
    assert [
        layer.attention.num_heads for layer in nested.layers[:2] if isinstance(layer.attention, GroupedAttention)
    ] == [
        64,
        96,
    ]
    assert nested.num_moe_layers == flat.num_moe_layers == 42
    assert nested.drafting_layers == 3
    assert not nested.warnings
    assert "96" in flat.warnings[0]
    heads = {**STEP_3_7_FLAT, "num_sliding_attention_heads": 96}
    assert read(heads).num_parameters == nested.num_parameters
    assert not read(heads).warnings


def test_lists_of_layers_that_disagree_are_refused() -> None:
    with pytest.raises(ScenarioError, match="first_k_dense_replace"):
        read({**STEP_3_7_FLASH, "first_k_dense_replace": 4})
    with pytest.raises(ScenarioError, match="layer_types"):
        read({**MIMO_V2_FLASH, "layer_types": [FULL] * 48})
    with pytest.raises(ScenarioError, match="layer_types"):
        read({**EXAONE_4_32B, "layer_types": [SLIDING] * 64})
    with pytest.raises(ScenarioError, match="moe_layers"):
        read({**LLAMA_4_MAVERICK, "moe_layers": [0, 1]})


def test_a_list_longer_than_the_layers_is_cut_and_a_shorter_one_refused() -> None:
    olmo = SMALL["olmo3"].config
    model = read({**olmo, "layer_types": [*turns(5, 4), FULL, FULL]})
    assert model.layers == read(olmo).layers
    assert model.kv_bytes_per_token > 0
    with pytest.raises(ScenarioError, match="expected 5 items"):
        read({**olmo, "layer_types": turns(4, 4)})


def test_a_pattern_of_letters_is_that_of_numbers() -> None:
    letters = read(EXAONE_4_32B)
    assert letters.attention_layers == {"window": 48, "full": 16}
    assert read({**EXAONE_4_32B, "sliding_window_pattern": 4}).layers == letters.layers
    assert read({**EXAONE_4_32B, "layer_types": turns(64, 4)}).layers == letters.layers
    assert read({**EXAONE_4_32B, "sliding_window_pattern": "LG"}).attention_layers == {"window": 32, "full": 32}
    with pytest.raises(ScenarioError, match="sliding_window_pattern"):
        read({**EXAONE_4_32B, "sliding_window_pattern": "LLLX"})


@given(period=st.integers(1, 9), layers=st.integers(1, 20))
def test_letters_numbers_and_lists_say_the_same(period: int, layers: int) -> None:
    config = {**SMALL["exaone4"].config, "num_hidden_layers": layers}
    del config["sliding_window_pattern"]
    by_number = read({**config, "sliding_window_pattern": period}).layers
    assert by_number == read({**config, "sliding_window_pattern": "L" * (period - 1) + "G"}).layers
    assert by_number == read({**config, "layer_types": turns(layers, period)}).layers


def test_a_null_window_is_none() -> None:
    for name in ("exaone4", "cohere2", "gemma2", "olmo3"):
        config = {**SMALL[name].config, "sliding_window": None}
        config.pop("sliding_window_size", None)
        assert read(config).attention_layers == {"full": 5}


def test_a_layer_with_a_window_of_unknown_length_is_refused() -> None:
    config = {**SMALL["step3p5"].config}
    del config["sliding_window"]
    with pytest.raises(ScenarioError, match="sliding_window: is needed"):
        read(config)


def test_qwen_1_counts_gate_and_up_together() -> None:
    layer = 4096 * 3 * 4096 + 3 * 4096 + 4096 * 4096 + 3 * 4096 * 11008 + 2 * 4096
    model = read(QWEN_7B)
    assert model.num_parameters == 32 * layer + 4096 + 2 * 151936 * 4096
    assert model.max_position_embeddings == 8192
    with pytest.raises(ScenarioError, match="intermediate_size"):
        read({**QWEN_7B, "intermediate_size": 22017})


def test_apertus_has_no_gate() -> None:
    attention = 2 * 4096 * 4096 + 2 * 4096 * 1024 + 2 * 128
    layer = attention + 2 * 4096 * 21504 + 2 * 4096 + 2
    assert read(APERTUS_8B).num_parameters == 32 * layer + 4096 + 2 * 131072 * 4096
    with pytest.raises(ScenarioError, match="hidden_act"):
        read({**APERTUS_8B, "hidden_act": "silu"})


def test_chatglm_is_counted_by_hand() -> None:
    """hidden 64, 4 heads of 16 with 2 KV heads, width 100, biases of queries, keys and values alone."""
    config = {
        **{"architectures": ["ChatGLMModel"], "model_type": "chatglm", "hidden_size": 64, "num_layers": 3},
        **{"num_attention_heads": 4, "kv_channels": 16, "multi_query_attention": True, "multi_query_group_num": 2},
        **{"ffn_hidden_size": 100, "add_qkv_bias": True, "padded_vocab_size": 300, "seq_length": 512, "rmsnorm": True},
    }
    layer = 64 * 128 + 128 + 64 * 64 + 3 * 64 * 100 + 2 * 64
    model = read(config)
    assert model.num_parameters == 3 * layer + 64 + 2 * 300 * 64
    assert model.kv_bytes_per_token == 3 * 2 * 2 * 16 * 2
    assert model.max_position_embeddings == 512
    assert read({**config, "multi_query_attention": False}).kv_bytes_per_token == 3 * 2 * 4 * 16 * 2


def test_step_3_projects_queries_through_a_size_of_their_own() -> None:
    """hidden 64, queries through 24 to 4 heads of 16, one KV head; layer 1 of 2 with 3 experts beside a shared one."""
    config = {
        **{"model_type": "step3_text", "hidden_size": 64, "intermediate_size": 100, "num_hidden_layers": 2},
        **{"num_attention_heads": 4, "num_attention_groups": 1, "head_dim": 16, "share_q_dim": 24, "vocab_size": 300},
        **{"moe_num_experts": 3, "moe_top_k": 2, "moe_intermediate_size": 20, "share_expert_dim": 30},
        **{"moe_layers_enum": "1", "max_position_embedding": 512},
    }
    attention = 64 * (24 + 2 * 16) + 24 + 24 * 64 + 64 * 64
    experts = 3 * 64 + 3 * 3 * 64 * 20 + 3 * 64 * 30
    model = read(config)
    assert model.num_parameters == 2 * attention + 3 * 64 * 100 + experts + 5 * 64 + 2 * 300 * 64
    assert model.kv_bytes_per_token == 2 * 2 * 16 * 2
    assert model.max_position_embeddings == 512
    assert str(model.not_simulated).endswith("are not simulated yet")


@pytest.mark.parametrize(("bias", "extra"), [(False, 0), (True, 128 + 64)])
def test_internlm_2_is_counted_by_hand(bias: bool, extra: int) -> None:
    config = {
        **{"model_type": "internlm2", "hidden_size": 64, "intermediate_size": 100, "num_hidden_layers": 3},
        **{"num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 300, "bias": bias},
    }
    layer = 64 * 128 + 64 * 64 + 3 * 64 * 100 + 2 * 64 + extra
    assert read(config).num_parameters == 3 * layer + 64 + 2 * 300 * 64


def test_baichuan_is_llama_with_its_projections_in_one() -> None:
    sizes = {
        **{"hidden_size": 64, "intermediate_size": 100, "num_hidden_layers": 3, "num_attention_heads": 4},
        **{"vocab_size": 300},
    }
    ours = read({"model_type": "baichuan", "model_max_length": 512, **sizes})
    llama = read({"model_type": "llama", "max_position_embeddings": 512, **sizes})
    assert ours.layers == llama.layers
    assert ours.num_parameters == llama.num_parameters
    assert ours.max_position_embeddings == 512


def test_gemma_4_caches_keys_and_values_that_one_projection_makes() -> None:
    config = SMALL["gemma4"].config
    one = read(config)
    two = read({**config, "attention_k_eq_v": False, "num_global_key_value_heads": None})
    assert one.kv_bytes_per_token == 2 * 2 * 32 * 2
    assert two.kv_bytes_per_token == 2 * one.kv_bytes_per_token
    assert two.num_parameters - one.num_parameters == 2 * 64 * 32 * 3  # two more heads of values and one of keys


def test_the_last_layer_of_gemma_4_is_full_whatever_the_list_says() -> None:
    model = read({**SMALL["gemma4"].config, "layer_types": [*turns(6, 6), SLIDING]})
    assert model.attention_layers == {"window": 5, "full": 2}
    assert "last of its layer_types" in model.warnings[0]


def test_layers_that_read_the_keys_of_others_cache_none() -> None:
    config = SMALL["gemma4 with an embedding for each layer"].config
    shared, own = read(config), read({**config, "num_kv_shared_layers": 0})
    assert shared.kv_bytes_per_token < own.kv_bytes_per_token
    assert shared.num_layers == own.num_layers
    assert shared.left_out == ("the work of the inputs of each layer",)
    with pytest.raises(ScenarioError, match="num_kv_shared_layers"):
        read({**config, "num_kv_shared_layers": 13})


def test_llama_4_says_that_chunks_are_taken_whole() -> None:
    model = read(LLAMA_4_MAVERICK)
    assert model.attention_layers == {"chunked": 36, "full": 12}
    half = "tokens past the first chunk of 8192 are taken to read a whole chunk; on average they read half"
    assert half in model.warnings
    whole = read({**LLAMA_4_MAVERICK, "attention_chunk_size": None})
    assert whole.attention_layers == {"full": 48}
    assert not whole.warnings


def test_command_r_serves_what_its_file_says_beside_its_positions() -> None:
    config = {**SMALL["cohere"].config, "model_max_length": 131072}
    assert read(config).max_position_embeddings == 131072


def test_a_head_takes_no_part_in_a_window_of_its_own_length() -> None:
    """Files of Phi state a window that no sequence reaches."""
    assert read({**SMALL["phi3"].config, "sliding_window": 4096}).attention_layers == {"full": 5}


def test_opt_has_two_positions_more_than_it_states() -> None:
    config = SMALL["opt"].config
    assert read(config).learned_positions == 130
    with pytest.raises(ScenarioError, match="word_embed_proj_dim"):
        read({**config, "word_embed_proj_dim": 32})
    with pytest.raises(ScenarioError, match="_remove_final_layer_norm"):
        read({**config, "_remove_final_layer_norm": True})


def test_modules_without_a_layer_in_their_names_end_no_reading() -> None:
    """Checkpoints that call their layers `h` have lists of modules, too."""
    quantization = {
        **{"quant_method": "fp8", "activation_scheme": "dynamic"},
        "modules_to_not_convert": ["transformer.h.0.mlp.c_fc", "lm_head"],
    }
    model = read({**SMALL["gpt2"].config, "quantization_config": quantization})
    assert {dtype for dtype in model.formats if dtype is not None}
    assert model.layers[0] != model.layers[1]


@pytest.mark.parametrize("name", SMALL)
def test_a_layer_is_the_same_after_its_way_through_a_document(name: str) -> None:
    for layer in read(SMALL[name].config).layers:
        assert LayerSpec.model_validate(layer.model_dump()) == layer


CONFIGS: dict[str, Config] = {name: small.config for name, small in SMALL.items()} | {
    name: published.config for name, published in PUBLISHED.items()
}
PLACES = [(name, path) for name, config in CONFIGS.items() for path in places(config)]


@settings(max_examples=600, deadline=None)
@given(place=st.sampled_from(PLACES), value=NONSENSE)
def test_any_value_is_read_or_ends_in_one_clear_error(place: tuple[str, tuple[str, ...]], value: object) -> None:
    name, path = place
    model, error = attempt(changed(CONFIGS[name], path, value))
    if model is None:
        assert "\n" not in error
        assert "a model" in error
    else:
        assert model.num_parameters > 0


@pytest.mark.parametrize("name", SMALL)
def test_no_size_or_choice_can_change_in_silence(name: str) -> None:
    config = SMALL[name].config
    model = read(config)
    for path in places(config):
        stated = at(config, path)
        others: list[object] = []
        if type(stated) is int:
            others = [stated + 1, 2 * stated + 2]
        elif type(stated) is bool and path[-1] != "alibi":  # positions, which weigh nothing
            others = [not stated]
        elif isinstance(stated, list):
            others = [stated[:-1], [], *([] if path[-1] == "moe_layers" else [[*stated[1:], stated[0]]])]
        for value in others:
            other, _ = attempt(changed(config, path, value))
            assert other != model, f"{'.'.join(path)}: {value} is read as {stated}"


MORE = (
    *("num_attention_groups", "moe_layers_enum", "layer_types", "intermediate_size_mlp", "hybrid_layer_pattern"),
    *("swa_num_attention_heads", "v_head_dim", "block_configs", "num_kv_heads", "n_head_kv", "kv_channels"),
    *("ffn_hidden_size", "layers_block_type", "head_dim", "num_key_value_heads", "mlp_layer_types", "n_inner"),
    *("hidden_size_per_layer_input", "share_expert_dim", "sliding_window_size", "use_sliding_window", "multi_query"),
)

IGNORED = {
    "falcon": {"num_kv_heads", "n_head_kv"},
    "falcon, all heads": {"num_kv_heads", "n_head_kv"},
    "smollm3": {"sliding_window"},
}
"""Keys that classes are known to ignore: Falcon has groups of heads in files of the new architecture alone, and its
published files state them nevertheless; SmolLM 3 has windows where `use_sliding_window` says so.
"""


@pytest.mark.parametrize("name", SMALL)
def test_no_key_can_be_added_in_silence(name: str) -> None:
    config = SMALL[name].config
    model = read(config)
    for key in {*ADDED, *MORE} - set(config) - IGNORED.get(name, set()):
        for value in (7, [7], "x"):
            other, error = attempt({**config, key: value})
            assert other != model, f"{key}: {value}"
            assert other is not None or key in error, error


def test_every_family_of_this_page_has_a_configuration() -> None:
    read_here = {config.get("model_type") for config in CONFIGS.values()}
    by_hand = {"chatglm", "step3_text", "internlm2", "baichuan"}
    modules = (
        *("gemma", "gemma3n", "gemma4", "gpt_oss", "llama4", "mimo", "step3", "cohere", "olmo", "exaone", "afmoe"),
        *("learned_positions", "falcon", "without_gate", "like_llama", "fused"),
    )
    ours = [each for each in FAMILIES if each.read.__module__.rpartition(".")[2] in modules]
    missing = [each.name for each in ours if not set(each.model_types) & (read_here | by_hand)]
    assert not missing
    assert len(ours) > 40


def test_a_family_may_be_assumed() -> None:
    config = {**SMALL["olmo2"].config, "model_type": "a-new-olmo"}
    assert model_from_config(config, "new", assume="olmo2").num_parameters == SMALL["olmo2"].parameters
