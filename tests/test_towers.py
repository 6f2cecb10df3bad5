"""Towers of multimodal models: parameters as their classes make them, no key passed over, nothing left unsaid."""

import copy
import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simserve.spec.errors import ScenarioError
from simserve.spec.hugging_face.config import model_from_config
from simserve.spec.hugging_face.keys import Keys
from simserve.spec.hugging_face.registry import FAMILIES
from simserve.spec.hugging_face.towers.read import read_towers
from simserve.spec.hugging_face.wrappers import WRAPPERS
from simserve.spec.model import ModelSpec

_VIT = {"hidden_size": 48, "intermediate_size": 80, "num_hidden_layers": 3, "num_attention_heads": 4}
_PICTURE = {"image_size": 56, "patch_size": 14}
_CLIP = {"model_type": "clip_vision_model", **_VIT, **_PICTURE}
_SIGLIP = {"model_type": "siglip_vision_model", **_VIT, **_PICTURE}
_NO_HEAD = {**_SIGLIP, "vision_use_head": False}
_MERGED = {"depth": 3, "hidden_size": 48, "intermediate_size": 80, "num_heads": 4, "out_hidden_size": 64}
_DEEP = {**_MERGED, "num_position_embeddings": 16, "deepstack_visual_indexes": [0, 2], "patch_size": 8}
_QWEN2 = {"depth": 32, "num_heads": 16, "in_chans": 3, "patch_size": 14, "spatial_patch_size": 14}
_AUDIO = {"d_model": 1280, "encoder_attention_heads": 20, "encoder_ffn_dim": 5120, "encoder_layers": 32}
_CONFORMER = {"hidden_size": 48, "conf_num_hidden_layers": 3, "conf_num_attention_heads": 4, "vocab_size": 12}

CASES: dict[str, tuple[str, int, dict[str, Any], list[int]]] = {
    "clip": ("llava", 64, {"vision_config": _CLIP}, [88_800]),
    "clip by class": ("llava", 64, {"vision_config": {"model_type": "clip_vision_model"}}, [87_509_376]),
    "siglip, two layers read": (
        "llava",
        64,
        {"multimodal_projector_bias": False, "vision_feature_layer": [-2, -1], "vision_config": _SIGLIP},
        [108_960],
    ),
    "pixtral in llava": ("llava", 64, {"vision_config": {"model_type": "pixtral", **_VIT, **_PICTURE}}, [98_064]),
    "llava_next": (
        "llava_next",
        64,
        {
            "vision_config": {
                **{"model_type": "clip_vision_model", "hidden_size": 1024, "intermediate_size": 4096},
                **{"num_hidden_layers": 24, "num_attention_heads": 16, "image_size": 336, "patch_size": 14},
            }
        },
        [303_577_280],
    ),
    "gemma3": (
        "gemma3",
        2560,
        {
            "vision_config": {
                **{"model_type": "siglip_vision_model", "hidden_size": 1152, "intermediate_size": 4304},
                **{"num_hidden_layers": 27, "num_attention_heads": 16, "image_size": 896, "patch_size": 14},
                "vision_use_head": False,
            }
        },
        [419_816_304],
    ),
    "paligemma": (
        "paligemma",
        64,
        {"projection_dim": 64, "vision_config": {**_NO_HEAD, "projection_dim": 64}},
        [84_496],
    ),
    "mistral3": (
        "mistral3",
        5120,
        {
            "spatial_merge_size": 2,
            "vision_config": {
                **{"model_type": "pixtral", "hidden_size": 1024, "intermediate_size": 4096, "image_size": 1540},
                **{"num_hidden_layers": 24, "num_attention_heads": 16, "head_dim": 64, "patch_size": 14},
            },
        },
        [438_958_080],
    ),
    "cohere2_vision": (
        "cohere2_vision",
        64,
        {"alignment_intermediate_size": 96, "vision_config": _NO_HEAD},
        [103_024],
    ),
    "aya_vision": ("aya_vision", 64, {"vision_config": _NO_HEAD}, [96_208]),
    "idefics3": ("idefics3", 64, {"scale_factor": 2, "vision_config": {**_VIT, **_PICTURE}}, [93_648]),
    "qwen2_vl": (
        "qwen2_vl",
        1536,
        {"vision_config": {**_QWEN2, "embed_dim": 1280, "mlp_ratio": 4, "hidden_size": 1536}},
        [665_271_296],
    ),
    "qwen2_5_vl": (
        "qwen2_5_vl",
        3584,
        {"vision_config": {**_QWEN2, "hidden_size": 1280, "intermediate_size": 3420, "out_hidden_size": 3584}},
        [676_550_144],
    ),
    "qwen3_vl": ("qwen3_vl", 64, {"vision_config": _DEEP}, [220_560]),
    "qwen3_5": ("qwen3_5", 64, {"vision_config": {**_DEEP, "deepstack_visual_indexes": []}}, [120_976]),
    "qwen2_audio": ("qwen2_audio", 4096, {"audio_config": _AUDIO}, [642_215_936]),
    "voxtral": (
        "voxtral",
        3072,
        {
            "audio_config": {
                **{"hidden_size": 1280, "intermediate_size": 5120, "num_hidden_layers": 32},
                "num_attention_heads": 20,
            }
        },
        [662_134_784],
    ),
    "qwen2_5_omni by class": (
        "qwen2_5_omni",
        3584,
        {"thinker_config": {"vision_config": {"depth": 32}, "audio_config": {"d_model": 1280}}},
        [3_083_025_152, 639_647_232],
    ),
    "qwen3_omni_moe by class": (
        "qwen3_omni_moe",
        3584,
        {"thinker_config": {"vision_config": {"depth": 27}, "audio_config": {"d_model": 1280}}},
        [566_949_104, 649_894_784],
    ),
    "llama4": (
        "llama4",
        64,
        {
            "vision_config": {
                **_VIT,
                **_PICTURE,
                **{"intermediate_size": 192, "projector_input_dim": 72, "projector_output_dim": 72},
                "vision_output_dim": 72,
            }
        },
        [137_712],
    ),
    "kimi_k25": (
        "kimi_k25",
        64,
        {"vision_config": {**_VIT, "pos_emb_height": 4, "pos_emb_width": 8, "merge_kernel_size": [2, 2]}},
        [131_632],
    ),
    "kimi_k25 as published": (
        "kimi_k25",
        64,
        {
            "vision_config": {
                **{"vt_hidden_size": 48, "vt_intermediate_size": 80, "vt_num_hidden_layers": 3, "mm_hidden_size": 48},
                **{"init_pos_emb_height": 4, "init_pos_emb_width": 8, "merge_kernel_size": [2, 2]},
                "mm_projector_type": "patchmerger",
            }
        },
        [131_632],
    ),
    "gemma4": (
        "gemma4",
        64,
        {
            "vision_config": {**_VIT, "num_key_value_heads": 2, "head_dim": 12, "position_embedding_size": 64},
            "audio_config": {
                **{"hidden_size": 48, "num_hidden_layers": 3, "num_attention_heads": 4},
                **{"subsampling_conv_channels": [16, 8], "output_proj_dims": 40},
            },
        },
        [102_024, 175_316],
    ),
    "gemma3n": (
        "gemma3n",
        64,
        {
            "vision_config": {"architecture": "mobilenetv5_300m_enc"},
            "audio_config": {**_CONFORMER, "sscp_conv_channel_size": [16, 8], "input_feat_size": 80},
        },
        [294_524_224, 180_684],
    ),
    "step3p7": (
        "step3p7",
        64,
        {"vision_config": {"width": 48, "layers": 3, "heads": 4, **_PICTURE, "mlp_ratio": 2.5}},
        [313_176],
    ),
    "step3p7 by class": ("step3p7", 64, {"vision_config": {"patch_size": 14}}, [1_956_242_176]),
    "internvl": (
        "internvl",
        64,
        {
            "vision_config": {
                **{**_VIT, "image_size": [56, 56], "patch_size": [14, 14]},
                **{"attention_bias": True, "use_qk_norm": True, "use_mean_pooling": False},
            }
        },
        [98_928],
    ),
    "internvl 300M": (
        "internvl",
        2048,
        {"vision_config": {"hidden_size": 1024, "attention_bias": True}},
        [316_607_488],
    ),
    "internvl 300M as published": (
        "internvl_chat",
        2048,
        {
            "vision_config": {
                **{"hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 24, "norm_type": "layer_norm"},
                **{"image_size": 448, "patch_size": 14, "qkv_bias": True, "qk_normalization": False},
            }
        },
        [316_607_488],
    ),
    "glm4v": (
        "glm4v",
        64,
        {"vision_config": {**_MERGED, "image_size": 56, "attention_bias": True}},
        [145_312],
    ),
    "minimax_m3_vl": (
        "minimax_m3_vl",
        64,
        {"projector_hidden_size": 72, "vision_config": {**_VIT, **_PICTURE}},
        [140_144],
    ),
    # Parameters of the published checkpoint less those of its language model: Kimi-VL-A3B 16,407,657,776 less
    # Moonlight-16B-A3B 15,960,111,936; Phi-3.5-vision 4,146,621,440 less Phi-3.5-mini 3,821,079,552.
    "kimi_vl": ("kimi_vl", 2048, {"vision_config": {"model_type": "moonvit", "hidden_size": 1152}}, [447_545_840]),
    "phi3_v": (
        "phi3_v",
        3072,
        {
            "img_processor": {"name": "clip_vision_model", "image_dim_out": 1024},
            "embd_layer": {"use_hd_transform": True, "with_learnable_separator": True, "projection_cls": "mlp"},
        },
        [325_541_888],
    ),
    # By hand, of vLLM 0.33: step3_vl.py and step_vl.py, deepseek_vl2.py (SigLIP so400m with its head is 428,225,600).
    "step3_vl": (
        "step3_vl",
        64,
        {"projector_bias": False, "vision_config": {**_VIT, **_PICTURE, "output_hidden_size": 32}},
        [
            (588 * 48 + 48)
            + 48
            + 17 * 48
            + 3 * (4 * (48 * 48 + 48) + 48 * 80 + 80 + 80 * 48 + 48 + 4 * 48)
            + (4 * 48 * 32 + 32)
            + (9 * 32 * 64 + 64)
            + 64 * 64
        ],
    ),
    "deepseek_vl_v2": (
        "deepseek_vl_v2",
        64,
        {"tile_tag": "2D", "projector_config": {"n_embed": 64}, "vision_config": {"width": 1152, "layers": 27}},
        [428_225_600 + (4 * 1152 * 64 + 64) + (64 * 64 + 64) + 2 * 64],
    ),
}
"""By what it shows: `model_type`, hidden size of the decoder, keys, parameters of each tower: counted of the class in
transformers 5.24, built on the meta device, less the language model, where nothing else is said.
"""


def towers(kind: str, config: dict[str, Any], hidden_size: int) -> tuple[list[int], list[str], list[str]]:
    """Parameters of each tower, what is left out, and keys of towers that nobody read."""
    wrapper = next(each for each in WRAPPERS if kind in each.model_types)
    keys = Keys(config, kind)
    counted, left_out = read_towers(keys, wrapper.towers, hidden_size)
    unread = [key for path, key, _ in keys.unread() if path != "config.json"]
    return [each.num_parameters for each in counted], left_out, unread


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_parameters_are_those_of_the_class(case: tuple[str, int, dict[str, Any], list[int]]) -> None:
    kind, hidden_size, config, expected = case
    counted, left_out, unread = towers(kind, config, hidden_size)
    assert counted == expected
    assert all(each.startswith("the work of its ") for each in left_out if "serves" not in each)
    assert unread == []


def sections(config: dict[str, Any], path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Paths of all sections in a configuration."""
    for key, value in config.items():
        if isinstance(value, dict):
            yield (*path, key)
            yield from sections(value, (*path, key))


def changed(config: dict[str, Any], path: tuple[str, ...], key: str, value: object) -> dict[str, Any]:
    """A copy with one key replaced."""
    found = copy.deepcopy(config)
    inside = found
    for name in path:
        inside = inside[name]
    inside[key] = value
    return found


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_a_key_of_a_tower_that_nobody_knows_is_not_read(case: tuple[str, int, dict[str, Any], list[int]]) -> None:
    kind, hidden_size, config, _ = case
    for path in sections(config):
        if path[-1] in {"vision_config", "audio_config"}:
            with_key = changed(config, path, "num_experts_of_the_tower", 8)
            assert towers(kind, with_key, hidden_size)[2] == ["num_experts_of_the_tower"]


HEADS = {"num_attention_heads", "encoder_attention_heads", "heads", "num_heads"}
"""They share the hidden size, but in Gemma's towers."""
CHANGES_NOTHING = {
    ("llava", "pixtral", "image_size"): "positions are rotary",
    ("mistral3", "pixtral", "image_size"): "positions are rotary",
    ("mistral3", "pixtral", "head_dim"): "the class projects to its hidden size",
    ("minimax_m3_vl", "", "image_size"): "positions are rotary",
}


def changes_nothing(kind: str, section: dict[str, Any], key: str) -> bool:
    if key in HEADS:
        return not kind.startswith("gemma") or section.get("model_type") == "siglip_vision_model"
    return (kind, section.get("model_type", ""), key) in CHANGES_NOTHING


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_a_whole_number_that_changes_changes_the_answer_or_is_refused(
    case: tuple[str, int, dict[str, Any], list[int]],
) -> None:
    kind, hidden_size, config, expected = case
    for path in sections(config):
        inside = config
        for name in path:
            inside = inside[name]
        for key, value in inside.items():
            if isinstance(value, bool) or not isinstance(value, int) or changes_nothing(kind, inside, key):
                continue
            assert said_or_counted(kind, changed(config, path, key, 2 * value), hidden_size, key) != expected, (
                path,
                key,
            )


STRANGE = st.one_of(
    st.none(),
    st.integers(-(2**70), 2**70),
    st.floats(),
    st.text(max_size=5),
    st.booleans(),
    st.lists(st.integers(-3, 3), max_size=3),
    st.dictionaries(st.text(max_size=3), st.integers(), max_size=2),
)


@settings(deadline=None, max_examples=300)
@given(case=st.sampled_from(sorted(CASES)), value=STRANGE, data=st.data())
def test_whatever_stands_in_a_section_is_one_error_or_a_count(case: str, value: object, data: st.DataObject) -> None:
    kind, hidden_size, config, _ = CASES[case]
    places = [(path, key) for path in [(), *sections(config)] for key in _at(config, path)]
    path, key = data.draw(st.sampled_from(places))
    try:
        counted, left_out, _ = towers(kind, changed(config, path, key, value), hidden_size)
    except ScenarioError:
        return
    assert all(each > 0 for each in counted)
    assert len(left_out) >= 1


def said_or_counted(kind: str, config: dict[str, Any], hidden_size: int, key: str) -> int | None:
    """What a tower of a configuration counts; None where it is refused, for the reason of that key."""
    try:
        counted, _, _ = towers(kind, config, hidden_size)
    except ScenarioError as error:
        said = str(error)
    else:
        return counted
    assert key in said or "is not" in said
    return None


def _at(config: dict[str, Any], path: tuple[str, ...]) -> dict[str, Any]:
    for name in path:
        config = config[name]
    return config


# Whole files.

_TEXT = {
    **{"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4},
    **{"num_key_value_heads": 2, "vocab_size": 256, "max_position_embeddings": 512},
}


def read(**config: Any) -> ModelSpec:
    return model_from_config(json.loads(json.dumps(config)), "m")


def test_every_wrapper_is_around_a_known_family_and_named_once() -> None:
    names = [name for each in WRAPPERS for name in (*each.model_types, *each.architectures)]
    assert len(names) == len(set(names))
    known = {each.name for each in FAMILIES}
    assert {each.family for each in WRAPPERS if each.family} <= known


def test_llava_as_published_leaves_sizes_of_its_decoder_to_the_class() -> None:
    # llava-1.5-7b: 7,063,427,072 parameters; its text_config says only what differs from the class of Llama.
    model = read(
        model_type="llava",
        architectures=["LlavaForConditionalGeneration"],
        ignore_index=-100,
        image_token_index=32000,
        projector_hidden_act="gelu",
        text_config={"model_type": "llama", "max_position_embeddings": 4096, "vocab_size": 32064},
        tie_word_embeddings=False,
        torch_dtype="float16",
        vision_config={
            **{"model_type": "clip_vision_model", "hidden_size": 1024, "intermediate_size": 4096, "image_size": 336},
            **{"num_hidden_layers": 24, "num_attention_heads": 16, "patch_size": 14, "projection_dim": 768},
        },
        vision_feature_layer=-2,
        vision_feature_select_strategy="default",
        vocab_size=32064,
    )
    assert model.num_parameters == 7_063_427_072
    assert model.left_out == ("the work of its vision tower",)


def test_a_wrapper_may_repeat_its_decoder_but_not_differ_from_it() -> None:
    file = {"model_type": "llava", "text_config": {"model_type": "llama", **_TEXT}, "vision_config": _CLIP}
    assert read(**file, hidden_size=64) == read(**file)
    with pytest.raises(ScenarioError, match="hidden_size: 65"):
        read(**file, hidden_size=65)


def test_a_tower_that_nobody_counted_is_said() -> None:
    file = {"model_type": "llava", "text_config": {"model_type": "llama", **_TEXT}}
    of_another_kind = read(**file, vision_config={"model_type": "swin", "hidden_size": 8, "depths": [2, 2]})
    assert of_another_kind.tower_parameters == 0
    assert of_another_kind.left_out == ("the weights of its vision tower",)
    absent = read(**file)
    assert absent.left_out == ("the weights of its vision tower, of which the file has no vision_config",)


def test_qwen2_5_vl_is_the_same_with_its_decoder_at_the_top_as_in_old_files() -> None:
    vision = {"hidden_size": 48, "intermediate_size": 80, "depth": 2, "out_hidden_size": 64}
    beside = {"model_type": "qwen2_5_vl", "architectures": ["Qwen2_5_VLForConditionalGeneration"]}
    old = read(**beside, **_TEXT, vision_config=vision)
    new = read(**beside, text_config={"model_type": "qwen2_5_vl_text", **_TEXT}, vision_config=vision)
    assert old == new
    assert old.tower_parameters > 0
    # Biases of queries, keys and values, as Qwen2 has them.
    assert old.num_parameters - old.tower_parameters == 2 * 256 * 64 + 64 + 2 * (
        (64 + 2 * 32) * 64 + 64 + 2 * 32 + 64 * 64 + 3 * 64 * 96 + 2 * 64
    )


def test_qwen3_omni_is_read_where_its_thinker_is() -> None:
    text = {**_TEXT, "head_dim": 16, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32}
    thinker: dict[str, Any] = {
        "model_type": "qwen3_omni_moe_thinker",
        "text_config": {"model_type": "qwen3_omni_moe_text", **text},
        "vision_config": {**_DEEP, "model_type": "qwen3_omni_moe_vision_encoder"},
        "audio_config": {"d_model": 48, "encoder_ffn_dim": 80, "encoder_layers": 2, "output_dim": 64},
    }
    whole = read(
        model_type="qwen3_omni_moe",
        architectures=["Qwen3OmniMoeForConditionalGeneration"],
        thinker_config=thinker,
        talker_config={"text_config": {"hidden_size": 1024}},
        code2wav_config={"hidden_size": 1024},
    )
    assert whole.num_layers == 2
    assert whole.num_experts == 4
    assert [each.name for each in whole.towers] == ["vision tower", "audio tower"]
    assert "the weights of its talker (vLLM serves the part that thinks alone)" in whole.left_out
    alone = read(**thinker)
    assert alone.num_parameters == whole.num_parameters
    thinker["text_config"] = {**text, "num_experts_of_mine": 8}
    with pytest.raises(ScenarioError, match="thinker_config: text_config: num_experts_of_mine"):
        read(model_type="qwen3_omni_moe", thinker_config=thinker)


def test_a_wrapper_whose_class_ties_says_that_a_head_is_counted() -> None:
    file = {"model_type": "mistral3", "text_config": {"model_type": "mistral", **_TEXT}}
    vision = {"model_type": "pixtral", **_VIT, **_PICTURE}
    doubtful = read(**file, vision_config=vision)
    assert not doubtful.tie_word_embeddings
    assert any("a head of its own is counted" in each for each in doubtful.warnings)
    for stated in (True, False):
        model = read(**file, vision_config=vision, tie_word_embeddings=stated)
        assert model.tie_word_embeddings is stated
        assert model.warnings == ()


def test_a_decoder_that_ties_otherwise_than_its_wrapper_is_doubted() -> None:
    text = {"model_type": "llama", **_TEXT, "tie_word_embeddings": True}
    model = read(model_type="llava", text_config=text, vision_config=_CLIP, tie_word_embeddings=False)
    assert model.tie_word_embeddings
    assert any("the former is taken" in each for each in model.warnings)


def test_keys_of_a_tower_are_refused_by_name_and_may_be_ignored_on_the_users_word() -> None:
    vision = {**_CLIP, "num_registers": 4}
    file = {"model_type": "llava", "text_config": {"model_type": "llama", **_TEXT}, "vision_config": vision}
    with pytest.raises(ScenarioError, match=r"config.json: vision_config: num_registers: 4"):
        read(**file)
    model = model_from_config(file, "m", ignore=["num_registers"])
    assert "num_registers of its configuration, on the user's word" in model.left_out


@pytest.mark.parametrize("kind", [each.model_types[0] for each in WRAPPERS])
def test_strange_names_of_the_decoder_are_one_error(kind: str) -> None:
    for text in ({"model_type": ["llama"]}, {"model_type": {}}, {"model_type": "nobody"}, [], "text", 3):
        with pytest.raises(ScenarioError):
            read(model_type=kind, text_config=text, llm_config=text, language_config=text, thinker_config=text)
