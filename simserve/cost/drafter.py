"""The model that proposes drafts: its shapes, and what it holds in memory beside the model that it serves.

EAGLE (Li et al., 2024, arXiv 2401.15077) is one dense layer of the model's shape, MTP (DeepSeek-V3, arXiv 2412.19437)
one of the model's own layers, experts included. Both read the embedding of a token and the hidden state before it,
joined by one projection, and share embedding and lm_head with their model, unless an EAGLE drafter has a smaller
vocabulary and a head of its own.
"""

from typing import TYPE_CHECKING, Any

from simserve.cost.kv_pool import KvGroups
from simserve.cost.operators import Linear
from simserve.cost.shape import ForwardShape
from simserve.spec.layers.mlp import DenseMlp
from simserve.spec.model import ModelSpec

if TYPE_CHECKING:
    from simserve.spec.speculative import SpeculativeSpec


def drafter_of(spec: "SpeculativeSpec", model: ModelSpec) -> ModelSpec | None:
    """The model that proposes drafts for `model`; None where drafts are looked up."""
    if spec.method == "ngram":
        return None
    if spec.draft_model is not None:
        return spec.draft_model
    last = model.layers[-1].model_copy(update={"count": 1})
    of_model: dict[str, Any] = {
        "name": f"{spec.method} of {model.name}",
        "given_weight_bytes": None,
        "lm_head": None,
        "towers": (),
    }
    of_model |= {"vocab_size": spec.draft_vocab_size or model.vocab_size, "extra_parameters": {}}
    drafter = model.model_copy(update=of_model)
    if spec.method == "mtp":
        return drafter.with_layers([last])
    dense = last.model_copy(update={"mlp": DenseMlp(width=_dense_width(model))})
    return drafter.with_layers([dense]).in_format(model.activation_dtype)


def _dense_width(model: ModelSpec) -> int:
    """Width of a dense MLP in a model: its own, or that of all experts that a token passes."""
    for layer in model.layers:
        if isinstance(layer.mlp, DenseMlp):
            return layer.mlp.width
    return max(mixture.experts_per_token * mixture.width for mixture in model.mixtures)


def models_with_kv(spec: "SpeculativeSpec | None", model: ModelSpec) -> list[ModelSpec]:
    """The model, and its drafter if that is one: their KV lies side by side in the blocks."""
    drafter = None if spec is None else drafter_of(spec, model)
    return [model] if drafter is None else [model, drafter]


def drafter_shape(spec: "SpeculativeSpec", shape: ForwardShape, hidden_size: int) -> ForwardShape:
    """One pass of the drafter, from the shape of its layers: with the projection that joins embedding and hidden state,
    which every GPU holds whole.
    """
    if spec.method == "draft_model":
        return shape
    head = shape.head[0]
    assert isinstance(head, Linear)
    weights = 2.0 * hidden_size * hidden_size * head.activation_bytes
    joined = Linear("fc", 2.0 * hidden_size, hidden_size, weights, head.activation_bytes, head.dtype, head.compute)
    return shape._replace(embed=(*shape.embed, joined))


def joint_parameters(spec: "SpeculativeSpec", drafter: ModelSpec) -> int:
    """Parameters of the projection that joins its inputs, beside those of its shapes."""
    return 0 if spec.method == "draft_model" else 2 * drafter.hidden_size**2


def shared_parameters(spec: "SpeculativeSpec", drafter: ModelSpec) -> int:
    """Parameters of its shapes that its model holds already."""
    if spec.method == "draft_model":
        return 0
    return drafter.embedding_parameters + (0 if spec.draft_vocab_size else drafter.lm_head_parameters)


def drafter_block_bytes(spec: "SpeculativeSpec | None", model: ModelSpec, ranks: int, block_size: int) -> int:
    """Bytes that the drafter's KV adds to a block on one of `ranks` GPUs."""
    drafter = None if spec is None else drafter_of(spec, model)
    return 0 if drafter is None else KvGroups.of(drafter, ranks, block_size).block_bytes
