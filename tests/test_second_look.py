"""The size in a model's name beside its parameters: nothing is said of right files, something of wrong ones."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simserve.spec.hugging_face.second_look import size_warnings
from simserve.spec.layers.attention import GroupedAttention
from simserve.spec.layers.layer import LayerSpec
from simserve.spec.layers.mlp import Mixture
from simserve.spec.model import ModelSpec, TowerSpec

_HIDDEN, _UNUSED = 1000, 100
"""Hidden size, and experts that a token does not pass."""


def model(whole: float, active: float = 0, *, tower: float = 0, embedding: float = 0, tied: bool = True) -> ModelSpec:
    """A model of so many billions of parameters: in all, of these passed by a token, in a tower, in an embedding."""
    passed = active or whole - tower
    vocab = max(1, round(embedding * 1e9 / _HIDDEN))
    attention = GroupedAttention(num_heads=1, num_kv_heads=1, head_dim=2)
    width = round((whole - tower - passed) * 1e9 / (3 * _HIDDEN * _UNUSED))
    mixture = Mixture(num_experts=1 + _UNUSED, experts_per_token=1, width=width) if width > 0 else None
    found = ModelSpec(
        name="m",
        hidden_size=_HIDDEN,
        vocab_size=vocab,
        tie_word_embeddings=tied,
        max_position_embeddings=1,
        layers=(LayerSpec(attention=attention, mlp=mixture),),
        towers=(TowerSpec(name="vision tower", num_parameters=round(tower * 1e9)),),
    )
    rest = round(passed * 1e9) - found.num_active_parameters
    return found.model_copy(update={"extra_parameters": {"the rest": max(0, rest)}})


# Billions of parameters, in all and of these active, as their checkpoints have them.
RIGHT = [
    ("Llama-3.1-70B", model(70.55)),
    ("Llama-3.2-1B", model(1.236, embedding=0.263)),
    ("gemma-2-2b", model(2.614, embedding=0.590)),
    ("gemma-7b", model(8.538, embedding=0.786)),
    ("gemma-3n-E4B", model(7.85, tower=0.98)),
    ("Qwen2.5-VL-7B-Instruct", model(8.292, tower=0.677)),
    ("Qwen2.5-VL-3B-Instruct", model(3.755, tower=0.669, embedding=0.311)),
    ("DeepSeek-R1-Distill-Qwen-1.5B", model(1.777, embedding=0.233, tied=False)),
    ("DeepSeek-R1-Distill-Qwen-7B", model(7.616)),
    ("Qwen2.5-7B-Instruct-1M", model(7.616)),
    ("SmolLM2-135M", model(0.1345)),
    ("Qwen3.5-35B-A3B", model(35.107, 3.451, tower=0.447)),
    ("qwen3.5-35b-a3b", model(35.107, 3.451, tower=0.447)),
    ("Qwen3-Next-80B-A3B", model(79.67, 3.87, embedding=0.311, tied=False)),
    ("LFM2-8B-A1B", model(8.34, 1.56, embedding=0.134)),
    ("granite-3.0-1b-a400m", model(1.335, 0.427)),
    ("Qwen1.5-MoE-A2.7B", model(14.316, 2.689)),
    ("Qwen3.8-2.4T-A95B", model(2400, 95)),
    ("Llama-4-Scout-17B-16E-Instruct", model(108.2, 17.17, tower=0.455)),
    ("Llama-4-Maverick-17B-128E", model(401.2, 17.19, tower=0.455)),
    ("OLMoE-1B-7B-0924", model(6.919, 1.282)),
    ("Mixtral-8x7B-v0.1", model(46.7, 12.88)),
    ("Mixtral-8x22B-v0.1", model(140.6, 39.15)),
    ("gpt-oss-20b", model(20.91, 3.61)),
    ("MiniMax-M2", model(228.7, 11.03)),
    ("Kimi-K2-Instruct", model(1026.4, 32.9)),
    ("DeepSeek-V3", model(671.0, 37.55)),
    ("phi-4-mini", model(3.836)),
    ("Llama-3.1-8B-4bit-W4A16", model(8.03)),
]
WRONG = [
    ("ERNIE-4.5-300B-A47B", model(47.9), 1, "parameters, its shapes make 47.90 B"),
    ("Qwen-7B", model(12.05, embedding=0.622, tied=False), 1, r"says 7 B parameters.*\(\+72%\)"),
    ("Apertus-8B", model(10.87, embedding=0.537, tied=False), 1, r"\(\+36%\)"),
    ("gemma-4-26B-A4B", model(25.8, 1.97, tower=0.573), 1, "active for a token"),
    ("qwen3-30b-a3b", model(30.5, 30.5), 1, "says 3 B parameters active for a token"),
    ("Llama-4-Scout-17B-16E", model(108.2, 30.0), 1, "active for a token"),
    ("Mixtral-8x7B", model(7.2), 1, "says 56 B parameters"),
    ("Mixtral-8x7B", model(93.0), 1, "says 56 B parameters"),
    ("OLMoE-1B-7B", model(3.5, 3.5), 1, "parameters"),
    ("Qwen3.8-2.4T-A95B", model(95, 95), 1, "says 2400 B parameters"),
    ("SmolLM2-135M", model(0.2), 1, "says 0.135 B"),
    ("Kimi-Linear-48B-A3B", model(49.1, 1.5), 1, "active for a token"),
]


@pytest.mark.parametrize(("name", "right"), RIGHT, ids=[name for name, _ in RIGHT])
def test_nothing_is_said_of_a_right_model(name: str, right: ModelSpec) -> None:
    assert size_warnings(name, right) == []


@pytest.mark.parametrize(("name", "wrong", "number", "said"), WRONG, ids=[name for name, *_ in WRONG])
def test_a_wrong_model_is_doubted(name: str, wrong: ModelSpec, number: int, said: str) -> None:
    warnings = size_warnings(name, wrong)
    assert len(warnings) == number
    assert re.search(said, "; ".join(warnings))


@given(stated=st.integers(2, 900), off=st.floats(-0.9, 3))
def test_a_size_is_doubted_beyond_the_tolerance_and_rounding_alone(stated: int, off: float) -> None:
    counted = stated * (1 + off)
    found = size_warnings(f"any-{stated}B-chat", model(counted))
    allowed = max(0.15 * stated, 0.5)
    distance = abs(counted - stated)
    if abs(distance - allowed) > 0.001 * stated:
        assert bool(found) == (distance > allowed)


@given(name=st.text(max_size=40))
def test_any_name_is_looked_at(name: str) -> None:
    assert len(size_warnings(name, model(7.0))) <= 2
