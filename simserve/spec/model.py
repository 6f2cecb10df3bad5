"""The model that is served: its layers, how many parameters they make, and what they weigh in their number formats.

The cost model reads shapes from here, the memory ledger weights and KV bytes. Shapes come from a Hugging Face
`config.json` (`simserve.spec.hugging_face`), or from a few numbers where all layers are alike
(`simserve.spec.uniform`); nothing here needs torch or transformers.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, field_validator, model_validator
from pydantic_core import PydanticCustomError

from simserve.spec.dtypes import bytes_per_element, canonical_dtype
from simserve.spec.layers.attention import GroupedAttention, LatentAttention
from simserve.spec.layers.kinds import KEEP_ALL, not_simulated
from simserve.spec.layers.layer import Attention, LayerSpec, in_rows
from simserve.spec.layers.mlp import DenseMlp, Mixture
from simserve.spec.layers.weights import WeightFormat
from simserve.spec.quantities import Bytes, Count, PositiveCount
from simserve.spec.strict import Strict
from simserve.spec.uniform import with_layers

_canonical = BeforeValidator(canonical_dtype)
KvDtype = Annotated[Literal["bf16", "fp16", "fp32", "fp8", "int8"], _canonical]
ActivationDtype = Annotated[Literal["bf16", "fp16", "fp32"], _canonical]


class TowerSpec(Strict):
    """What turns pictures or sound into tokens. Its weights count, its work is not simulated."""

    name: str
    num_parameters: Count


class ModelSpec(Strict):
    """Shapes and number formats of a decoder-only model, whole: before tensor parallelism."""

    name: str
    source: str = ""
    """Where the shapes were published."""

    hidden_size: PositiveCount
    vocab_size: PositiveCount
    tie_word_embeddings: bool = False
    max_position_embeddings: PositiveCount
    """Longest sequence that the model serves: `max_model_len` as vLLM derives it."""
    layers: tuple[LayerSpec, ...]
    """Layers in order, those that are alike and follow each other as one with its `count`."""

    kv_dtype: KvDtype = "bf16"
    activation_dtype: ActivationDtype = "bf16"
    """Format of activations and of all weights that are not quantised."""
    given_weight_bytes: Bytes | None = Field(default=None, alias="weight_bytes")
    """Weights as the user states them, in place of the sum over the shapes."""
    lm_head: WeightFormat | None = None
    """Format of the output projection, where it is quantised."""

    towers: tuple[TowerSpec, ...] = ()
    extra_parameters: dict[str, Count] = Field(default_factory=dict)
    """Parameters outside the layers beside embedding, head and last norm, by what they are."""
    learned_positions: Count = 0
    """Positions with an embedding of their own; 0 where positions are rotary or none."""
    last_norm: bool = True
    """Whether the norm behind the layers has weights (that of OLMo 1 has none)."""
    drafting_layers: Count = 0
    """Layers of the checkpoint that propose drafts (MTP). They are held where `engine.speculative` uses them."""
    left_out: tuple[str, ...] = ()
    """What the file says and nothing here computes, in words."""
    warnings: tuple[str, ...] = ()
    """What is doubtful in the file, or was assumed, in words."""

    @model_validator(mode="before")
    @classmethod
    def _of_uniform_layers(cls, data: Any) -> Any:
        return with_layers(data) if isinstance(data, dict) else data

    @field_validator("layers")
    @classmethod
    def _in_rows(cls, layers: tuple[LayerSpec, ...]) -> tuple[LayerSpec, ...]:
        if not any(layer.attention is not None for layer in layers):
            raise PydanticCustomError("no_attention", "expected layers with attention, got none")
        return in_rows(layers)

    def each_layer(self) -> Iterator[LayerSpec]:
        """All layers in order, each with a `count` of 1."""
        for row in self.layers:
            one = row.model_copy(update={"count": 1})
            for _ in range(row.count):
                yield one

    @property
    def num_layers(self) -> int:
        """Layers in all."""
        return sum(layer.count for layer in self.layers)

    def with_layers(self, layers: Iterable[LayerSpec]) -> "ModelSpec":
        """The same model with other layers."""
        return self.model_copy(update={"layers": in_rows(layers)})

    @property
    def attentions(self) -> Counter[Attention]:
        """How many layers have each attention, in the order of their first layers."""
        found: Counter[Attention] = Counter()
        for layer in self.layers:
            if layer.attention is not None:
                found[layer.attention] += layer.count
        return found

    @property
    def mixtures(self) -> Counter[Mixture]:
        """How many layers have each mixture of experts, in the order of their first layers."""
        found: Counter[Mixture] = Counter()
        for layer in self.layers:
            if layer.mixture is not None:
                found[layer.mixture] += layer.count
        return found

    @property
    def attention_layers(self) -> dict[str, int]:
        """Layers of each kind of attention that the model has (`simserve.cost.kinds`)."""
        found: Counter[str] = Counter()
        for attention, count in self.attentions.items():
            found[attention.kind] += count
        return dict(found)

    @property
    def other_layers(self) -> dict[str, int]:
        """Layers that do not keep all tokens of a request, by their kind of attention."""
        return {kind: count for kind, count in self.attention_layers.items() if kind not in KEEP_ALL}

    @property
    def is_moe(self) -> bool:
        """Whether layers route tokens to experts."""
        return bool(self.mixtures)

    @property
    def num_moe_layers(self) -> int:
        """Layers whose MLP is a mixture of experts."""
        return sum(self.mixtures.values())

    @property
    def num_experts(self) -> int:
        """Routed experts of a layer, most of all layers; 0 without."""
        return max([mixture.num_experts for mixture in self.mixtures], default=0)

    @property
    def experts_per_token(self) -> int:
        """Experts that a token is routed to in a layer, most of all layers; 0 without."""
        return max([mixture.experts_per_token for mixture in self.mixtures], default=0)

    @property
    def num_heads(self) -> int:
        """Query heads of a layer, most of all layers."""
        return max([getattr(attention, "num_heads", 0) for attention in self.attentions], default=0)

    @property
    def embedding_parameters(self) -> int:
        """Parameters of the token embedding; a tied lm_head is this same matrix."""
        return self.vocab_size * self.hidden_size

    @property
    def lm_head_parameters(self) -> int:
        """Parameters of the output projection; 0 where it is tied."""
        return 0 if self.tie_word_embeddings else self.vocab_size * self.hidden_size

    @property
    def tower_parameters(self) -> int:
        """Parameters of all towers."""
        return sum(tower.num_parameters for tower in self.towers)

    @property
    def other_parameters(self) -> int:
        """Parameters of the language model outside layers, embedding and head: last norm, positions, what else."""
        return self.hidden_size * (self.last_norm + self.learned_positions) + sum(self.extra_parameters.values())

    @property
    def num_parameters(self) -> int:
        """All parameters, towers included, tied matrices counted once."""
        layers = sum(layer.count * layer.parameters(self.hidden_size) for layer in self.layers)
        whole = self.embedding_parameters + self.lm_head_parameters + self.other_parameters
        return layers + whole + self.tower_parameters

    @property
    def num_active_parameters(self) -> int:
        """Parameters that one token of text passes: of the experts, only the routed ones; no tower."""
        unused = sum(count * each.unused_parameters(self.hidden_size) for each, count in self.mixtures.items())
        return self.num_parameters - self.tower_parameters - unused

    @property
    def weight_bytes(self) -> float:
        """Bytes of all weights of the model, scales included; what the user stated, if so."""
        if self.given_weight_bytes is not None:
            return self.given_weight_bytes
        return self.layer_bytes + self.outer_bytes

    @property
    def layer_bytes(self) -> float:
        """Bytes of the weights of all layers."""
        element, hidden = bytes_per_element(self.activation_dtype), self.hidden_size
        return sum(
            layer.count
            * (
                sum(each.bytes(self.activation_dtype) for each in layer.matrices(hidden))
                + layer.vectors(hidden) * element
            )
            for layer in self.layers
        )

    @property
    def outer_bytes(self) -> float:
        """Bytes of the weights outside the layers."""
        element = bytes_per_element(self.activation_dtype)
        head = element if self.lm_head is None else self.lm_head.bytes_each(self.hidden_size, self.vocab_size)
        outside = self.embedding_parameters + self.other_parameters + self.tower_parameters
        return outside * element + self.lm_head_parameters * head

    @property
    def formats(self) -> Counter[WeightFormat | None]:
        """How many weights of the layers' matrices are in each format; None is the activations'. Routers and other
        matrices that are never quantised are left out.
        """
        found: Counter[WeightFormat | None] = Counter()
        for layer in self.layers:
            for block in layer.blocks:
                for each in block.matrices(self.hidden_size):
                    if each.gemm in type(block).model_fields:
                        found[each.format] += layer.count * each.elements
        return found

    @property
    def weight_dtype(self) -> str:
        """Format of most weights of the layers."""
        best = self.formats.most_common(1)[0][0]
        return self.activation_dtype if best is None else best.dtype

    @property
    def expert_dtype(self) -> str:
        """Format of the routed experts; of the model's weights where it has none."""
        mixture = next(iter(self.mixtures), None)
        if mixture is None:
            return self.weight_dtype
        return self.activation_dtype if mixture.experts_gate_up is None else mixture.experts_gate_up.dtype

    @property
    def dense_dtypes(self) -> tuple[str, ...]:
        """Formats of all GEMMs that can be quantised, beside those of the experts, each once."""
        found = {
            self.activation_dtype if each.format is None else each.format.dtype
            for layer in self.layers
            for block in layer.blocks
            for each in block.matrices(self.hidden_size)
            if each.gemm in type(block).model_fields and not each.gemm.startswith("experts_")
        }
        return tuple(sorted(found))

    def in_format(self, weight_dtype: str) -> "ModelSpec":
        """The same with other weights: mxfp4 in the experts alone where the model has experts (as published models and
        vLLM have it), any other format in all linear layers.
        """
        stated = WeightFormat.model_validate(weight_dtype)
        plain = stated.dtype == self.activation_dtype
        experts_only = stated.dtype == "mxfp4" and self.is_moe

        def layer(each: LayerSpec) -> LayerSpec:
            changed = {
                name: block.in_formats(
                    lambda matrix: (
                        None if plain or (experts_only and not matrix.gemm.startswith("experts_")) else stated
                    ),
                    self.hidden_size,
                )
                for name, block in (("attention", each.attention), ("mlp", each.mlp))
                if block is not None
            }
            return each.model_copy(update=changed)

        return self.model_copy(update={"layers": in_rows(map(layer, self.layers)), "lm_head": None})

    @property
    def kv_bytes_per_token(self) -> float:
        """Bytes of KV cache of one token in the layers that keep all tokens, the caches of indexers left out."""
        return sum(count * each.kept_bytes(self.kv_dtype) for each, count in self.attentions.items())

    @property
    def windows(self) -> list[dict[str, float]]:
        """Layers that look back on so many tokens: `window`, their number and their bytes of KV for one token. Caches
        of two sorts have a row each, though their windows be alike.
        """
        found: dict[tuple[int, int], dict[str, float]] = {}
        for attention, count in self.attentions.items():
            for sort, (window, each) in enumerate(attention.window_bytes(self.kv_dtype)):
                row = found.setdefault((window, sort), {"window": window, "bytes_per_token": 0.0, "layers": 0})
                row["bytes_per_token"] += count * each
                row["layers"] += count
        return list(found.values())

    @property
    def index_cache_bytes_per_token(self) -> float:
        """Bytes that the indexers of sparse layers cache for one token."""
        return sum(count * each.index_cache_bytes for each, count in self.attentions.items())

    @property
    def state_bytes_per_sequence(self) -> int:
        """Bytes of the states of linear, state-space and convolution layers for one sequence, whole: before tensor
        parallelism.
        """
        return sum(count * each.state_bytes(self.activation_dtype) for each, count in self.attentions.items())

    @property
    def notes(self) -> list[str]:
        """What is to be said beside every number of it: what was left out, what is doubtful or was assumed."""
        return [f"left out of {self.name}: {what}" for what in self.left_out] + [
            f"{self.name}: {what}" for what in self.warnings
        ]

    @property
    def not_simulated(self) -> str | None:
        """Why no run can use it, in words; None where one can."""
        return not_simulated(self.attention_layers)


__all__ = ["ActivationDtype", "DenseMlp", "GroupedAttention", "KvDtype", "LatentAttention", "ModelSpec", "TowerSpec"]
