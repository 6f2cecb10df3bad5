"""Number formats of checkpoints: each module in its own, as vLLM 0.33 reads the file.

The rows of a list of models that were once read wrong are tests here; configurations are our own, of published facts.
"""

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simserve.spec.errors import ScenarioError
from simserve.spec.hugging_face.config import model_from_config
from simserve.spec.hugging_face.keys import Keys
from simserve.spec.hugging_face.quantization.registry import METHODS, REFUSED
from simserve.spec.hugging_face.quantization.section import format_rules

SMALL = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 512,
    "intermediate_size": 1024,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "vocab_size": 1000,
    "max_position_embeddings": 2048,
    "dtype": "bfloat16",
}
LLAMA_70B = SMALL | {
    "hidden_size": 8192,
    "intermediate_size": 28672,
    "num_hidden_layers": 80,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
}
"""Llama 3.1 70B: 70,553,706,496 parameters."""

ATTENTION = 512 * (512 + 2 * 256 + 512)
MLP = 3 * 512 * 1024
LINEAR = 4 * (ATTENTION + MLP)
OUTER = 2 * 1000 * 512
NORMS = (2 * 4 + 1) * 512


def model(section=None, beside=None, **changed):
    """A small Llama with a section."""
    config = SMALL | changed | ({} if section is None else {"quantization_config": section})
    return model_from_config(config, "it", beside=beside)


def rules(section=None, beside=None, **changed):
    """The rules of a section alone, for modules of families that need no layers here."""
    keys = Keys(SMALL | changed | ({} if section is None else {"quantization_config": section}), "it")
    return format_rules(keys, keys, beside)


def group(bits=4, size=32, kind="int", strategy="group", targets=("Linear",), inputs=None, **more):
    """A group of compressed-tensors."""
    weights = {"num_bits": bits, "type": kind, "group_size": size, "strategy": strategy, "symmetric": True, **more}
    return {"targets": list(targets), "weights": weights, "input_activations": inputs}


def compressed(*groups, ignore=("lm_head",), **more):
    """A section of compressed-tensors."""
    named = {f"group_{index}": each for index, each in enumerate(groups)}
    return {"quant_method": "compressed-tensors", "format": "pack-quantized", "config_groups": named} | {
        "ignore": list(ignore),
        **more,
    }


GPTQ = {"quant_method": "gptq", "bits": 4, "group_size": 128, "desc_act": False, "sym": True}
AWQ = {"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": True, "version": "gemm"}
FP8 = {"quant_method": "fp8", "activation_scheme": "dynamic", "fmt": "e4m3", "weight_block_size": [128, 128]}
BESIDE_FP8 = {
    "producer": {"name": "modelopt", "version": "0.23.0"},
    "quantization": {"quant_algo": "FP8", "kv_cache_quant_algo": "FP8", "exclude_modules": ["lm_head"]},
}
BESIDE_NVFP4 = {
    "producer": {"name": "modelopt", "version": "0.29.0"},
    "quantization": {
        "quant_algo": "NVFP4",
        "kv_cache_quant_algo": "FP8",
        "group_size": 16,
        "exclude_modules": ["lm_head", "model.layers.0*"],
    },
}
MODELOPT = {
    "quant_method": "modelopt",
    "quant_algo": "NVFP4",
    "ignore": ["lm_head"],
    "kv_cache_scheme": {"dynamic": False, "num_bits": 8, "type": "float"},
    "producer": {"name": "modelopt", "version": "0.41.0"},
    "config_groups": {"group_0": group(kind="float", size=16, inputs={"num_bits": 4})},
}
MIXED = {
    "quant_method": "modelopt",
    "quant_algo": "MIXED_PRECISION",
    "quantized_layers": {
        **{
            f"model.layers.{layer}.self_attn.{name}_proj": {"quant_algo": "FP8"}
            for layer in range(4)
            for name in "qkvo"
        },
        **{
            f"model.layers.{layer}.mlp.{name}_proj": {"quant_algo": "W4A16_NVFP4", "group_size": 16}
            for layer in range(4)
            for name in ("gate", "up", "down")
        },
    },
}
QUARK = {
    "quant_method": "quark",
    "export": {"kv_cache_group": [], "pack_method": "reorder"},
    "global_quant_config": {
        "weight": {"dtype": "fp4", "qscheme": "per_group", "group_size": 32},
        "input_tensors": {"dtype": "fp4", "qscheme": "per_group", "group_size": 32, "is_dynamic": True},
    },
    "layer_quant_config": {},
    "exclude": ["lm_head"],
}
AUTO_ROUND = {"quant_method": "auto-round", "bits": 4, "group_size": 128, "sym": True, "data_type": "int"}


def torchao(name, **data):
    """A section of torchao."""
    return {"quant_method": "torchao", "quant_type": {"default": {"_type": name, "_data": data, "_version": 1}}}


INT4_OF_TORCHAO = {"_type": "Int4WeightOnlyConfig", "_data": {"group_size": 64}, "_version": 1}
TORCHAO = {"quant_method": "torchao", "quant_type": {"default": INT4_OF_TORCHAO}, "modules_to_not_convert": None}


KIMI_K2_PLAIN = [
    "lm_head",
    "re:.*self_attn.*",
    "re:.*shared_experts.*",
    r"re:.*mlp\.(gate|up|gate_up|down)_proj.*",
]
"""What Kimi K2 Thinking does not quantise."""


def bits_of(found, *, head=0.0):
    """Bits that a linear weight of a small Llama has in the mean; `head`: bits of the output projection, where it is
    quantised.
    """
    plain = OUTER - (SMALL["vocab_size"] * 512 if head else 0) + NORMS
    return (found.weight_bytes - 2 * plain - head / 8 * SMALL["vocab_size"] * 512) * 8 / LINEAR


# --- rows of the list ---


def test_a_file_beside_the_configuration_is_read():
    """Llama-3.1-70B-FP8 of NVIDIA has its section in `hf_quant_config.json`: 72.7 GB, not the 141 GB of bf16."""
    found = model_from_config(LLAMA_70B, "it", beside=BESIDE_FP8)
    assert found.num_parameters == 70_553_706_496
    assert found.weight_bytes == pytest.approx(72_656_376_192, rel=1e-7)  # vLLM's count, with one scale a matrix
    assert found.kv_dtype == "fp8"
    assert model_from_config(LLAMA_70B, "it").weight_bytes == 141_107_412_992


DEEPSEEK_V3 = {
    "model_type": "deepseek_v3",
    "architectures": ["DeepseekV3ForCausalLM"],
    **{"hidden_size": 7168, "intermediate_size": 18432, "moe_intermediate_size": 2048, "num_hidden_layers": 61},
    **{"num_attention_heads": 128, "num_key_value_heads": 128, "q_lora_rank": 1536, "kv_lora_rank": 512},
    **{"qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128, "vocab_size": 129280},
    **{"n_routed_experts": 256, "n_shared_experts": 1, "num_experts_per_tok": 8, "first_k_dense_replace": 3},
    **{"moe_layer_freq": 1, "max_position_embeddings": 163840, "dtype": "bfloat16"},
}
KIMI_K2 = DEEPSEEK_V3 | {
    "model_type": "kimi_k2",
    **{"num_attention_heads": 64, "num_key_value_heads": 64, "n_routed_experts": 384, "first_k_dense_replace": 1},
    **{"vocab_size": 163840},
}
QWEN3_235B = {
    "model_type": "qwen3_moe",
    "architectures": ["Qwen3MoeForCausalLM"],
    **{"hidden_size": 4096, "intermediate_size": 12288, "moe_intermediate_size": 1536, "num_hidden_layers": 94},
    **{"num_attention_heads": 64, "num_key_value_heads": 4, "head_dim": 128, "vocab_size": 151936},
    **{"num_experts": 128, "num_experts_per_tok": 8, "decoder_sparse_step": 1, "mlp_only_layers": []},
    **{"max_position_embeddings": 40960, "tie_word_embeddings": False, "dtype": "bfloat16"},
}


def beside_nvfp4(*excluded):
    """A file of ModelOpt beside a configuration."""
    return BESIDE_NVFP4 | {"quantization": BESIDE_NVFP4["quantization"] | {"exclude_modules": list(excluded)}}


@pytest.mark.parametrize(
    ("config", "beside", "weight_bytes"),
    [
        pytest.param(
            DEEPSEEK_V3,
            beside_nvfp4(
                "lm_head",
                "model.layers.61*",
                *(
                    f"model.layers.{layer}.self_attn.{name}"
                    for layer in range(61)
                    for name in ("kv_a_proj_with_mqa", "kv_b_proj", "q_a_proj", "q_b_proj")
                ),
            ),
            386_380_083_104,
            id="DeepSeek-V3.1-NVFP4",
        ),
        pytest.param(
            QWEN3_235B,
            beside_nvfp4("lm_head", *(f"model.layers.{layer}.mlp.gate" for layer in range(94))),
            134_101_651_392,
            id="Qwen3-235B-A22B-NVFP4",
        ),
        pytest.param(
            KIMI_K2 | {"quantization_config": compressed(group(), ignore=KIMI_K2_PLAIN)},
            None,
            594_206_365_696,
            id="Kimi-K2-Thinking",
        ),
    ],
)
def test_published_checkpoints_weigh_what_vllm_counts(config, beside, weight_bytes):
    """Counts of classes of transformers 5.24 and vLLM 0.33; what differs are scales of whole matrices."""
    found = model_from_config(config, "it", beside=beside)
    assert found.weight_bytes == pytest.approx(weight_bytes, rel=1e-5)
    assert found.kv_dtype == ("fp8" if beside else "bf16")
    assert found.warnings == ()


def test_nvfp4_beside_the_configuration_is_for_all_but_a_list():
    found = model(beside=BESIDE_NVFP4)
    assert bits_of(found) == pytest.approx((16 + 3 * 4.5) / 4)
    assert found.lm_head is None
    assert [layer.attention.qkv is None for layer in found.each_layer()] == [True, False, False, False]


@pytest.mark.parametrize(
    "section",
    [
        MODELOPT,
        MODELOPT | {"kv_cache_scheme": None, "kv_cache_quant_algo": "FP8"},
        compressed(group(), kv_cache_scheme={"type": "float", "num_bits": 8, "strategy": "tensor", "symmetric": True}),
    ],
)
def test_a_kv_cache_in_fp8_that_the_checkpoint_asks_for(section):
    assert model(section).kv_dtype == "fp8"
    assert model(section).kv_bytes_per_token == model().kv_bytes_per_token / 2


def test_of_several_sections_one_is_read_and_the_others_are_said():
    other = {"model_type": "llama", **{key: value for key, value in SMALL.items() if key != "architectures"}}
    wrapped = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "text_config": other}
    for inner, is_said in ((MODELOPT, False), (GPTQ, True)):
        other["quantization_config"] = inner
        found = model_from_config(wrapped | {"quantization_config": MODELOPT}, "it")
        assert found.weight_dtype == "nvfp4"
        assert any("gptq" in said and "passed over" in said for said in found.warnings) is is_said
    assert model_from_config(wrapped, "it").weight_dtype == "int4"
    assert model_from_config(SMALL | {"compression_config": compressed(group())}, "it").weight_dtype == "int4"


def test_a_kv_cache_in_fp8_that_vllm_does_not_honour_is_said():
    """Qwen3.6-35B-A3B-NVFP4: only the file beside asks for it, and vLLM does not read that."""
    without = {key: value for key, value in MODELOPT.items() if key != "kv_cache_scheme"}
    found = model(without, beside=BESIDE_NVFP4)
    assert found.kv_dtype == "bf16"
    assert any("fp8 KV cache" in said and "hf_quant_config.json" in said for said in found.warnings)


@pytest.mark.parametrize(
    ("section", "quantised", "plain"),
    [
        pytest.param(
            compressed(group(), ignore=KIMI_K2_PLAIN),
            ["mlp.experts.0.gate_proj", "mlp.experts.0.down_proj"],
            ["self_attn.q_proj", "mlp.gate_proj", "mlp.shared_experts.up_proj"],
            id="Kimi K2 Thinking: experts alone",
        ),
        pytest.param(
            MODELOPT | {"ignore": ["lm_head", "model.language_model.layers.3.self_attn*", "model.vision_tower*"]},
            ["mlp.gate_proj"],
            ["self_attn.q_proj"],
            id="gemma-4-31B-NVFP4: under the names of its wrapper",
        ),
        pytest.param(
            FP8 | {"modules_to_not_convert": ["model.layers.3.self_attn.qkv_proj", "model.layers.3.mlp.experts.7.w1"]},
            ["mlp.gate_proj"],
            ["self_attn.k_proj", "mlp.experts.0.w1", "mlp.experts.0.w2"],
            id="names of fused modules, and one expert for all",
        ),
        pytest.param(
            AWQ | {"modules_to_not_convert": ["self_attn", "layers.3.mlp.experts"]},
            ["mlp.gate_proj"],
            ["self_attn.q_proj", "mlp.experts.0.up_proj"],
            id="AWQ: parts of names",
        ),
        pytest.param(
            GPTQ | {"dynamic": {r"-:.*self_attn.*": {}}},
            ["mlp.down_proj"],
            ["self_attn.o_proj"],
            id="GPTQModel: expressions",
        ),
        pytest.param(
            GPTQ | {"modules_in_block_to_quantize": [["mlp.gate_proj"], ["mlp.down_proj"]]},
            ["mlp.gate_proj", "mlp.down_proj"],
            ["self_attn.o_proj", "mlp.up_proj"],
            id="GPTQ: a list of what is quantised",
        ),
        pytest.param(
            AUTO_ROUND | {"extra_config": {"model.layers.3.self_attn.q_proj": {"bits": 16}, r".*down.*": {"bits": 16}}},
            ["mlp.gate_proj", "self_attn.k_proj"],
            ["self_attn.q_proj", "mlp.down_proj"],
            id="AutoRound: more bits for some",
        ),
        pytest.param(
            {"quant_method": "mxfp4", "modules_to_not_convert": ["model.layers.*.self_attn", "lm_head"]},
            ["mlp.experts.0.gate_proj"],
            ["self_attn.q_proj", "mlp.gate_proj"],
            id="gpt-oss: experts alone",
        ),
        pytest.param(
            QUARK | {"exclude": ["lm_head", "model.layers.3.self_attn.q_proj"], "layer_quant_config": {"*.v_proj": {}}},
            ["mlp.experts.0.gate_proj", "self_attn.k_proj"],
            ["self_attn.q_proj", "self_attn.v_proj"],
            id="Quark: a list, and a scheme of its own",
        ),
        pytest.param(
            TORCHAO | {"modules_to_not_convert": ["self_attn"]},
            ["mlp.gate_proj"],
            ["self_attn.q_proj", "mlp.experts.0.up_proj"],
            id="torchao: parts of names; no experts",
        ),
        pytest.param(
            torchao(
                "ModuleFqnToConfig",
                module_fqn_to_config={
                    "_default": INT4_OF_TORCHAO,
                    r"re:.*\.self_attn\..*": None,
                    "model.layers.3.self_attn.o_proj": INT4_OF_TORCHAO,
                },
            ),
            ["mlp.gate_proj", "self_attn.o_proj"],
            ["self_attn.q_proj"],
            id="torchao: a name, an expression, the rest",
        ),
    ],
)
def test_lists_of_modules_are_kept(section, quantised, plain):
    found = rules(section)
    assert [name for name in quantised if found.weights(f"model.layers.3.{name}") is None] == []
    assert [name for name in plain if found.weights(f"model.layers.3.{name}") is not None] == []
    assert found.weights("lm_head") is None


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("size", [32, 64, 128])
@pytest.mark.parametrize("zeros", [False, True])
def test_groups_have_the_size_that_the_file_states(bits, size, zeros):
    """4 + 16 / g bits a weight, and a zero point of as many bits for each group where weights are not symmetric."""
    found = model(compressed(group(bits=bits, size=size, symmetric=not zeros)))
    assert bits_of(found) == pytest.approx(bits + (16 + bits * zeros) / size)
    assert found.weight_dtype == f"int{bits}"


@pytest.mark.parametrize(
    "section", [compressed(group(size=-1, strategy="channel")), compressed(group(size=-1, strategy=None))]
)
def test_a_group_of_minus_one_is_a_whole_channel(section):
    outputs = 4 * (512 + 2 * 256 + 512 + 2 * 1024 + 512)
    assert bits_of(model(section)) == pytest.approx(4 + 16 * outputs / LINEAR)


def test_gptq_has_zero_points_and_a_table_of_groups_awq_no_table():
    assert bits_of(model(AWQ)) == pytest.approx(4 + 20 / 128)
    assert bits_of(model(AWQ | {"zero_point": False})) == pytest.approx(4 + 16 / 128)
    inputs = 4 * (3 * 512 + 512 + 2 * 512 + 1024)
    assert bits_of(model(GPTQ)) == pytest.approx(4 + 20 / 128 + 32 * inputs / LINEAR)


def test_each_group_is_for_its_targets():
    """FP8 attention and NVFP4 MLP."""
    fp8 = group(
        bits=8, kind="float", strategy="tensor", size=None, targets=[r"re:.*self_attn\..*"], inputs={"num_bits": 8}
    )
    nvfp4 = group(kind="float", size=16, strategy="tensor_group", targets=[r"re:.*mlp\..*"], inputs={"num_bits": 4})
    found = model(compressed(fp8, nvfp4, format="mixed-precision"))
    (row,) = found.layers
    assert (row.attention.qkv.dtype, row.attention.out.dtype) == ("fp8", "fp8")
    assert (row.mlp.gate_up.dtype, row.mlp.down.dtype) == ("nvfp4", "nvfp4")
    assert bits_of(found) == pytest.approx((8 * ATTENTION + 4.5 * MLP) / (ATTENTION + MLP))


def test_targets_may_name_modules_as_vllm_does():
    """DeepSeek-V4-Flash-NVFP4-FP8 of Red Hat: fused projections, an MLP's usual names where the model has others."""
    fp8 = group(bits=8, kind="float", strategy="block", size=None, block_structure=[128, 128])
    nvfp4 = group(kind="float", size=16, strategy="tensor_group", targets=["re:.*ffn.*(gate|up|down)_proj$"])
    section = compressed(fp8 | {"targets": ["re:.*attn.*(fused_wqa_wkv|wq_b|wo_a|wo_b)$"]}, nvfp4, ignore=[])
    found = rules(section | {"format": "mixed-precision"}, model_type="deepseek_v4")
    attention = [found.weights(f"layers.0.attn.{name}").dtype for name in ("wq_a", "wkv", "wq_b", "wo_b")]
    experts = [found.weights(f"layers.0.ffn.experts.0.w{number}").dtype for number in (1, 2, 3)]
    assert (set(attention), set(experts)) == ({"fp8"}, {"nvfp4"})


def test_kimi_k3_has_its_experts_alone_in_mxfp4():
    """vLLM 0.33 reads its section by another method, which leaves the projections around the experts as they are."""
    section = compressed(group(kind="float"), format="mxfp4-pack-quantized", ignore=["re:.*self_attn.*"])
    names = "experts.0.w1", "routed_expert_down_proj"
    for more, dtypes in (({}, {"mxfp4"}), ({"architectures": ["KimiK3ForConditionalGeneration"]}, {"mxfp4", None})):
        found = [rules(section, **more).weights(f"model.layers.1.block_sparse_moe.{name}") for name in names]
        assert {each and each.dtype for each in found} == dtypes


@pytest.mark.parametrize(("location", "is_said"), [("weight_output", False), ("input", True)])
def test_rotations_that_are_kernels_of_their_own_are_said(location, is_said):
    transforms = {
        "config_groups": {"R1": {"type": "hadamard", "apply": [{"location": location, "targets": ["Linear"]}]}}
    }
    found = model(compressed(group(), transform_config=transforms))
    assert any("rotates" in said for said in found.warnings) is is_said


def test_a_name_goes_before_a_class_wherever_it_stands():
    named = group(bits=8, targets=["model.layers.2.mlp.down_proj"])
    found = rules(compressed(group(), named))
    assert found.weights("model.layers.2.mlp.down_proj").dtype == "int8"
    assert found.weights("model.layers.1.mlp.down_proj").dtype == "int4"


def test_linear_means_routed_experts_too_and_never_the_head():
    found = rules(compressed(group(), ignore=[]))
    assert found.weights("model.layers.0.mlp.experts.0.gate_proj").dtype == "int4"
    assert found.weights("lm_head") is None
    assert rules(compressed(group(targets=["Linear", "lm_head"]), ignore=[])).weights("lm_head").dtype == "int4"


def test_mxfp4_is_not_nvfp4():
    mxfp4 = model(compressed(group(kind="float", scale_dtype="torch.uint8"), format="mxfp4-pack-quantized"))
    assert mxfp4.weight_dtype == "mxfp4"
    assert bits_of(mxfp4) == pytest.approx(4.25)
    nvfp4 = model(compressed(group(kind="float", size=16, strategy="tensor_group"), format="nvfp4-pack-quantized"))
    assert nvfp4.weight_dtype == "nvfp4"
    assert bits_of(nvfp4) == pytest.approx(4.5)


# --- methods ---


@pytest.mark.parametrize(
    ("section", "dtype", "bits"),
    [
        (FP8, "fp8", 8 + 32 / 128**2),
        ({key: value for key, value in FP8.items() if key != "weight_block_size"}, "fp8", 8),
        (FP8 | {"weight_block_size": [64, 64]}, "fp8", 8 + 32 / 64**2),
        (MODELOPT, "nvfp4", 4.5),
        (MODELOPT | {"quant_algo": "MXFP8"}, "fp8", 8.25),
        (MODELOPT | {"quant_algo": "fp8_pb_wo"}, "fp8", 8 + 32 / 128**2),
        (MODELOPT | {"quant_algo": "FP8"}, "fp8", 8),
        ({"quant_method": "mxfp8", "ignored_layers": ["lm_head"]}, "fp8", 8.25),
        (QUARK, "mxfp4", 4.25),
        (AUTO_ROUND, "int4", 4 + 20 / 128),
        (TORCHAO, "int4", 4 + 32 / 64),
        (torchao("Float8DynamicActivationFloat8WeightConfig"), "fp8", 8),
        (AUTO_ROUND | {"data_type": "mx_fp", "bits": 8, "group_size": 32}, "fp8", 8.25),
        (compressed(group(bits=8, kind="float", strategy="tensor", size=None), format="float-quantized"), "fp8", 8),
        (compressed(group(bits=8, kind="float", size=32, scale_dtype="torch.uint8")), "fp8", 8.25),
    ],
)
def test_bits_of_a_weight(section, dtype, bits):
    found = model(section)
    assert found.weight_dtype == dtype
    assert bits_of(found) == pytest.approx(bits)


def test_fp8_with_a_scale_for_each_output():
    outputs = 4 * (512 + 2 * 256 + 512 + 2 * 1024 + 512)
    per_channel = compressed(group(bits=8, kind="float", strategy="channel", size=None), format="float-quantized")
    for section in (
        per_channel,
        {"quant_method": "fbgemm_fp8", "modules_to_not_convert": [], "activation_scale_ub": 1200},
    ):
        assert bits_of(model(section)) == pytest.approx(8 + 32 * outputs / LINEAR)


def test_modules_of_one_model_in_several_formats():
    found = model(MIXED)
    assert bits_of(found) == pytest.approx((8 * ATTENTION + 4.5 * MLP) / (ATTENTION + MLP))
    (row,) = found.layers
    assert row.mlp.down.weight_only
    assert not row.attention.out.weight_only
    assert found.warnings == ()


def test_layers_that_config_json_lacks_are_read_from_the_file_beside():
    beside = {"producer": {"name": "modelopt"}, "quantization": {k: v for k, v in MIXED.items() if k != "quant_method"}}
    short = {key: value for key, value in MIXED.items() if key != "quantized_layers"}
    beside["quantization"]["kv_cache_quant_algo"] = "FP8"
    found = model(short, beside=beside)
    assert found.formats == model(MIXED).formats
    assert found.kv_dtype == "bf16"  # of that, vLLM asks config.json alone
    assert any("fp8 KV cache" in said for said in found.warnings)


def test_routed_experts_may_be_named_together_or_one_by_one():
    for name in ("mlp.experts", "mlp.experts.0.gate_proj", "mlp.experts.9.up_proj"):
        layers = {f"model.language_model.layers.0.{name}": {"quant_algo": "NVFP4", "group_size": 16}}
        found = rules(MIXED | {"quantized_layers": layers})
        assert found.weights("model.layers.0.mlp.experts.0.gate_proj").dtype == "nvfp4"
        assert found.weights("model.layers.0.mlp.shared_experts.gate_proj") is None
        assert found.weights("model.layers.1.mlp.experts.0.gate_proj") is None


@pytest.mark.parametrize(
    ("more", "expert", "scale"),
    [
        ({}, "mxfp4", 1 / 128**2),
        ({"expert_dtype": "fp4"}, "mxfp4", 1 / 128**2),
        ({"expert_dtype": "fp8"}, "fp8", 4 / 128**2),
        ({"model_type": "deepseek_ref", "architectures": ["DeepseekV4ForCausalLM"]}, "fp8", 4 / 128**2),
    ],
)
def test_deepseek_v4_has_experts_in_a_format_of_their_own(more, expert, scale):
    found = rules(FP8 | {"scale_fmt": "ue8m0"}, **{"model_type": "deepseek_v4"} | more)
    assert found.weights("layers.0.ffn.experts.0.w1").dtype == expert
    assert found.weights("layers.0.attn.wq_a").scale_bytes == scale
    assert found.kv_dtype == "fp8"


def test_deepseek_v4_with_nvfp4_experts():
    section = FP8 | {"moe_quant_algo": "NVFP4", "ignore": ["*.attn.*", "mtp.*"], "producer": {"name": "modelopt"}}
    found = rules(section, model_type="deepseek_v4")
    assert found.weights("layers.0.ffn.experts.0.w1").dtype == "nvfp4"
    assert found.weights("layers.0.attn.wq_a").dtype == "fp8"


def test_glm_says_on_which_gpu_its_kv_cache_is_fp8():
    found = rules(FP8, model_type="glm_moe_dsa")
    assert found.kv_dtype is None
    assert any("Blackwell" in said for said in found.warnings)


def test_the_head_is_quantised_only_where_the_file_asks_for_it():
    for section in (GPTQ, AWQ):
        assert model(section).lm_head is None
        assert model(section | {"lm_head": True}).lm_head.dtype == "int4"
    assert model(MODELOPT | {"ignore": []}).lm_head.dtype == "nvfp4"  # ModelOpt's list is all that keeps it
    assert model(FP8).lm_head is None


def test_one_gemm_has_one_format():
    with pytest.raises(ScenarioError, match=r"layer 0: k_proj is in another format than the rest of its GEMM, qkv"):
        model(compressed(group(), ignore=["model.layers.0.self_attn.q_proj"]))


# --- what vLLM does not honour, and what is refused ---


@pytest.mark.parametrize(
    ("section", "beside"),
    [
        (None, {"quantization": BESIDE_FP8["quantization"]}),
        (
            {"quant_algo": "FP8", "kv_cache_scheme": "FP8", "ignore": ["lm_head"], "producer": {"name": "modelopt"}},
            None,
        ),
        ({"quant_algo": "FP8", "producer": {"name": "modelopt"}}, BESIDE_FP8),
    ],
)
def test_a_section_without_a_method_counts_its_weights_and_says_that_vllm_passes_it_over(section, beside):
    """Nemotron-3 Super and Ultra (no producer), Qwen3-32B-FP8-Static (no quant_method): the weights of the checkpoint
    are what it says, the KV cache is what vLLM makes of it.
    """
    found = model(section, beside=beside)
    assert found.weight_dtype == "fp8"
    assert found.weight_bytes == pytest.approx(model().in_format("fp8").weight_bytes, rel=1e-3)
    assert found.kv_dtype == "bf16"
    assert any("vLLM 0.33 passes the section over and takes them as unquantised" in said for said in found.warnings)


@pytest.mark.parametrize("method", sorted(REFUSED))
def test_methods_that_are_not_served_are_refused_by_name_with_a_way_out(method):
    with pytest.raises(ScenarioError, match=re.escape(f"quant_method: {method}: ")) as caught:
        model({"quant_method": method, "bits": 4})
    assert "state `weight_dtype` beside `config:`" in str(caught.value)
    found = model_from_config(SMALL | {"quantization_config": {"quant_method": method}}, "it", weight_dtype="int4")
    assert found.weight_dtype == "int4"


@pytest.mark.parametrize(
    ("section", "said"),
    [
        ({"quant_method": "gpqt"}, "did you mean gptq"),
        (GPTQ | {"desc_act": True}, "without activation ordering"),
        (GPTQ | {"sym": False}, "symmetric GPTQ alone"),
        (GPTQ | {"bits": 3}, "serves 4 and 8"),
        ({key: value for key, value in GPTQ.items() if key != "desc_act"}, "desc_act: is missing"),
        ({key: value for key, value in AWQ.items() if key != "zero_point"}, "zero_point: is missing"),
        ({key: value for key, value in FP8.items() if key != "activation_scheme"}, "activation_scheme: is missing"),
        (FP8 | {"activation_scheme": "static"}, "blocks with dynamic"),
        (FP8 | {"fmt": "e5m2"}, "no FP8 that vLLM serves"),
        (compressed(group(), format="marlin-24"), "no sparse weights"),
        (compressed(group(), sparsity_config={"format": "dense", "targets": ["Linear"]}), "no sparse weights"),
        (compressed(group(actorder="group")), "vLLM 0.33 refuses"),
        (compressed(group(bits=3)), "3 bits of int"),
        (compressed(group(kind="float", size=64)), "no scheme for it"),
        (compressed(group(targets=["re:.*embed_tokens"])), "quantised embeddings"),
        (compressed(group(targets=["re:(["])), "no regular expression"),
        (compressed(group(), ignore=["re:(["]), "no regular expression"),
        (compressed(group(), kv_cache_scheme={"type": "int", "num_bits": 8}), "serves a KV cache with"),
        (MODELOPT | {"quant_algo": "W4A8_AWQ"}, "W4A8_AWQ: vLLM 0.33 serves FP8"),
        (MODELOPT | {"kv_cache_scheme": None, "kv_cache_quant_algo": "NVFP4"}, "KV cache in nvfp4 is not modelled"),
        ({"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION"}, "quantized_layers: is missing"),
        (QUARK | {"global_quant_config": {"weight": {"dtype": "fp6_e3m2", "qscheme": "per_group"}}}, "fp6_e3m2"),
        (torchao("FqnToConfig"), "FqnToConfig is not modelled"),
        (FP8 | {"a_new_key": 1}, "a_new_key: 1: not known"),
    ],
)
def test_what_vllm_does_not_serve_is_refused_by_name(section, said):
    with pytest.raises(ScenarioError, match=re.escape(said)) as caught:
        model(section)
    assert "model it: config.json" in str(caught.value)


def test_an_unknown_key_is_let_through_on_the_users_word():
    config = SMALL | {"quantization_config": FP8 | {"a_new_key": 1}}
    assert "a_new_key" in " ".join(model_from_config(config, "it", ignore=["a_new_key"]).left_out)


def test_an_unknown_key_of_the_file_beside_is_refused():
    with pytest.raises(ScenarioError, match=r"hf_quant_config\.json: quantization: a_new_key"):
        model(beside=BESIDE_FP8 | {"quantization": BESIDE_FP8["quantization"] | {"a_new_key": 1}})


def test_a_deprecated_method_says_so():
    found = model({"quant_method": "fbgemm_fp8", "modules_to_not_convert": ["lm_head"], "activation_scale_ub": 1200.0})
    assert any("deprecated" in said for said in found.warnings)


def test_the_users_word_on_weights_leaves_the_kv_cache_to_the_file():
    config = SMALL | {"quantization_config": MODELOPT}
    found = model_from_config(config, "it", weight_dtype="int4")
    assert (found.weight_dtype, found.kv_dtype) == ("int4", "fp8")


@pytest.mark.parametrize(
    ("entry", "is_said"),
    [
        ("model.layers.1.self_attn.query", True),
        ("model.decoder.layers.1.mlp*", True),
        ("re:.*attention.*", True),
        ("model.layers.1.self_attn*", False),
        ("model.layers.1.mlp.gate", False),  # a router, which is never quantised
        ("model.layers.1.input_layernorm", False),
        ("model.layers.9.mlp.experts.0.gate_proj", False),  # a drafting layer
        ("model.vision_tower.layers.1.mlp*", False),
        ("mtp.layers.0*", False),
    ],
)
def test_an_entry_that_should_name_a_module_and_does_not_is_said(entry, is_said):
    found = model(FP8 | {"modules_to_not_convert": ["lm_head", entry]})
    assert any("modules_to_not_convert name no module" in said for said in found.warnings) is is_said


# --- laws ---

SECTIONS = [
    GPTQ,
    AWQ,
    TORCHAO,
    FP8,
    MODELOPT,
    MIXED,
    QUARK,
    AUTO_ROUND,
    compressed(group(), group(bits=8, targets=["re:.*self_attn.*"])),
]
JUNK = st.sampled_from([None, [], [1], ["a", None], "x", "", -1, 0, 2.5, True, {}, {"a": {"b": None}}, [[1]], 10**30])


def places(value, path=()):
    """Paths to all values inside."""
    yield path
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from places(inner, (*path, key))


def changed(value, path, new):
    """A copy with another value at a path."""
    if not path:
        return new
    return {**value, path[0]: changed(value[path[0]], path[1:], new)}


def is_read_or_refused(read, beginning):
    """Whether a model comes out, or one error that begins so; anything else is raised."""
    try:
        return read().weight_bytes > 0
    except ScenarioError as error:
        return str(error).startswith(beginning)


@given(st.data())
def test_whatever_stands_in_a_section_is_read_or_is_one_clear_error(data):
    section = data.draw(st.sampled_from(SECTIONS))
    path = data.draw(st.sampled_from(list(places(section))))
    other = changed(section, path, data.draw(JUNK))
    assert is_read_or_refused(lambda: model(other), "model it: config.json")


@given(st.data())
def test_whatever_stands_in_the_file_beside_is_read_or_is_one_clear_error(data):
    path = data.draw(st.sampled_from(list(places(BESIDE_NVFP4))))
    other = changed(BESIDE_NVFP4, path, data.draw(JUNK))
    assert is_read_or_refused(lambda: model(beside=other), "model it: hf_quant_config.json")


@given(st.sampled_from(SECTIONS), st.text(st.characters(codec="ascii", categories=["Ll"]), min_size=6, max_size=9))
def test_a_key_that_nobody_reads_is_refused(section, key):
    with pytest.raises(ScenarioError, match=f"{key}zz"):
        model(section | {f"{key}zz": 1})


@given(st.sampled_from(SECTIONS))
def test_quantised_weights_are_lighter_and_the_shapes_stay(section):
    found = model(section)
    assert found.weight_bytes < model().weight_bytes
    assert found.num_parameters == model().num_parameters


@given(st.sampled_from(SECTIONS))
def test_the_file_is_read_the_same_when_its_lists_are_in_another_order(section):
    turned = json.loads(json.dumps(section), object_hook=lambda each: dict(reversed(list(each.items()))))
    turned = {key: value[::-1] if isinstance(value, list) else value for key, value in turned.items()}
    if "config_groups" not in section:
        assert model(turned).formats == model(section).formats


def test_every_method_is_tried_here():
    tried = {section["quant_method"] for section in SECTIONS} | {"mxfp4", "mxfp8", "fbgemm_fp8"}
    others = {"auto_awq", "awq_marlin", "auto_gptq", "gptq_marlin", "inc", "deepseek_v4_fp8"}  # vLLM's other names
    assert tried | others | {name for name in METHODS if name.startswith("modelopt_")} == set(METHODS)
