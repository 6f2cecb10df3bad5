"""What the engine runs: the shapes of a Llama-like decoder, read from a Hugging Face `config.json`."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final

import torch

from simserve.spec import resources
from simserve.spec.catalogue import find_model, is_path, read_model
from simserve.spec.errors import ScenarioError
from simserve.spec.hugging_face.config import model_from_config
from simserve.spec.layers.attention import GroupedAttention
from simserve.spec.layers.mlp import DenseMlp
from simserve.spec.model import ModelSpec

DTYPES: Final = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """Shapes of a decoder with RMSNorm, RoPE, grouped-query attention and SwiGLU."""

    name: str
    hidden_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    intermediate_size: int
    vocab_size: int
    tie_word_embeddings: bool = False
    rope_theta: float = 10_000.0
    rms_norm_eps: float = 1e-5

    def __post_init__(self) -> None:
        assert self.num_heads % self.num_kv_heads == 0, "query heads share key heads evenly"

    @property
    def num_parameters(self) -> int:
        """Parameters, norms included."""
        attention = self.hidden_size * self.head_dim * 2 * (self.num_heads + self.num_kv_heads)
        layer = attention + 3 * self.hidden_size * self.intermediate_size + 2 * self.hidden_size
        embeddings = self.vocab_size * self.hidden_size * (1 if self.tie_word_embeddings else 2)
        return self.num_layers * layer + embeddings + self.hidden_size

    def without_work(self) -> "ModelConfig":
        """The same kernels in the same number, with next to nothing to do: a step is what launching alone takes."""
        return replace(
            self,
            name=f"{self.name}, no work",
            hidden_size=64,
            num_heads=1,
            num_kv_heads=1,
            head_dim=64,
            intermediate_size=64,
            vocab_size=64,
        )

    def as_hf_config(self) -> dict[str, Any]:
        """The same shapes in the words of a Hugging Face `config.json`."""
        fields = asdict(self)
        renamed = {"num_layers": "num_hidden_layers", "num_heads": "num_attention_heads"}
        renamed |= {"num_kv_heads": "num_key_value_heads", "name": "_name_or_path"}
        return {"model_type": "llama"} | {renamed.get(key, key): value for key, value in fields.items()}


def model_config(model: str | Path | Mapping[str, Any]) -> ModelConfig:
    """The model of the catalogue with this name, of this `config.json`, or of its content.

    Checkpoints are not read: weights are random, so that a RoPE scaling makes no difference to the work and is ignored.

    Raises:
        ScenarioError: the model cannot be read, or is no Llama-like decoder.
    """
    if isinstance(model, Mapping):
        return _from_hf(model_from_config(model, str(model.get("_name_or_path", "custom"))), model)
    if isinstance(model, str) and not is_path(model):
        spec, path = find_model(model), resources.find("models", f"{model}.json")
        assert path is not None
    else:
        path = Path(model) / "config.json" if Path(model).is_dir() else Path(model)
        spec = read_model(path)
    return _from_hf(spec, json.loads(path.read_text(encoding="utf-8")))


def _from_hf(spec: ModelSpec, config: Mapping[str, Any]) -> ModelConfig:
    attention, mlp = spec.layers[0].attention, spec.layers[0].mlp
    if not isinstance(attention, GroupedAttention) or not isinstance(mlp, DenseMlp) or len(spec.layers) > 1:
        kinds = ", ".join(spec.attention_layers)
        what = "a mixture of experts" if spec.is_moe else f"layers that are not all alike ({kinds} attention)"
        raise _unlike(spec, what)
    bare = GroupedAttention(
        num_heads=attention.num_heads, num_kv_heads=attention.num_kv_heads, head_dim=attention.head_dim
    )
    if attention.model_copy(update={"qkv": None, "out": None}) != bare:
        raise _unlike(spec, "attention with biases, norms, a window or sizes of its own")
    if config.get("hidden_act", "silu") != "silu" or not mlp.gated or mlp.bias:
        raise _unlike(spec, f"an MLP with the activation {config.get('hidden_act')}, without a gate or with biases")
    return ModelConfig(
        name=spec.name,
        hidden_size=spec.hidden_size,
        num_layers=spec.num_layers,
        num_heads=attention.num_heads,
        num_kv_heads=attention.num_kv_heads,
        head_dim=attention.head_dim,
        intermediate_size=mlp.width,
        vocab_size=spec.vocab_size,
        tie_word_embeddings=spec.tie_word_embeddings,
        rope_theta=float(config.get("rope_theta", 10_000.0)),
        rms_norm_eps=float(config.get("rms_norm_eps", 1e-6)),
    )


def _unlike(spec: ModelSpec, what: str) -> ScenarioError:
    return ScenarioError(f"model {spec.name}: {what}: not in the engine yet, which runs Llama-like decoders")
