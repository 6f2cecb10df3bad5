"""Llama, Mistral, Qwen, mixtures and latent attention: counted as their classes count, nothing passed over."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simserve.spec.catalogue import find_model
from simserve.spec.errors import ScenarioError
from simserve.spec.hugging_face.registry import FAMILIES
from simserve.spec.layers.attention import GroupedAttention, LatentAttention
from simserve.spec.layers.layer import LayerSpec
from simserve.spec.model import ModelSpec
from tests.mixture_configurations import PUBLISHED, SMALL, Config
from tests.test_families_hybrid import ADDED, NONSENSE, at, attempt, changed, places, read
from tests.test_families_window import MORE, windows_of

CONFIGS: dict[str, Config] = {name: small.config for name, small in SMALL.items()} | {
    name: published.config for name, published in PUBLISHED.items()
}
LONGCAT: Config = {
    **{"model_type": "longcat_flash", "hidden_size": 64, "num_layers": 3, "num_attention_heads": 4},
    **{"q_lora_rank": 24, "kv_lora_rank": 32, "qk_nope_head_dim": 16, "qk_rope_head_dim": 8, "v_head_dim": 20},
    **{"ffn_hidden_size": 100, "expert_ffn_hidden_size": 24, "n_routed_experts": 6, "moe_topk": 2},
    **{"zero_expert_num": 3, "vocab_size": 300, "max_position_embeddings": 4096},
}


@pytest.mark.parametrize("name", SMALL)
def test_small_configurations_are_counted_as_their_classes_count(name: str) -> None:
    small = SMALL[name]
    model = read(small.config)
    assert model.num_parameters == small.parameters
    assert model.num_moe_layers == small.mixtures
    assert (model.num_active_parameters < model.num_parameters) == (small.mixtures > 0)


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_models_have_the_size_that_their_makers_state(name: str) -> None:
    published = PUBLISHED[name]
    model = read(published.config, name)
    assert model.num_parameters == pytest.approx(published.parameters * 1e9, rel=0.005)
    assert model.num_active_parameters == pytest.approx(published.active * 1e9, rel=0.02)


def test_layers_that_share_keys_cache_them_once() -> None:
    config = PUBLISHED["Hunyuan-Large"].config
    shared, own = read(config), read({**config, "use_cla": False})
    assert shared.kv_bytes_per_token == 32 * 2 * 8 * 80 * 2
    assert own.kv_bytes_per_token == 2 * shared.kv_bytes_per_token
    assert own.num_parameters - shared.num_parameters == 32 * (2 * 8 * 80 * 6400 + 80)


def test_grok_2_is_known_by_its_architecture() -> None:
    config = PUBLISHED["Grok-2"].config
    mixture = read(config).layers[0].mixture
    assert mixture is not None
    assert (mixture.residual_width, mixture.width) == (32768, 16384)
    with pytest.raises(ScenarioError, match="sliding_window_size"):
        read({**config, "sliding_window_size": 4096})
    with pytest.raises(ScenarioError, match="no family is known"):
        read({**config, "architectures": []})


@pytest.mark.parametrize(
    ("config", "windows"),
    [
        (SMALL["qwen2, windows, tied"].config, {64: 3}),
        ({**SMALL["qwen2, windows, tied"].config, "use_sliding_window": False}, {}),
        ({**SMALL["qwen3"].config, "sliding_window": 64}, {}),
        ({**SMALL["qwen3"].config, "sliding_window": 64, "use_sliding_window": True, "max_window_layers": 0}, {64: 5}),
        ({**SMALL["qwen3_moe"].config, "sliding_window": 64, "use_sliding_window": True}, {64: 5}),
        ({**SMALL["qwen2_moe"].config, "sliding_window": 64, "use_sliding_window": True}, {64: 3}),
        ({**SMALL["qwen2_moe"].config, "sliding_window": 64, "max_window_layers": 2}, {}),
        (SMALL["mistral"].config, {4096: 5}),
        ({**SMALL["mistral"].config, "sliding_window": None}, {}),
        (SMALL["mixtral"].config, {}),
        (SMALL["mixtral, experts of its class"].config, {64: 5}),
        (SMALL["dots1"].config, {}),
        (SMALL["dots1, windows"].config, {64: 2}),
    ],
)
def test_windows_count_where_the_class_uses_them(config: Config, windows: dict[int, int]) -> None:
    assert windows_of(read(config)) == windows


def test_a_list_of_kinds_stands_for_the_turns() -> None:
    kinds = ["sliding_attention", "full_attention"] * 2 + ["full_attention"]
    for name in ("qwen2, windows, tied", "dots1, windows"):
        assert windows_of(read({**SMALL[name].config, "layer_types": kinds})) == {64: 2}


def test_the_latent_is_cached_once_for_all_heads() -> None:
    model = read(SMALL["deepseek_v3"].config)
    assert model.kv_bytes_per_token == 5 * (32 + 8) * 2
    assert read({**SMALL["deepseek_v3"].config, "kv_lora_rank": 48}).kv_bytes_per_token == 5 * (48 + 8) * 2
    attention = model.layers[0].attention
    assert isinstance(attention, LatentAttention)
    with pytest.raises(ScenarioError, match="num_key_value_heads"):
        read({**SMALL["deepseek_v3"].config, "num_key_value_heads": 2})


def test_longcat_has_two_layers_in_one_and_experts_without_weights() -> None:
    """The class of transformers holds two matrices of each expert without weights, which no checkpoint has."""
    model = read(LONGCAT)
    attention = 64 * 24 + 24 + 24 * 4 * 24 + 64 * 40 + 32 + 32 * 4 * 36 + 4 * 20 * 64
    experts = 6 * 3 * 64 * 24 + 64 * 9
    layer = 2 * (attention + 3 * 64 * 100 + 2 * 64) + experts
    assert model.num_parameters == 3 * layer + 64 + 2 * 300 * 64
    assert model.num_layers == 6
    assert model.num_moe_layers == 3
    assert model.kv_bytes_per_token == 6 * 40 * 2
    used = 2 * 6 / 9  # of two experts chosen, those with weights
    assert model.num_parameters - model.num_active_parameters == pytest.approx(3 * (6 - used) * 3 * 64 * 24, abs=3)
    with pytest.raises(ScenarioError, match="zero_expert_type"):
        read({**LONGCAT, "zero_expert_type": "copy"})


def test_ernie_300b_is_no_dense_model_of_48b() -> None:
    model = find_model("ernie-4.5-300b-a47b")
    assert model.num_parameters == pytest.approx(299.5e9, rel=1e-3)
    assert model.num_moe_layers == 51
    assert model.weight_bytes / 2**30 == pytest.approx(558, rel=1e-3)


def test_lists_of_hunyuan_are_read_layer_by_layer() -> None:
    config = {**SMALL["hunyuan_v1_moe, lists"].config}
    config["moe_topk"] = [1, 2, 3, 2, 1]
    config["num_shared_expert"] = [0, 1, 2, 1, 0]
    config["moe_intermediate_size"] = [10, 20, 30, 40, 50]
    found = [layer.mixture for layer in read(config).each_layer()]
    sizes = [(each.experts_per_token, each.num_shared_experts, each.width) for each in found if each is not None]
    assert sizes == [(1, 0, 10), (2, 1, 20), (3, 2, 30), (2, 1, 40), (1, 0, 50)]
    with pytest.raises(ScenarioError, match="moe_topk: expected 5 items"):
        read({**config, "moe_topk": [1, 2]})


def test_long_rope_says_what_vllm_serves_of_it() -> None:
    config = {**SMALL["phimoe"].config, "original_max_position_embeddings": 1024}
    assert read({**config, "rope_scaling": {"type": "longrope"}}).warnings == (
        "vLLM serves 1024 positions, those before LongRoPE, unless max_model_len says more",
    )
    assert read(config).warnings == ()


@pytest.mark.parametrize("name", ["deepseek_v3", "glm4_moe", "ernie4_5_moe"])
def test_layers_that_propose_drafts_are_beside_the_model(name: str) -> None:
    config = SMALL[name].config
    model = read({**config, "num_nextn_predict_layers": 2})
    assert model.drafting_layers == 2
    assert model.layers == read(config).layers
    assert model.num_parameters == SMALL[name].parameters


@pytest.mark.parametrize("name", [name for name, small in SMALL.items() if small.mixtures])
def test_more_experts_for_a_token_than_there_are_is_an_error(name: str) -> None:
    stated = SMALL[name].config
    key = next((each for each in ("moe_topk", "moe_k") if each in stated), "num_experts_per_tok")
    _, error = attempt({**stated, key: 600})
    assert key in error
    assert "600" in error


def test_names_of_one_size_that_differ_are_refused() -> None:
    with pytest.raises(ScenarioError, match="spellings of the same key"):
        read({**SMALL["mixtral"].config, "num_experts": 7})
    assert read({**SMALL["mixtral"].config, "num_experts": 6}) == read(SMALL["mixtral"].config)


@pytest.mark.parametrize("name", SMALL)
def test_a_layer_is_the_same_after_its_way_through_a_document(name: str) -> None:
    for layer in read(SMALL[name].config).layers:
        assert LayerSpec.model_validate(layer.model_dump()) == layer


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


NO_DENSE_LAYERS = ("qwen3_moe", "qwen2_moe", "mistral4", "deepseek_v2, rank of its class", "dots1, windows")
"""Here classes ignore the width of dense layers."""


@pytest.mark.parametrize("name", SMALL)
def test_no_size_or_choice_can_change_in_silence(name: str) -> None:
    config = SMALL[name].config
    model = read(config)
    for path in places(config):
        stated = at(config, path)
        # Groups of experts bound the choice alone.
        if path[-1] in {"n_group", "topk_group"} or (name in NO_DENSE_LAYERS and path[-1] == "intermediate_size"):
            continue
        others: list[object] = []
        if type(stated) is int:
            others = [stated + 1, 2 * stated + 2]
        elif type(stated) is bool:
            others = [not stated]
        elif isinstance(stated, list):
            others = [stated[:-1], [stated[0]] * (len(stated) - 1)]
        for value in others:
            other, _ = attempt(changed(config, path, value))
            assert other != model, f"{'.'.join(path)}: {value} is read as {stated}"


@pytest.mark.parametrize("name", SMALL)
def test_no_key_can_be_added_in_silence(name: str) -> None:
    config = SMALL[name].config
    model = read(config)
    for key in sorted({*ADDED, *MORE} - set(config)):
        for value in (7, [7], "x"):
            other, error = attempt({**config, key: value})
            if key == "sliding_window" and value == 7 and is_switched_off(config, model):
                continue
            assert other != model, f"{key}: {value}"
            assert other is not None or key in error, error


def is_switched_off(config: Config, model: ModelSpec) -> bool:
    """Whether a window changes nothing: published files of Qwen state one beside `use_sliding_window: false`, and dots1
    has one for the layers behind its 62.
    """
    family = str(config["model_type"])
    grouped = all(isinstance(each, GroupedAttention) for each in model.attentions)
    return grouped and (family.startswith("qwen") or family == "dots1") and not windows_of(model)


def test_every_family_of_this_page_has_a_configuration() -> None:
    modules = ("llama", "qwen", "mixtures", "more_mixtures", "latent_attention")
    ours = [each for each in FAMILIES if each.read.__module__.rpartition(".")[2] in modules]
    read_here = {config.get("model_type") for config in CONFIGS.values()} | {"longcat_flash"}
    architectures = {name for config in CONFIGS.values() for name in config.get("architectures", [])}
    missing = [
        each.name
        for each in ours
        if not set(each.model_types) & read_here and not set(each.architectures) & architectures
    ]
    assert not missing
    assert len(ours) > 20
