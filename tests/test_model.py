"""Models: parameters against published numbers, bytes by number format, and laws of `ModelSpec`."""

import csv
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simserve.spec.catalogue import find_model, read_model, resolve_model
from simserve.spec.errors import ScenarioError
from simserve.spec.hugging_face.config import model_from_config
from simserve.spec.model import DenseMlp, GroupedAttention, ModelSpec

GIB = 2**30

# Billions of parameters, and where they were published. "card" is the model's page on huggingface.co, which states
# the size; "index" is the metadata of its safetensors files (total bytes over bytes per weight).
PUBLISHED = [
    ("llama-2-7b", 6.738, "arXiv 2307.09288; index of meta-llama/Llama-2-7b-hf"),
    ("llama-2-13b", 13.016, "arXiv 2307.09288; index of meta-llama/Llama-2-13b-hf"),
    ("llama-2-70b", 68.977, "arXiv 2307.09288; index of meta-llama/Llama-2-70b-hf"),
    ("codellama-34b", 33.7, "card of codellama/CodeLlama-34b-hf (33.7B)"),
    ("llama-3.1-8b", 8.03, "card of meta-llama/Llama-3.1-8B"),
    ("llama-3.1-70b", 70.6, "card of meta-llama/Llama-3.1-70B"),
    ("llama-3.1-405b", 405.9, "card of meta-llama/Llama-3.1-405B (406B)"),
    ("llama-3.2-1b", 1.24, "card of meta-llama/Llama-3.2-1B (1.23B)"),
    ("llama-3.2-3b", 3.21, "card of meta-llama/Llama-3.2-3B"),
    ("llama-3.3-70b", 70.6, "card of meta-llama/Llama-3.3-70B-Instruct"),
    ("llama-4-scout-17b-16e", 108.6, "card of meta-llama/Llama-4-Scout-17B-16E: 109B with its vision part"),
    ("mistral-7b", 7.25, "card of mistralai/Mistral-7B-v0.3"),
    ("mistral-nemo-12b", 12.2, "card of mistralai/Mistral-Nemo-Instruct-2407"),
    ("mixtral-8x7b", 46.7, "arXiv 2401.04088 (47B); card of mistralai/Mixtral-8x7B-v0.1"),
    ("mixtral-8x22b", 140.6, "card of mistralai/Mixtral-8x22B-v0.1 (141B)"),
    ("qwen2-7b", 7.62, "card of Qwen/Qwen2-7B-Instruct"),
    ("qwen2.5-0.5b", 0.494, "card of Qwen/Qwen2.5-0.5B (0.49B)"),
    ("qwen2.5-7b", 7.61, "card of Qwen/Qwen2.5-7B-Instruct"),
    ("qwen2.5-32b", 32.5, "card of Qwen/Qwen2.5-32B-Instruct"),
    ("qwen2.5-72b", 72.7, "card of Qwen/Qwen2.5-72B-Instruct"),
    ("qwen3-0.6b", 0.596, "index of Qwen/Qwen3-0.6B (tied); the card rounds to 0.6B"),
    ("qwen3-4b", 4.0, "card of Qwen/Qwen3-4B"),
    ("qwen3-8b", 8.2, "card of Qwen/Qwen3-8B"),
    ("qwen3-14b", 14.8, "card of Qwen/Qwen3-14B"),
    ("qwen3-32b", 32.8, "card of Qwen/Qwen3-32B"),
    ("qwen3-30b-a3b", 30.5, "card of Qwen/Qwen3-30B-A3B"),
    ("qwen3-235b-a22b", 235.0, "card of Qwen/Qwen3-235B-A22B"),
    ("yi-34b", 34.4, "index of 01-ai/Yi-34B"),
    ("deepseek-v3", 671.0, "arXiv 2412.19437, without the prediction module"),
    ("deepseek-r1", 671.0, "card of deepseek-ai/DeepSeek-R1"),
    ("gpt-oss-20b", 20.91, "OpenAI, gpt-oss model card (2025), table 1"),
    ("gpt-oss-120b", 116.83, "OpenAI, gpt-oss model card (2025), table 1"),
]

ACTIVE = [
    ("mixtral-8x7b", 12.9, "arXiv 2401.04088 (13B)"),
    ("mixtral-8x22b", 39.1, "card of mistralai/Mixtral-8x22B-v0.1 (39B)"),
    ("qwen3-30b-a3b", 3.3, "card of Qwen/Qwen3-30B-A3B"),
    ("qwen3-235b-a22b", 22.0, "card of Qwen/Qwen3-235B-A22B"),
    ("deepseek-v3", 37.0, "arXiv 2412.19437"),
]

with (Path(__file__).parent / "data" / "catalogue_parameters.csv").open(encoding="utf-8", newline="") as _file:
    COUNTED = {row["name"]: row for row in csv.DictReader(_file)}
"""Each model of the catalogue but `UNCOUNTED` of `tests/test_catalogue.py`, with counts that others made."""


@pytest.mark.parametrize(("name", "billions", "source"), PUBLISHED)
def test_parameters_are_within_one_percent_of_the_published(name: str, billions: float, source: str) -> None:
    model = find_model(name)
    assert model.num_parameters - model.tower_parameters == pytest.approx(billions * 1e9, rel=0.01), source


@pytest.mark.parametrize(("name", "billions", "source"), ACTIVE)
def test_active_parameters_are_within_two_percent_of_the_published(name: str, billions: float, source: str) -> None:
    assert find_model(name).num_active_parameters == pytest.approx(billions * 1e9, rel=0.02), source


@pytest.mark.parametrize("name", COUNTED)
def test_every_model_of_the_catalogue_has_the_parameters_that_others_count(name: str) -> None:
    counted, model = COUNTED[name], find_model(name)
    tolerance = float(counted["tolerance"])
    assert model.num_parameters == pytest.approx(int(counted["parameters"]), rel=tolerance)
    text = model.num_parameters - model.tower_parameters
    assert text == pytest.approx(int(counted["text_parameters"]), rel=tolerance)
    assert model.num_active_parameters == pytest.approx(int(counted["active"]), rel=tolerance)


def test_gpt_oss_counts_its_active_parameters_without_the_embedding() -> None:
    """OpenAI's model card: 5.13 B and 3.61 B active, embedding left out, unembedding counted."""
    for name, billions in (("gpt-oss-120b", 5.13), ("gpt-oss-20b", 3.61)):
        model = find_model(name)
        active = model.num_active_parameters - model.embedding_parameters
        assert active == pytest.approx(billions * 1e9, rel=0.01)


@pytest.mark.parametrize(
    ("name", "kv_bytes"),
    [
        ("llama-2-7b", 2 * 32 * 32 * 128 * 2),
        ("llama-3.1-8b", 131072),
        ("llama-3.1-70b", 327680),
        ("qwen2-7b", 57344),
        ("deepseek-v3", 61 * (512 + 64) * 2),
        ("gpt-oss-120b", 18 * 2 * 8 * 64 * 2),
        ("mimo-v2-flash", 9 * 4 * (192 + 128) * 2),
    ],
)
def test_kv_bytes_per_token(name: str, kv_bytes: int) -> None:
    """In the layers that keep all tokens. The logs of real servers give the same numbers: KV memory over KV tokens."""
    assert find_model(name).kv_bytes_per_token == kv_bytes


def test_window_layers_are_counted_apart() -> None:
    model = find_model("gpt-oss-120b")
    assert model.attention_layers == {"full": 18, "window": 18}
    assert model.windows == [{"window": 128, "bytes_per_token": 18 * 2 * 8 * 64 * 2, "layers": 18}]


@pytest.mark.parametrize(
    ("model", "gib", "source"),
    [
        ("llama-3.1-8b", 14.99, "vllm-project/vllm#10517: weights 14.9888 GiB"),
        ("qwen2-7b", 14.25, "vLLM 0.10.1.1 start-up log: 14.2488 GiB"),
        ({"config": "llama-3.1-70b", "weight_dtype": "int8"}, 67.72, "vllm-project/vllm#12569, w8a8: 67.7229 GiB"),
        ("gpt-oss-120b", 60.8, "files of openai/gpt-oss-120b (model card: 60.8 GiB)"),
        ("gpt-oss-20b", 12.8, "files of openai/gpt-oss-20b (model card: 12.8 GiB)"),
    ],
)
def test_weight_bytes_are_those_of_real_checkpoints(model: str | dict[str, Any], gib: float, source: str) -> None:
    assert resolved(model).weight_bytes / GIB == pytest.approx(gib, rel=0.01), source


def resolved(model: str | dict[str, Any]) -> ModelSpec:
    return ModelSpec.model_validate(resolve_model(model))


def test_stated_weight_bytes_win() -> None:
    model = resolved({"config": "llama-2-7b", "weight_bytes": "14 GB"})
    assert model.weight_bytes == 14e9
    assert model.num_parameters == find_model("llama-2-7b").num_parameters


def test_kv_and_weight_formats_are_apart() -> None:
    base = find_model("llama-3.1-8b")
    model = resolved({"config": "llama-3.1-8b", "weight_dtype": "int4", "kv_dtype": "fp8_e4m3"})
    assert model.kv_bytes_per_token == base.kv_bytes_per_token / 2
    # Embedding and lm_head stay in 16 bit.
    assert model.weight_bytes > base.weight_bytes / 4 + 2 * (128256 * 4096 * 2) * 3 / 4


def test_kv_dtype_auto_is_the_activations_format() -> None:
    assert resolved({"config": "llama-2-7b", "kv_dtype": "auto"}).kv_dtype == "fp16"


LLAMA: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": 512,
    "intermediate_size": 1408,
    "num_hidden_layers": 8,
    "num_attention_heads": 8,
    "vocab_size": 32000,
    "max_position_embeddings": 4096,
}


def config(**changes: Any) -> ModelSpec:
    return model_from_config({**LLAMA, **changes}, "m")


def test_a_stated_weight_format_stands_for_an_unknown_one() -> None:
    unknown = {**LLAMA, "quantization_config": {"quant_method": "bitsandbytes"}}
    assert resolved({"config": unknown, "weight_dtype": "int4"}).weight_dtype == "int4"
    with pytest.raises(ScenarioError, match="bitsandbytes"):
        resolved({"config": unknown})
    assert resolved({"config": "gpt-oss-20b", "weight_dtype": "bfloat16"}).expert_dtype == "bf16"
    assert resolved({"config": "gpt-oss-20b", "kv_dtype": "fp8"}).expert_dtype == "mxfp4"


widths = st.integers(1, 8).map(lambda n: 64 * n)
dense = st.fixed_dictionaries(
    {
        "model_type": st.sampled_from(["llama", "qwen2", "qwen3", "mistral"]),
        "hidden_size": widths,
        "intermediate_size": widths,
        "num_hidden_layers": st.integers(1, 6),
        "num_attention_heads": st.sampled_from([1, 2, 4, 8]),
        "num_key_value_heads": st.just(1),
        "vocab_size": st.integers(1, 1000),
        "max_position_embeddings": st.integers(1, 4096),
        "tie_word_embeddings": st.booleans(),
        "sliding_window": st.none(),
    }
)


@given(dense)
def test_a_layer_more_adds_one_layers_parameters(config: dict[str, Any]) -> None:
    one, two = (model_from_config({**config, "num_hidden_layers": layers}, "m") for layers in (1, 2))
    assert two.num_parameters - one.num_parameters == one.layers[0].parameters(one.hidden_size)
    assert two.kv_bytes_per_token == 2 * one.kv_bytes_per_token
    assert two.num_layers == 2
    assert len(two.layers) == 1


@given(dense)
def test_tying_saves_exactly_one_embedding(config: dict[str, Any]) -> None:
    tied, untied = (model_from_config({**config, "tie_word_embeddings": tie}, "m") for tie in (True, False))
    assert untied.num_parameters - tied.num_parameters == config["vocab_size"] * config["hidden_size"]


@given(dense)
def test_weights_in_16_bit_are_two_bytes_a_parameter(config: dict[str, Any]) -> None:
    model = model_from_config(config, "m")
    assert model.weight_bytes == 2 * model.num_parameters
    assert model.layer_bytes + model.outer_bytes == model.weight_bytes
    assert model.num_active_parameters == model.num_parameters


@given(dense, st.sampled_from([2, 4, 8]), st.integers(1, 8))
def test_a_mixture_is_as_large_as_its_experts_and_as_active_as_the_routed(
    config: dict[str, Any], experts: int, top: int
) -> None:
    top = min(top, experts)
    mixture = {"num_experts": experts, "num_experts_per_tok": top, "moe_intermediate_size": 64}
    model = model_from_config({**config, **mixture, "model_type": "qwen3_moe"}, "m")
    one_expert = 3 * config["hidden_size"] * 64
    unused = config["num_hidden_layers"] * (experts - top) * one_expert
    assert model.num_parameters - model.num_active_parameters == unused
    assert model.num_moe_layers == config["num_hidden_layers"]


@given(dense)
def test_fewer_bits_never_weigh_more(config: dict[str, Any]) -> None:
    model = model_from_config(config, "m")
    sizes = [model.in_format(dtype).weight_bytes for dtype in ("fp32", "bf16", "fp8", "int4")]
    assert sizes == sorted(sizes, reverse=True)
    assert model.in_format("bf16") == model


@given(dense)
def test_a_model_is_the_same_after_its_way_through_a_document(config: dict[str, Any]) -> None:
    model = model_from_config(config, "m")
    assert ModelSpec.model_validate(model.model_dump(by_alias=True)) == model
    assert ModelSpec.model_validate(json.loads(model.model_dump_json(by_alias=True))) == model


def test_layers_that_are_alike_are_written_as_one_with_their_number() -> None:
    attention = GroupedAttention(num_heads=4, num_kv_heads=2, head_dim=16)
    layer = {"attention": attention, "mlp": DenseMlp(width=100)}
    model = ModelSpec.model_validate(
        {
            **{"name": "m", "hidden_size": 64, "vocab_size": 10, "max_position_embeddings": 8},
            "layers": [layer, {**layer, "count": 3}, {"attention": attention}, layer],
        }
    )
    assert [row.count for row in model.layers] == [4, 1, 1]
    assert [row.count for row in model.each_layer()] == [1] * 6
    assert model.with_layers(model.each_layer()) == model


def test_a_model_without_attention_is_refused() -> None:
    fields = {"name": "m", "hidden_size": 64, "vocab_size": 10, "max_position_embeddings": 8}
    with pytest.raises(ValueError, match="expected layers with attention"):
        ModelSpec.model_validate({**fields, "layers": [{"mlp": {"type": "dense", "width": 8}}]})


def test_missing_keys_have_the_defaults_of_transformers() -> None:
    attention = config().layers[0].attention
    assert isinstance(attention, GroupedAttention)
    assert (attention.num_kv_heads, attention.head_dim) == (8, 64)
    assert not config().tie_word_embeddings
    assert config(model_type="gemma2").tie_word_embeddings
    qwen = config(model_type="qwen2", num_key_value_heads=8).layers[0].attention
    assert isinstance(qwen, GroupedAttention)
    assert (qwen.qkv_bias, qwen.output_bias) == (True, False)


def test_multi_query_attention() -> None:
    assert config(num_key_value_heads=1).kv_bytes_per_token == 8 * 2 * 64 * 2


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_attention_heads": None}, "num_attention_heads: expected a positive whole number, got null"),
        ({"num_attention_heads": 3}, "head_dim: is needed: hidden_size 512 is no multiple of 3 heads"),
        ({"num_key_value_heads": 3}, "num_key_value_heads: 3 does not divide num_attention_heads 8"),
        ({"hidden_size": -3}, "hidden_size"),
        ({"vocab_size": True}, "vocab_size"),
        ({"hidden_act": "relu2"}, "hidden_act: 'relu2'"),
        ({"mamba_d_state": 16}, "mamba_d_state: 16: not known for the family llama"),
        ({"num_experts": 8}, "num_experts: 8: not known for the family llama"),
        ({"model_type": "a-model-of-tomorrow"}, "no family is known by model_type 'a-model-of-tomorrow'"),
        ({"model_type": "bert"}, "bert is an encoder"),
        ({"quantization_config": {"quant_method": "bitsandbytes"}}, "bitsandbytes.*state .weight_dtype."),
        ({"torch_dtype": "float64"}, "activation_dtype: expected one of"),
    ],
)
def test_what_is_not_modelled_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ScenarioError, match=message):
        config(**changes)


def test_a_config_file_is_named_after_its_folder(tmp_path: Path) -> None:
    path = tmp_path / "my-model" / "config.json"
    path.parent.mkdir()
    path.write_text(json.dumps(LLAMA))
    assert read_model(path).name == read_model(path.parent).name == "my-model"


@pytest.mark.parametrize("text", ["", "[1]", "{"])
def test_a_broken_config_file_is_named(tmp_path: Path, text: str) -> None:
    path = tmp_path / "config.json"
    path.write_text(text)
    with pytest.raises(ScenarioError, match=r"config\.json"):
        read_model(path)


def test_a_model_name_with_a_typing_error_gets_a_suggestion() -> None:
    with pytest.raises(ScenarioError, match=r"did you mean 'llama-3\.1-8b'\?"):
        find_model("lama-3.1-8b")
