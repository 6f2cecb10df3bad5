"""The model that proposes drafts: its shapes, and what it holds in memory beside the model that it serves.

EAGLE (Li et al., 2024, arXiv 2401.15077) is one dense layer of the model's shape, MTP (DeepSeek-V3, arXiv 2412.19437)
one of the model's own layers, experts included. Both read the embedding of a token and the hidden state before it,
joined by one projection, and share embedding and lm_head with their model, unless an EAGLE drafter has a smaller
vocabulary and a head of its own.
"""

from typing import TYPE_CHECKING

from simserve.cost.kv_pool import KvGroups
from simserve.cost.operators import Linear
from simserve.cost.shape import ForwardShape
from simserve.spec.model import ModelSpec

if TYPE_CHECKING:
    from simserve.spec.speculative import SpeculativeSpec


def drafter_of(spec: "SpeculativeSpec", model: ModelSpec) -> ModelSpec | None:
    """The model that proposes drafts for `model`; None where drafts are looked up."""
    if spec.method == "ngram":
        return None
    if spec.draft_model is not None:
        return spec.draft_model
    one_layer = {"name": f"{spec.method} of {model.name}", "num_layers": 1, "num_dense_layers": 0}
    one_layer |= {"given_weight_bytes": None, "vocab_size": spec.draft_vocab_size or model.vocab_size}
    if spec.method == "mtp":
        return model.model_copy(update=one_layer)
    dense = {"num_experts": 0, "experts_per_token": 0, "moe_intermediate_size": 0, "num_shared_experts": 0}
    width = model.intermediate_size or model.experts_per_token * model.moe_intermediate_size
    formats = {"intermediate_size": width, "weight_dtype": model.activation_dtype, "quantized": "linear"}
    return model.model_copy(update=one_layer | dense | formats)


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
    return 0 if drafter is None else KvGroups.of(drafter).block_bytes(drafter, ranks, block_size)
