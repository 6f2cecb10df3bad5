"""Families with linear, state-space, convolution and sparse layers: read exactly, nothing passed over in silence."""

import copy
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simserve.cost.kinds.registry import KINDS
from simserve.spec.errors import ScenarioError
from simserve.spec.hugging_face.config import model_from_config
from simserve.spec.layers.kinds import SIMULATED
from simserve.spec.layers.layer import LayerSpec
from simserve.spec.layers.linear_attention import GatedDeltaNet, KimiDelta
from simserve.spec.layers.state_space import Mamba2
from simserve.spec.model import ModelSpec
from tests.hybrid_configurations import MODELS, Config, Counted

NAMES = sorted(MODELS)


def read(config: Config, name: str = "a model") -> ModelSpec:
    return model_from_config(copy.deepcopy(config), name)


def attempt(config: Config) -> tuple[ModelSpec | None, str]:
    """The model of a configuration, or the error that it ends in."""
    try:
        return read(config), ""
    except ScenarioError as error:
        return None, str(error)


@pytest.mark.parametrize("name", NAMES)
def test_published_models_are_read_exactly(name: str) -> None:
    config, counted = MODELS[name]
    model = read(config)
    assert model.num_parameters - model.tower_parameters == counted.parameters
    assert model.tower_parameters == counted.towers
    assert model.num_active_parameters == counted.active
    assert model.kv_bytes_per_token == counted.kv_bytes
    assert model.state_bytes_per_sequence == counted.state_bytes
    assert model.index_cache_bytes_per_token == counted.index_bytes
    assert {(row["window"], row["bytes_per_token"]) for row in model.windows} == set(counted.windows)
    assert model.max_position_embeddings == counted.longest
    assert counted.kinds is None or model.attention_layers == counted.kinds


def test_what_a_run_can_use_is_what_has_a_cost() -> None:
    assert set(KINDS) == SIMULATED


@pytest.mark.parametrize("name", NAMES)
def test_a_model_with_a_kind_that_has_no_cost_says_so(name: str) -> None:
    model = read(MODELS[name][0])
    known = set(model.attention_layers) <= set(KINDS)
    assert (model.not_simulated is None) == known
    if not known:
        assert str(model.not_simulated).endswith("are not simulated yet")


def test_missing_attention_is_no_kind_of_its_own() -> None:
    model = read(MODELS["Llama-3.3-Nemotron-Super-49B"][0])
    assert model.not_simulated is None
    assert model.num_layers == 80
    assert sum(layer.count for layer in model.layers if layer.attention is None) == 31


def test_every_letter_of_a_pattern_is_a_layer() -> None:
    model = read(MODELS["Nemotron-3-Nano-30B"][0])
    assert [layer.attention is None for layer in model.each_layer()][:7] == [
        False,
        True,
        False,
        True,
        False,
        False,
        True,
    ]
    assert model.num_layers == 52


def test_words_and_letters_say_the_same_layers() -> None:
    config = MODELS["Nemotron-3-Nano-30B"][0]
    words = {"M": "mamba", "E": "moe", "*": "attention"}
    pattern = config["hybrid_override_pattern"]
    other = {**config, "layers_block_type": [words[letter] for letter in pattern]}
    del other["hybrid_override_pattern"]
    assert read(other).layers == read(config).layers
    with pytest.raises(ScenarioError, match="layers_block_type"):
        read({**config, "layers_block_type": ["mamba"] * 52})


def test_the_state_is_in_the_format_that_the_file_asks_for() -> None:
    text = MODELS["Qwen3.5-35B-A3B"][0]["text_config"]
    full, half = read(text), read({**text, "mamba_ssm_dtype": "bfloat16"})
    conv = 30 * 3 * 8192 * 2
    assert full.state_bytes_per_sequence - conv == 2 * (half.state_bytes_per_sequence - conv)
    with pytest.raises(ScenarioError, match="mamba_ssm_dtype"):
        read({**text, "mamba_ssm_dtype": "int4"})


def test_a_list_may_carry_drafting_layers_at_its_end() -> None:
    config = MODELS["DeepSeek-V4-Flash"][0]
    assert len(config["compress_ratios"]) == 44
    assert read(config).num_layers == 43


def test_the_schedule_of_indexers_follows_from_frequency_and_offset() -> None:
    config = dict(MODELS["GLM-5.2"][0])
    stated = read(config)
    del config["indexer_types"]
    assert read(config).layers == stated.layers
    with pytest.raises(ScenarioError, match="indexer_types"):
        read({**config, "indexer_types": ["full"] * 78})


def test_ring_with_lightning_attention_is_counted_by_hand() -> None:
    """hidden 8, two heads of 4, layers linear, linear, full; one dense, two with 3 experts and a shared one."""
    config = {
        **{"model_type": "bailing_moe_linear", "hidden_size": 8, "num_hidden_layers": 3, "num_attention_heads": 2},
        **{"num_key_value_heads": 1, "head_dim": 4, "layer_group_size": 3, "first_k_dense_replace": 1},
        **{"intermediate_size": 10, "moe_intermediate_size": 6, "num_experts": 3, "num_experts_per_tok": 2},
        **{"num_shared_experts": 1, "moe_router_enable_expert_bias": True, "use_qk_norm": True, "vocab_size": 20},
        **{"max_position_embeddings": 64, "torch_dtype": "bfloat16"},
    }
    model = read(config)
    linear = 8 * 24 + 8 * 8 + 8 * 8 + 2 * 4 + 8
    full = 8 * 8 + 2 * 8 * 4 + 8 * 8 + 2 * 4
    experts = 4 * 3 * 8 * 6 + 8 * 3 + 3
    assert model.num_parameters == 2 * linear + full + 3 * 8 * 10 + 2 * experts + 3 * 2 * 8 + 8 + 2 * 20 * 8
    assert model.state_bytes_per_sequence == 2 * 2 * 4 * 4 * 2
    assert model.kv_bytes_per_token == 2 * 4 * 2
    assert model.attention_layers == {"lightning": 2, "full": 1}


def test_ring_linear_has_the_size_that_its_makers_state() -> None:
    """Ring-mini-linear-2.0: 16.4 B parameters, 1.6 B of them active."""
    config = {
        **{"architectures": ["BailingMoeLinearV2ForCausalLM"], "hidden_size": 2048, "num_hidden_layers": 20},
        **{"num_attention_heads": 16, "num_key_value_heads": 4, "head_dim": 128, "layer_group_size": 5},
        **{"first_k_dense_replace": 1, "intermediate_size": 5120, "moe_intermediate_size": 512, "num_experts": 256},
        **{"num_experts_per_tok": 8, "num_shared_experts": 1, "moe_router_enable_expert_bias": True},
        **{"use_qk_norm": True, "vocab_size": 157184, "max_position_embeddings": 131072},
    }
    model = read(config)
    assert round(model.num_parameters / 1e9, 1) == 16.4
    assert round(model.num_active_parameters / 1e9, 1) == 1.6


@pytest.mark.parametrize("name", ["Kimi-Linear-48B-A3B", "Kimi-K3"])
def test_places_that_leave_a_layer_out_are_refused(name: str) -> None:
    config = copy.deepcopy(MODELS[name][0])
    linear = config.get("text_config", config)["linear_attn_config"]
    linear["kda_layers"] = linear["kda_layers"][1:]
    with pytest.raises(ScenarioError, match="each of"):
        read(config)


sizes = st.integers(1, 8)


@given(heads=sizes, groups=sizes, dim=sizes, kernel=st.integers(1, 4))
def test_a_state_does_not_depend_on_the_length_and_has_the_size_of_its_parts(
    heads: int, groups: int, dim: int, kernel: int
) -> None:
    delta = GatedDeltaNet(
        num_k_heads=heads, num_v_heads=heads * groups, k_head_dim=dim, v_head_dim=2 * dim, conv_kernel=kernel
    )
    conv = (kernel - 1) * (2 * heads * dim + 2 * heads * groups * dim)
    assert delta.state_bytes("bf16") == 2 * (conv + heads * groups * dim * 2 * dim)
    assert delta.state_bytes("fp32") == 2 * delta.state_bytes("bf16")
    assert delta.kept_bytes("bf16") == 0
    kimi = KimiDelta(num_heads=heads, head_dim=dim, conv_kernel=kernel)
    assert kimi.state_bytes("bf16") == 2 * 3 * (kernel - 1) * heads * dim + 4 * heads * dim * dim
    mamba = Mamba2(num_heads=heads * groups, head_dim=dim, num_groups=groups, state_size=dim, conv_kernel=kernel)
    channels = heads * groups * dim + 2 * groups * dim
    assert mamba.state_bytes("bf16") == 2 * ((kernel - 1) * channels + heads * groups * dim * dim)


@pytest.mark.parametrize("name", NAMES)
def test_a_block_is_the_same_after_its_way_through_a_document(name: str) -> None:
    for layer in read(MODELS[name][0]).layers:
        assert LayerSpec.model_validate(layer.model_dump()) == layer


def places(config: Config, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Paths of all keys of a configuration, those of the towers left out."""
    for key, value in config.items():
        if key != "vision_config":
            yield (*path, key)
            if isinstance(value, dict):
                yield from places(value, (*path, key))


def at(config: Config, path: tuple[str, ...]) -> Any:
    for key in path:
        config = config[key]
    return config


def changed(config: Config, path: tuple[str, ...], value: object) -> Config:
    other = copy.deepcopy(config)
    at(other, path[:-1])[path[-1]] = value
    return other


PLACES = [(name, path) for name in NAMES for path in places(MODELS[name][0])]
NONSENSE = st.sampled_from(
    [
        None,
        -1,
        0,
        1,
        7,
        2**70,
        1.5,
        float("nan"),
        float("inf"),
        True,
        False,
        "",
        "x",
        [],
        [None],
        ["x"],
        [-1],
        {},
        {"x": 1},
    ]
)


@settings(max_examples=300, deadline=None)
@given(place=st.sampled_from(PLACES), value=NONSENSE)
def test_any_value_is_read_or_ends_in_one_clear_error(place: tuple[str, tuple[str, ...]], value: object) -> None:
    name, path = place
    model, error = attempt(changed(MODELS[name][0], path, value))
    if model is None:
        assert "\n" not in error
        assert "a model" in error
    else:
        assert model.num_parameters > 0


def is_inert(name: str, key: str) -> bool:
    """Whether the class of a model is known to read another key in place of this one.

    Latent attention has a head size of its own; Nemotron-H has the width of all Mamba heads in place of `expand`, and
    `intermediate_size` counts in layers with a dense MLP alone; a Granite without Mamba layers has no use for their
    sizes; Qwen3-Next's dense width counts in dense layers alone; an MLP of LFM2 is rounded up.
    """
    return (
        (name.startswith("GLM") and key == "head_dim")
        or (name.startswith("Nemotron-3") and key in {"expand", "intermediate_size", "chunk_size"})
        or (name.startswith("Nemotron-H") and key in {"expand", "chunk_size"})
        or (name == "Granite-4.0-Micro" and key in {"mamba_n_heads", "intermediate_size", "num_experts_per_tok"})
        or (name == "Qwen3-Next-80B-A3B" and key == "intermediate_size")
        or (name == "LFM2-1.2B" and key in {"block_multiple_of", "block_ff_dim"})
        or (name == "Bamba-9B" and key == "attn_rotary_emb")
        or key in {"rope_theta", "compress_rope_theta", "hc_eps", "chunk_size"}
    )


def numbers(name: str) -> list[tuple[str, ...]]:
    config = MODELS[name][0]
    return [path for path in places(config) if type(at(config, path)) is int and not is_inert(name, path[-1])]


@pytest.mark.parametrize("name", NAMES)
def test_no_number_can_change_in_silence(name: str) -> None:
    config = MODELS[name][0]
    model = read(config)
    for path in numbers(name):
        for value in (at(config, path) + 1, 2 * at(config, path) + 2):
            other, _ = attempt(changed(config, path, value))
            assert other != model, f"{'.'.join(path)}: {value} is read as {at(config, path)}"


ADDED = (
    *("num_experts", "n_routed_experts", "num_local_experts", "moe_num_experts", "num_experts_per_tok", "moe_topk"),
    *("moe_intermediate_size", "n_shared_experts", "num_shared_experts", "sliding_window", "attention_chunk_size"),
    *("num_global_key_value_heads", "global_head_dim", "num_kv_shared_layers", "first_k_dense_replace"),
    *("kv_lora_rank", "q_lora_rank", "index_topk", "linear_num_value_heads", "mamba_n_heads", "conv_L_cache"),
    *("moe_layer_freq", "layer_group_size", "num_nextn_predict_layers", "shared_expert_intermediate_size", "n_layer"),
)


def is_unused(name: str, key: str) -> bool:
    """Whether the class of a model without such layers ignores the key: Granite and Nemotron-H have one class for
    models with and without experts or Mamba layers, whose files carry both.
    """
    return (
        (name == "Granite-4.0-Micro" and key == "mamba_n_heads")
        or (name.startswith("Nemotron-H") and key.removeprefix("n_") in {"routed_experts", "shared_experts"})
        or (name.startswith("Nemotron-H") and key in {"moe_intermediate_size", "num_experts_per_tok"})
    )


@pytest.mark.parametrize("name", NAMES)
def test_no_key_can_be_added_in_silence(name: str) -> None:
    config = copy.deepcopy(MODELS[name][0])
    text = config.get("text_config", config)
    model = read(config)
    for key in ADDED:
        if key in text or is_unused(name, key):
            continue
        for value in (5, [5]):
            text[key] = value
            other, error = attempt(config)
            assert other != model, f"{key}: {value}"
            assert other is not None or key in error, error
        del text[key]


def test_a_counted_configuration_is_not_its_own_oracle() -> None:
    assert len({counted.parameters for _, counted in MODELS.values()}) > len(MODELS) - 3
    assert all(isinstance(counted, Counted) for _, counted in MODELS.values())
