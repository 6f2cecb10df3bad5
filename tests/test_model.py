"""Models: parameter counts against published ones, bytes by number format, and configurations of every family."""

import csv
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simserve.spec.catalogue import catalogue, find_model, read_model, resolve_model
from simserve.spec.errors import ScenarioError
from simserve.spec.hugging_face.config import model_from_config
from simserve.spec.layers.attention import GroupedAttention
from simserve.spec.layers.mlp import Mixture
from simserve.spec.model import ModelSpec

GIB = 2**30
COUNTED = Path(__file__).parent / "data" / "catalogue_parameters.csv"
FULL, SLIDING = ["full_attention"], ["sliding_attention"]

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
    ("llama-4-scout-17b-16e", 107.8, "card of meta-llama/Llama-4-Scout-17B-16E: 109B with its vision part (1.2B)"),
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


@pytest.mark.parametrize(("name", "billions", "source"), PUBLISHED)
def test_parameters_are_within_one_percent_of_the_published(name, billions, source):
    assert find_model(name).num_parameters == pytest.approx(billions * 1e9, rel=0.01), source


def test_every_model_of_the_catalogue_has_the_parameters_that_were_counted_independently():
    with COUNTED.open(encoding="utf-8", newline="") as file:
        counted = {row["name"]: row for row in csv.DictReader(file)}
    models = {model.name: model for model in catalogue()}
    assert set(models) - set(counted) == {"tiny-llama"}, "random weights have no publication"
    for name, row in counted.items():
        found, allowed = models[name], float(row["tolerance"])
        assert found.num_parameters == pytest.approx(int(row["parameters"]), rel=allowed), name
        assert found.num_active_parameters == pytest.approx(int(row["active"]), rel=allowed), name


@pytest.mark.parametrize(("name", "billions", "source"), ACTIVE)
def test_active_parameters_are_within_two_percent_of_the_published(name, billions, source):
    assert find_model(name).num_active_parameters == pytest.approx(billions * 1e9, rel=0.02), source


def test_gpt_oss_counts_its_active_parameters_without_the_embedding():
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
        ("gpt-oss-120b", 18 * 2 * 8 * 64 * 2),  # of the layers that keep all tokens
    ],
)
def test_kv_bytes_per_token(name, kv_bytes):
    """The logs of real servers give the same numbers: KV memory over KV tokens."""
    assert find_model(name).kv_bytes_per_token == kv_bytes


def test_window_layers_are_counted_apart():
    model = find_model("gpt-oss-120b")
    assert model.attention_layers == {"window": 18, "full": 18}
    assert model.windows == [{"window": 128, "bytes_per_token": 36864.0, "layers": 18}]


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
def test_weight_bytes_are_those_of_real_checkpoints(model, gib, source):
    resolved = ModelSpec.model_validate(resolve_model(model)) if isinstance(model, dict) else find_model(model)
    assert resolved.weight_bytes / GIB == pytest.approx(gib, rel=0.01), source


def test_stated_weight_bytes_win():
    model = ModelSpec.model_validate(resolve_model({"config": "llama-2-7b", "weight_bytes": "14 GB"}))
    assert model.weight_bytes == 14e9
    assert model.num_parameters == find_model("llama-2-7b").num_parameters


def test_kv_and_weight_formats_are_apart():
    base = find_model("llama-3.1-8b")
    model = ModelSpec.model_validate(
        resolve_model({"config": "llama-3.1-8b", "weight_dtype": "int4", "kv_dtype": "fp8_e4m3"})
    )
    assert model.kv_bytes_per_token == base.kv_bytes_per_token / 2
    # Embedding and lm_head stay in 16 bit.
    assert model.weight_bytes > base.weight_bytes / 4 + 2 * (128256 * 4096 * 2) * 3 / 4


def stated(**changes):
    return ModelSpec.model_validate(resolve_model(changes))


def test_a_stated_weight_format_stands_for_an_unknown_one():
    unknown = {**LLAMA, "quantization_config": {"quant_method": "bitsandbytes"}}
    assert stated(config=unknown, weight_dtype="int4").weight_dtype == "int4"
    assert stated(config="gpt-oss-20b", weight_dtype="bfloat16").formats.keys() == {None}
    experts = stated(config="gpt-oss-20b", kv_dtype="fp8")
    assert (experts.expert_dtype, experts.dense_dtypes) == ("mxfp4", ("bf16",))


def test_a_key_that_the_file_lacks_is_stated_beside_it():
    lacking = {key: value for key, value in LLAMA.items() if key != "vocab_size"}
    with pytest.raises(ScenarioError, match=r"vocab_size: .*which the file lacks; state it in the file, or beside"):
        stated(config=lacking)
    assert stated(config=lacking, vocab_size=32000) == stated(config=LLAMA)
    assert stated(config=LLAMA, num_hidden_layers=2).num_layers == 2


def test_a_copy_with_another_format_weighs_differently():
    model = find_model("llama-3.1-8b")
    assert model.weight_bytes > model.in_format("fp8").weight_bytes


def test_kv_dtype_auto_is_the_activations_format():
    assert resolve_model({"config": "llama-2-7b", "kv_dtype": "auto"})["kv_dtype"] == "fp16"


widths = st.integers(1, 8).map(lambda n: 64 * n)
dense = st.fixed_dictionaries(
    {
        "hidden_size": widths,
        "intermediate_size": widths,
        "model_type": st.just("llama"),
        "num_hidden_layers": st.integers(1, 6),
        "num_attention_heads": st.sampled_from([1, 2, 4, 8]),
        "vocab_size": st.integers(1, 1000),
        "max_position_embeddings": st.integers(1, 4096),
        "tie_word_embeddings": st.booleans(),
        "attention_bias": st.booleans(),
    }
)


@given(dense)
def test_a_layer_more_adds_one_layers_parameters(config):
    one, two = (model_from_config({**config, "num_hidden_layers": layers}, "m") for layers in (1, 2))
    layer = one.layers[0].parameters(one.hidden_size)
    assert two.num_parameters - one.num_parameters == layer
    assert two.kv_bytes_per_token == 2 * one.kv_bytes_per_token


@given(dense)
def test_tying_saves_exactly_one_embedding(config):
    tied, untied = (model_from_config({**config, "tie_word_embeddings": tie}, "m") for tie in (True, False))
    assert untied.num_parameters - tied.num_parameters == config["vocab_size"] * config["hidden_size"]


@given(dense, st.sampled_from([2, 4, 8]), st.integers(1, 8))
def test_a_mixture_is_as_large_as_its_experts_and_as_active_as_the_routed(config, experts, top):
    top = min(top, experts)
    config = {key: value for key, value in config.items() if key != "attention_bias"} | {"num_key_value_heads": 1}
    mixture = config | {"model_type": "mixtral", "num_local_experts": experts, "num_experts_per_tok": top}
    model = model_from_config(mixture, "m")
    expert = 3 * config["hidden_size"] * config["intermediate_size"]
    unused = config["num_hidden_layers"] * (experts - top) * expert
    assert model.num_parameters - model.num_active_parameters == unused
    plain = model_from_config(config, "m")
    assert plain.num_active_parameters == plain.num_parameters


@given(dense)
def test_fewer_bits_never_weigh_more(config):
    model = model_from_config(config, "m")
    dtypes = ("fp32", "bf16", "fp8", "int4")
    sizes = [model.in_format(dtype).weight_bytes for dtype in dtypes]
    assert sizes == sorted(sizes, reverse=True)


LLAMA = {
    "model_type": "llama",
    "hidden_size": 512,
    "intermediate_size": 1408,
    "num_hidden_layers": 8,
    "num_attention_heads": 8,
    "vocab_size": 32000,
    "max_position_embeddings": 4096,
}


def config(**changes):
    return model_from_config({**LLAMA, **changes}, "m")


def attention(**changes):
    found = config(**changes).layers[0].attention
    assert isinstance(found, GroupedAttention)
    return found


def test_missing_keys_have_the_defaults_of_transformers():
    assert (attention().num_kv_heads, attention().head_dim) == (8, 64)
    assert not config().tie_word_embeddings
    assert config(model_type="gemma2", sliding_window=4096, num_key_value_heads=4).tie_word_embeddings
    assert (attention(model_type="qwen2").qkv_bias, attention(model_type="qwen2").output_bias) == (True, False)


def test_multi_query_attention():
    assert config(num_key_value_heads=1).kv_bytes_per_token == 8 * 2 * 64 * 2


QWEN2 = {"model_type": "qwen2"}


@pytest.mark.parametrize(
    ("changes", "window_layers"),
    [
        ({"model_type": "mistral", "sliding_window": 128}, 8),
        ({"model_type": "mistral", "sliding_window": None}, 0),
        (QWEN2 | {"sliding_window": 128}, 0),
        (QWEN2 | {"sliding_window": 128, "use_sliding_window": False}, 0),
        (QWEN2 | {"sliding_window": 128, "use_sliding_window": True, "max_window_layers": 6}, 2),
        (QWEN2 | {"sliding_window": 128, "use_sliding_window": True, "layer_types": SLIDING * 3 + FULL * 5}, 3),
        (QWEN2 | {"sliding_window": 128, "use_sliding_window": True, "layer_types": FULL * 8}, 0),
        ({"sliding_window": 128, "model_type": "gemma2"}, 4),
    ],
)
def test_which_layers_have_a_window(changes, window_layers):
    assert config(**changes).attention_layers.get("window", 0) == window_layers


@pytest.mark.parametrize(
    ("changes", "dense_layers"),
    [({}, 0), ({"decoder_sparse_step": 2}, 4), ({"mlp_only_layers": [0, 5]}, 2)],
)
def test_which_layers_of_a_mixture_are_dense(changes, dense_layers):
    found = config(model_type="qwen3_moe", num_experts=4, num_experts_per_tok=2, moe_intermediate_size=64, **changes)
    assert sum(layer.count for layer in found.layers if not isinstance(layer.mlp, Mixture)) == dense_layers


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_attention_heads": None}, "num_attention_heads: expected a positive whole number, got null"),
        ({"hidden_size": -3}, "hidden_size"),
        ({"vocab_size": True}, "vocab_size"),
        ({"mamba_d_state": 16}, "mamba_d_state: 16: not known for the family llama, .* not guessed"),
        ({"linear_num_key_heads": 16}, "linear_num_key_heads: 16: not known for the family llama"),
        ({"layer_types": ["full_attention", "mamba"]}, "layer_types: .*not known for the family llama"),
        ({"model_type": "llama9"}, "no family is known by model_type 'llama9'"),
        ({"model_type": "bert"}, "model_type bert is an encoder"),
        ({"_class_name": "FluxTransformer2DModel", "model_type": "flux"}, "is a diffusion model"),
        ({"model_type": "t5"}, "model_type 't5' is an encoder with a decoder"),
        ({"quantization_config": {"quant_method": "bitsandbytes"}}, "bitsandbytes.* `?weight_dtype"),
        ({"torch_dtype": "float64"}, "activation_dtype: expected one of"),
    ],
)
def test_what_is_not_modelled_is_refused(changes, message):
    with pytest.raises(ScenarioError, match=message):
        config(**changes)


def test_a_config_file_is_named_after_its_folder(tmp_path):
    path = tmp_path / "my-model" / "config.json"
    path.parent.mkdir()
    path.write_text(json.dumps(LLAMA))
    assert read_model(path).name == read_model(path.parent).name == "my-model"


@pytest.mark.parametrize("text", ["", "[1]", "{"])
def test_a_broken_config_file_is_named(tmp_path, text):
    path = tmp_path / "config.json"
    path.write_text(text)
    with pytest.raises(ScenarioError, match=r"config\.json"):
        read_model(path)


def test_a_model_name_with_a_typing_error_gets_a_suggestion():
    with pytest.raises(ScenarioError, match=r"did you mean 'llama-3\.1-8b'\?"):
        find_model("lama-3.1-8b")
    with pytest.raises(ScenarioError, match=r"no such file; the catalogue has 'llama-3\.1-8b'"):
        resolve_model("somebody/Llama-3.1-8B-Tuned")
