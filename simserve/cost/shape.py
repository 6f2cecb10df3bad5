"""The forward pass of a model on one GPU of its tensor-parallel group: which operators, in which order, how often.

Tensor parallelism splits the columns of qkv, gate/up and lm_head, the rows of out and down, heads and vocabulary;
norms, router and the latent of MLA are on every GPU (Megatron-LM, arXiv 1909.08053). KV heads fewer than GPUs are
copied.
"""

from collections import Counter
from collections.abc import Iterator
from math import gcd
from typing import NamedTuple

from simserve.cost.expert_kernels import ExpertKernel, PaddedExperts
from simserve.cost.gemm_table import ExpertsShape
from simserve.cost.kinds.kind import LayerWork
from simserve.cost.kinds.over_kv import kv_bytes_of_layer, kv_heads_of_gpu
from simserve.cost.kinds.registry import KINDS
from simserve.cost.operators import (
    AllToAll,
    Collective,
    Elementwise,
    ExpertLinear,
    FusedAllReduce,
    FusedExperts,
    Gathered,
    Linear,
    Routing,
    TokenOperator,
)
from simserve.cost.sharding import Sharding
from simserve.spec.dtypes import bytes_per_element, scale_bytes_per_element
from simserve.spec.model import ModelSpec

_QUANTIZED = frozenset({"fp8", "nvfp4"})
"""Formats whose GEMMs are those of `engine.linear_backend`."""

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
    """
    shape = _Builder(model, sharding, sampling).forward()
    if model.given_weight_bytes is None:
        return shape
    scale = model.given_weight_bytes / sharding.ranks / _gemm_bytes(shape)
    return _Builder(model, sharding, sampling, scale).forward()


def _gemm_bytes(shape: ForwardShape) -> float:
    operators = [op for layer in shape.each_layer() for op in layer.before + layer.after]
    total = 0.0
    for op in operators + list(shape.head):
        if isinstance(op, Linear):
            total += op.weight_bytes
        elif isinstance(op, ExpertLinear):
            total += op.weight_bytes * op.routing.experts / op.routing.spread
    return total


class _Builder:
    """Writes down the operators of one model on one GPU."""

    def __init__(self, model: ModelSpec, sharding: Sharding, sampling: LogitWork, scale: float = 1.0) -> None:
        self.model = model
        self.sampling = sampling
        self.sharding = sharding
        self.scale = scale
        self.act = bytes_per_element(model.activation_dtype)
        self.hidden = model.hidden_size
        self.routing = Routing(
            model.num_experts, model.experts_per_token, sharding.spread, sharding.imbalance, sharding.skew
        )
        self.heads = model.num_heads / sharding.ranks
        self.kv_heads = kv_heads_of_gpu(model, sharding.ranks)
        self.kv_bytes = kv_bytes_of_layer(model, sharding.ranks)

    def forward(self) -> ForwardShape:
        model = self.model
        vocab = model.vocab_size / self.sharding.ranks
        embedding = Elementwise("embedding", 2 * self.hidden * self.act)
        reduced = (
            self._reduce_and_norm("embedding_all_reduce", "input_norm", self._quantize_qkv())
            if self._norm_ends_layers
            else self._all_reduce("embedding_all_reduce")
        )
        head: list[TokenOperator] = [self._linear("lm_head", self.hidden, vocab, group="lm_head", quantized=False)]
        if self.sharding.all_gather is not None and self.sharding.ranks > 1:
            head.append(Collective("logits_gather", model.vocab_size * self.act, self.sharding.all_gather))
        head.append(Elementwise("sampler", model.vocab_size * (self.act + _LOGIT_BYTES), group="sampler"))
        if self.sampling.penalizes:
            head.append(Elementwise("penalties", model.vocab_size * _PENALTY_BYTES, group="sampler"))
        if self.sampling.sorts:
            head.append(Elementwise("top_p_sort", model.vocab_size * _SORT_BYTES, group="sampler"))
        norm = () if self._norm_ends_layers else (self._norm("final_norm"),)
        return ForwardShape((embedding, *reduced), tuple(self._layer_groups()), norm, tuple(head))

    def _layer_groups(self) -> Iterator[tuple[int, tuple[Layer, ...]]]:
        """Dense layers first, as DeepSeek has them; kinds of attention in turn, in the ratio of their numbers, full
        attention last.
        """
        model = self.model
        kinds = model.attention_layers
        if model.num_moe_layers and model.num_dense_layers:
            if len(kinds) > 1:
                raise ValueError(f"dense layers before a mixture and {' and '.join(kinds)} layers: not modelled yet")
            (kind,) = kinds
            yield model.num_dense_layers, (self._layer(self._dense_mlp(), kind),)
            yield model.num_moe_layers, (self._layer(self._moe(), kind),)
            return
        mlp = self._moe() if model.is_moe else self._dense_mlp()
        turns = gcd(*kinds.values())
        in_turn = [self._layer(mlp, kind) for kind, count in reversed(kinds.items()) for _ in range(count // turns)]
        yield turns, tuple(in_turn)

    def _layer(self, mlp: tuple[TokenOperator, ...], kind: str) -> Layer:
        norm = () if self._norm_ends_layers else (self._norm("input_norm"), *self._quantize_qkv())
        before = (*norm, *(self._mla() if self.model.is_mla else self._qkv()))
        split = 1 if mlp[0].name == "gate_up_quantize" else 0
        after = (
            *self._quantize_out(),
            self._out(),
            *self._reduce_and_norm("attention_all_reduce", "post_attention_norm", mlp[:split]),
            *mlp[split:],
        )
        return Layer(before, KINDS[kind].work(self.model, self.sharding), after)

    @property
    def _norm_ends_layers(self) -> bool:
        """Whether the norm before a layer's attention is in the kernel that ends what precedes it."""
        sharding = self.sharding
        return sharding.fusions.all_reduce is not None and sharding.exchange is None and sharding.peers == 1

    def _end_of_layer(self) -> tuple[TokenOperator, ...]:
        """The sum over the GPUs that ends a layer, and the norm of the next one where one kernel does both."""
        if not self._norm_ends_layers:
            return self._all_reduce("mlp_all_reduce")
        return self._reduce_and_norm("mlp_all_reduce", "input_norm", self._quantize_qkv())

    def _reduce_and_norm(
        self, reduce: str, norm: str, quantize: tuple[TokenOperator, ...]
    ) -> tuple[TokenOperator, ...]:
        """All-reduce, norm and quantisation of its result: one kernel, or each by itself. Where the message is too
        large for the kernel, its operator ends with a copy (vLLM 0.11, compilation/collective_fusion.py).
        """
        apart = (*self._all_reduce(reduce), self._norm(norm), *quantize)
        time, largest, _ = self.sharding.fusions
        if time is None:
            return apart
        apart = (*apart, Elementwise("copy_back", 2 * self.hidden * self.act))
        return (FusedAllReduce(f"{reduce}_and_norm", self.hidden * self.act, time, largest, apart),)

    def _qkv(self) -> tuple[TokenOperator, ...]:
        model = self.model
        q, kv = self.heads * model.head_dim, self.kv_heads * model.head_dim
        norm = (Elementwise("qk_norm", 2 * (q + kv) * self.act),) if model.qk_norm else ()
        rope = Elementwise("rope", 2 * (q + kv) * self.act)
        write = Elementwise("cache_write", 2 * kv * self.act + self.kv_bytes)
        return (self._linear("qkv", self.hidden, q + 2 * kv), *norm, rope, write)

    def _mla(self) -> tuple[TokenOperator, ...]:
        """Projections of multi-head latent attention (DeepSeek-V2, arXiv 2405.04434). Expanding the latent costs the
        same FLOPs a token whether it is done for keys and values (prefill) or absorbed into query and output (decode).
        """
        model = self.model
        latent = model.kv_lora_rank + model.qk_rope_head_dim
        q = self.heads * (model.qk_nope_head_dim + model.qk_rope_head_dim)
        down = self._linear("latent_down", self.hidden, model.q_lora_rank + latent)
        up = self._linear("q_up", model.q_lora_rank or self.hidden, q)
        norm = Elementwise("latent_norm", 2 * (model.q_lora_rank + model.kv_lora_rank) * self.act)
        expand = self._linear("kv_up", model.kv_lora_rank, self.heads * (model.qk_nope_head_dim + model.v_head_dim))
        write = Elementwise("rope_and_cache_write", (2 * q + latent) * self.act + self.kv_bytes)
        return down, norm, up, expand, write

    def _out(self) -> Linear:
        return self._linear("out", self._out_width(), self.hidden)

    def _quantize_out(self) -> tuple[TokenOperator, ...]:
        return () if self.sharding.fusions.attention_quant else self._quantize("out", self._out_width())

    def _quantize_qkv(self) -> tuple[TokenOperator, ...]:
        return () if self.model.is_mla else self._quantize("qkv", self.hidden)

    def _out_width(self) -> float:
        return self.heads * (self.model.v_head_dim if self.model.is_mla else self.model.head_dim)

    def _quantize(self, name: str, width: float) -> tuple[TokenOperator, ...]:
        """What brings the input of a GEMM into the format that it computes in, where that is a kernel of its own:
        for fp4 always, for fp8 behind attention (elsewhere vLLM's compiler puts it into norm or activation).
        """
        model = self.model
        compute = self.sharding.compute_dtype(model.weight_dtype, model.activation_dtype)
        if model.quantized != "linear" or not (compute == "nvfp4" or (compute == "fp8" and name == "out")):
            return ()
        return (Elementwise(f"{name}_quantize", width * (self.act + bytes_per_element(compute))),)

    def _dense_mlp(self) -> tuple[TokenOperator, ...]:
        width = self.model.intermediate_size / self.sharding.ranks
        return (*self._gated_mlp("", width), *self._end_of_layer())

    def _gated_mlp(self, prefix: str, width: float) -> tuple[TokenOperator, ...]:
        return (
            *self._quantize(f"{prefix}gate_up", self.hidden),
            self._linear(f"{prefix}gate_up", self.hidden, 2 * width),
            Elementwise(f"{prefix}activation", 3 * width * self.act),
            *self._quantize(f"{prefix}down", width),
            self._linear(f"{prefix}down", width, self.hidden),
        )

    def _moe(self) -> tuple[TokenOperator, ...]:
        model, act = self.model, self.act
        shared_width = model.num_shared_experts * model.shared_intermediate_size / self.sharding.ranks
        shared = self._gated_mlp("shared_", shared_width) if shared_width else ()
        router = (
            self._linear("router", self.hidden, model.num_experts, quantized=False),
            Elementwise("top_k", 2 * model.num_experts * act),
        )
        sum_bytes = (model.experts_per_token / self.routing.spread + 1) * self.hidden * act
        whole = self.sharding.fused_experts or self.sharding.expert_kernel is not None
        summed = () if whole else (Elementwise("experts_sum", sum_bytes),)
        reduced = self._end_of_layer()
        exchange = self.sharding.exchange
        if self.sharding.peers > 1:
            return (*router, *self._of_all_peers(), *summed, *shared)
        if exchange is None:
            return (*router, *self._routed_experts(), *summed, *shared, *reduced)
        # The sum after attention leaves each GPU its share of the tokens, which are gathered again after the experts:
        # the two halves of an all-reduce. Only the parts of a shared expert are left to be summed.
        reduced = reduced if shared else ()
        sent = self.hidden * self._element_bytes_sent()
        dispatch = AllToAll("dispatch", sent, self.routing, exchange)
        combine = AllToAll("combine", self.hidden * act, self.routing, exchange)
        return (*router, dispatch, *self._routed_experts(), combine, *summed, *shared, *reduced)

    def _routed_experts(self) -> tuple[TokenOperator, ...]:
        """What one GPU computes of the experts that tokens choose: a part of each of them, or some of them whole."""
        model, sharding = self.model, self.sharding
        ranks = 1 if sharding.spread > 1 else sharding.ranks
        width = model.moe_intermediate_size / ranks
        if sharding.expert_kernel is not None:
            return (self._padded_experts(sharding.expert_kernel, ranks),)
        if sharding.fused_experts:
            return (self._fused_experts(width, ranks),)
        routed = model.experts_per_token / sharding.spread
        return (
            self._experts("experts_gate_up", self.hidden, 2 * width),
            Elementwise("experts_activation", 3 * width * routed * self.act),
            self._experts("experts_down", width, self.hidden),
        )

    def _of_all_peers(self) -> Iterator[TokenOperator]:
        """Tokens and what the router says of them gathered from all replicas, the experts, and their results summed and
        scattered back.
        """
        peers, gather, scatter = self.sharding.peers, self.sharding.all_gather, self.sharding.reduce_scatter
        assert gather is not None
        assert scatter is not None
        yield Collective("experts_all_gather", peers * (self.hidden + self.model.num_experts) * self.act, gather)
        for operator in self._routed_experts():
            yield Gathered(operator, peers)
        yield Collective("experts_reduce_scatter", peers * self.hidden * self.act, scatter)

    def _element_bytes_sent(self) -> float:
        """Bytes of one element on its way to an expert: quantised before it is sent where experts compute in it."""
        dtype = self.sharding.compute_dtype(self.model.weight_dtype, self.model.activation_dtype)
        return min(self.act, bytes_per_element(dtype) + scale_bytes_per_element(dtype))

    def _padded_experts(self, kernel: ExpertKernel, ranks: int) -> PaddedExperts:
        element_bytes = self._element_bytes(self.model.weight_dtype)
        return PaddedExperts("experts", self._experts_shape(ranks), self.routing, kernel, element_bytes, self.act)

    def _experts_shape(self, ranks: int) -> ExpertsShape:
        model = self.model
        return ExpertsShape(
            self.hidden,
            model.moe_intermediate_size,
            model.experts_per_token,
            model.num_experts,
            ranks,
            self.sharding.spread,
        )

    def _fused_experts(self, width: float, ranks: int) -> FusedExperts:
        model, dtype = self.model, self.model.weight_dtype
        shape = self._experts_shape(ranks)
        weight_bytes = 3 * self.hidden * width * self._element_bytes(dtype)
        compute = self.sharding.compute_dtype(dtype, model.activation_dtype)
        return FusedExperts("experts", shape, self.routing, weight_bytes, self.act, dtype, compute)

    def _linear(
        self, name: str, inputs: float, outputs: float, *, group: str = "linear", quantized: bool = True
    ) -> Linear:
        dtype = (
            self.model.weight_dtype if quantized and self.model.quantized == "linear" else self.model.activation_dtype
        )
        return Linear(
            name,
            inputs,
            outputs,
            inputs * outputs * self._element_bytes(dtype),
            self.act,
            dtype,
            self.sharding.compute_dtype(dtype, self.model.activation_dtype),
            group,
            self.sharding.backend if dtype in _QUANTIZED else None,
        )

    def _experts(self, name: str, inputs: float, outputs: float) -> ExpertLinear:
        model = self.model
        return ExpertLinear(
            name,
            self.routing,
            inputs,
            outputs,
            inputs * outputs * self._element_bytes(model.weight_dtype),
            self.act,
            model.weight_dtype,
            self.sharding.compute_dtype(model.weight_dtype, model.activation_dtype),
        )

    def _element_bytes(self, dtype: str) -> float:
        return (bytes_per_element(dtype) + scale_bytes_per_element(dtype)) * self.scale

    def _norm(self, name: str) -> Elementwise:
        return Elementwise(name, 4 * self.hidden * self.act)

    def _all_reduce(self, name: str) -> tuple[TokenOperator, ...]:
        reduce = self.sharding.all_reduce
        return () if reduce is None else (Collective(name, self.hidden * self.act, reduce),)
