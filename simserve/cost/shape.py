"""The forward pass of a model on one GPU of its tensor-parallel group: which operators, in which order, how often.

Tensor parallelism splits the columns of qkv, gate/up and lm_head, the rows of out and down, heads and vocabulary;
norms, router and the latent of MLA are on every GPU (Megatron-LM, arXiv 1909.08053). KV heads fewer than GPUs are
copied.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from simserve.cost.blocks import attention as projections
from simserve.cost.blocks.mlp import operators as mlp_operators
from simserve.cost.blocks.parts import Operators, Parts
from simserve.cost.kinds.kind import LayerWork
from simserve.cost.kinds.registry import KINDS
from simserve.cost.operators import Collective, Elementwise, ExpertLinear, Linear, TokenOperator
from simserve.cost.sharding import Sharding
from simserve.spec.layers.layer import LayerSpec
from simserve.spec.model import ModelSpec

_LOGIT_BYTES = 8
"""fp32 logits are written and read once more. With its floor of 25 us this is the measured sampler of 128 and 256 rows
of 128,256 logits: 109 and 311 us on RTX 4090, 64 and 164 us on RTX PRO 6000 (vLLM 0.19, LLMServingSim, MIT)."""

_SORT_BYTES = 200
"""Bytes that top-p or top-k sampling moves per logit: vLLM sorts the fp32 logits of each row with their indices (radix
passes over keys and values), then softmax, cumulative sum, mask and scatter. Chosen, of 200 and 400, by the errors of
the runs of vLLM 0.15 on H100 (inference-sim), whose steps grow with the batch where the model's generation_config sets
top_p (Llama 2 and 3, Qwen3) and do not where it sets none (CodeLlama, Mixtral)."""

_PENALTY_BYTES = 85
"""Bytes that penalties move per logit (vLLM 0.15.1, apply_penalties): for prompt and output a 64-bit count is cleared
and compared with 0 (17 each), the repetition penalty reads both masks and changes the logit (10), what the frequency
and the presence penalty take off is written and then subtracted (24 and 17). Counted, not measured."""


class Layer(NamedTuple):
    """One transformer layer: the operators before its attention, the attention, the operators after it."""

    before: tuple[TokenOperator, ...]
    attention: LayerWork
    after: tuple[TokenOperator, ...]


class ForwardShape(NamedTuple):
    """A forward pass: `embed`, the layers of each (repeat, layers) in turn, `norm`, then `head` on the sampled rows."""

    embed: tuple[TokenOperator, ...]
    layers: tuple[tuple[int, tuple[Layer, ...]], ...]
    norm: tuple[TokenOperator, ...]
    head: tuple[TokenOperator, ...]

    def each_layer(self) -> Iterator[Layer]:
        """All layers in order."""
        for repeat, group in self.layers:
            for _ in range(repeat):
                yield from group

    def body(self) -> Counter[TokenOperator]:
        """How often each operator from `embed` to `norm` runs."""
        counts = Counter(self.embed + self.norm)
        for repeat, layers in self.layers:
            for layer in layers:
                for operator in layer.before + layer.after:
                    counts[operator] += repeat
        return counts

    def attentions(self) -> Counter[LayerWork]:
        """The kinds of attention of its layers, and how many layers have each, in the order of their first layers."""
        return Counter(layer.attention for layer in self.each_layer())


class LogitWork(NamedTuple):
    """What sampling does with the logits beside drawing a token: top-p `sorts` them, a penalty `penalizes` them."""

    sorts: bool = False
    penalizes: bool = False


GREEDY = LogitWork()


def forward_shape(model: ModelSpec, sharding: Sharding, sampling: LogitWork = GREEDY) -> ForwardShape:
    """Operators of one forward pass of `model` on one GPU of `sharding`.

    Weights stated by the user (`weight_bytes`) are spread over all GEMMs in proportion: one pass over a dense model
    then reads exactly the stated bytes.

    Raises:
        ValueError: a kind of layer is not simulated yet, or a number format has no path on this GPU.
    """
    shape = _shape(Parts(model, sharding), sampling)
    if model.given_weight_bytes is None:
        return shape
    scale = model.given_weight_bytes / sharding.ranks / _gemm_bytes(shape)
    return _shape(Parts(model, sharding, scale), sampling)


def _gemm_bytes(shape: ForwardShape) -> float:
    operators = [op for layer in shape.each_layer() for op in layer.before + layer.after]
    total = 0.0
    for op in operators + list(shape.head):
        if isinstance(op, Linear):
            total += op.weight_bytes
        elif isinstance(op, ExpertLinear):
            total += op.weight_bytes * op.routing.experts / op.routing.spread
    return total


def _shape(parts: Parts, sampling: LogitWork) -> ForwardShape:
    model = parts.model
    embed: Operators = (Elementwise("embedding", 2 * parts.hidden * parts.act),)
    first = next(layer.attention for layer in model.layers if layer.attention is not None)
    if parts.norm_ends_layers:
        embed += parts.reduce_and_norm("embedding_all_reduce", "input_norm", projections.quantize_input(first, parts))
    else:
        embed += parts.all_reduce("embedding_all_reduce")
    norm = () if parts.norm_ends_layers else (parts.norm("final_norm"),)
    embed, layers = _layers(parts, embed)
    return ForwardShape(embed, tuple(in_turns(layers)), norm, _head(parts, sampling))


def _head(parts: Parts, sampling: LogitWork) -> Operators:
    """lm_head on the sampled rows, and the sampler."""
    model, sharding, act = parts.model, parts.sharding, parts.act
    vocab = model.vocab_size / sharding.ranks
    head: list[TokenOperator] = [parts.linear("lm_head", parts.hidden, vocab, model.lm_head, group="lm_head")]
    if sharding.all_gather is not None and sharding.ranks > 1:
        head.append(Collective("logits_gather", model.vocab_size * act, sharding.all_gather))
    head.append(Elementwise("sampler", model.vocab_size * (act + _LOGIT_BYTES), group="sampler"))
    if sampling.penalizes:
        head.append(Elementwise("penalties", model.vocab_size * _PENALTY_BYTES, group="sampler"))
    if sampling.sorts:
        head.append(Elementwise("top_p_sort", model.vocab_size * _SORT_BYTES, group="sampler"))
    return tuple(head)


def _layers(parts: Parts, embed: Operators) -> tuple[Operators, list[Layer]]:
    """All layers in order. Operators of a layer without attention belong to what precedes it: the layer before, or the
    embedding.
    """
    rows = parts.model.layers
    layers: list[Layer] = []
    for place, row in enumerate(rows):
        following = rows[place + 1] if place + 1 < len(rows) else row
        for each in range(row.count):
            after = _after(row, row if each + 1 < row.count else following, parts)
            if row.attention is not None:
                work = KINDS[row.attention.kind].work(row.attention, parts.model, parts.sharding)
                layers.append(Layer(_before(row, parts), work, after))
            elif layers:
                layers[-1] = layers[-1]._replace(after=layers[-1].after + after)
            else:
                embed += after
    return embed, layers


def _before(layer: LayerSpec, parts: Parts) -> Operators:
    attention = layer.attention
    norm = () if parts.norm_ends_layers else (parts.norm("input_norm"), *projections.quantize_input(attention, parts))
    return (*norm, *projections.before(attention, parts))


def _after(layer: LayerSpec, following: LayerSpec, parts: Parts) -> Operators:
    """From the result of attention to the end of the layer, which may do the norm of the `following` one."""
    out = () if layer.attention is None else projections.output(layer.attention, parts)
    if layer.mlp is None:
        return (*out, *parts.all_reduce("attention_all_reduce"))
    end = parts.end_of_layer(projections.quantize_input(following.attention, parts))
    mlp = mlp_operators(layer.mlp, parts, end)
    if layer.attention is None:
        return (parts.norm("post_attention_norm"), *mlp)
    split = 1 if mlp[0].name == "gate_up_quantize" else 0
    reduced = parts.reduce_and_norm("attention_all_reduce", "post_attention_norm", mlp[:split])
    return (*out, *reduced, *mlp[split:])


_LONGEST_TURN = 16
"""Layers of a pattern that repeats, at most: published models take turns of up to 12."""


def in_turns(layers: Sequence[Layer]) -> Iterator[tuple[int, tuple[Layer, ...]]]:
    """Layers in order as (repeat, layers in turn): at each place the pattern that repeats furthest, the shortest one of
    those.
    """
    start = 0
    while start < len(layers):
        best, turns = 1, 1
        for length in range(1, min(_LONGEST_TURN, (len(layers) - start) // 2) + 1):
            repeats = _repeats(layers, start, length)
            if repeats > 1 and repeats * length > best * turns:
                best, turns = length, repeats
        yield turns, tuple(layers[start : start + best])
        start += best * turns


def _repeats(layers: Sequence[Layer], start: int, length: int) -> int:
    pattern, repeats = layers[start : start + length], 1
    while layers[start + repeats * length : start + (repeats + 1) * length] == pattern:
        repeats += 1
    return repeats
