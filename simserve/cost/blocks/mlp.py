"""The MLP of a layer: a dense one, or a mixture of experts with what stands beside the routed ones."""

from functools import singledispatch

from simserve.cost.blocks.parts import Operators, Parts
from simserve.cost.expert_kernels import ExpertKernel, PaddedExperts
from simserve.cost.gemm_table import ExpertsShape
from simserve.cost.operators import (
    AllToAll,
    Collective,
    Elementwise,
    ExpertLinear,
    FusedExperts,
    Gathered,
    Routing,
    TokenOperator,
)
from simserve.spec.dtypes import bytes_per_element, scale_bytes_per_element
from simserve.spec.layers.mlp import DenseMlp, Mixture
from simserve.spec.layers.weights import WeightFormat


@singledispatch
def operators(mlp: object, parts: Parts, end: Operators) -> Operators:  # noqa: ARG001
    """Operators of an MLP, `end` of its layer included.

    Raises:
        ValueError: an MLP of this class is not modelled yet.
    """
    raise ValueError(f"an MLP of {type(mlp).__name__} is not simulated yet")


@operators.register
def _(mlp: DenseMlp, parts: Parts, end: Operators) -> Operators:
    width = mlp.width / parts.sharding.ranks
    return (*_dense("", width, (mlp.gate_up, mlp.down), parts, gated=mlp.gated), *end)


@operators.register
def _(mlp: Mixture, parts: Parts, end: Operators) -> Operators:
    return _MixtureOperators(mlp, parts).all(end)


def _dense(
    prefix: str,
    width: float,
    weights: tuple[WeightFormat | None, WeightFormat | None],
    parts: Parts,
    *,
    gated: bool,
) -> Operators:
    """Two GEMMs and what lies between: the first for gate and up side by side, or for up alone."""
    first = 2 if gated else 1
    name = f"{prefix}gate_up" if gated else f"{prefix}up"
    return (
        *parts.quantize(f"{prefix}gate_up", parts.hidden, weights[0]),
        parts.linear(name, parts.hidden, first * width, weights[0]),
        Elementwise(f"{prefix}activation", (first + 1) * width * parts.act),
        *parts.quantize(f"{prefix}down", width, weights[1]),
        parts.linear(f"{prefix}down", width, parts.hidden, weights[1]),
    )


class _MixtureOperators:
    """Writes down the operators of one mixture on one GPU."""

    def __init__(self, mixture: Mixture, parts: Parts) -> None:
        self.mixture = mixture
        self.parts = parts
        self.size = mixture.latent_size or parts.hidden
        sharding = parts.sharding
        self.chosen = max(1, round(mixture.real_experts_per_token))
        self.routing = Routing(mixture.num_experts, self.chosen, sharding.spread, sharding.imbalance, sharding.skew)

    def all(self, end: Operators) -> Operators:
        """Router, experts, and what every token passes beside them."""
        mixture, parts, act = self.mixture, self.parts, self.parts.act
        sharding = parts.sharding
        router = (
            parts.linear("router", parts.hidden, mixture.num_experts + mixture.zero_experts),
            Elementwise("top_k", 2 * (mixture.num_experts + mixture.zero_experts) * act),
        )
        beside = (*self._shared(), *self._residual())
        sum_bytes = (self.chosen / self.routing.spread + 1) * self.size * act
        whole = sharding.fused_experts or sharding.expert_kernel is not None
        summed: Operators = () if whole else (Elementwise("experts_sum", sum_bytes),)
        down, up = self._latent()
        if sharding.peers > 1:
            return (*router, *down, *self._of_all_peers(), *summed, *up, *beside)
        exchange = sharding.exchange
        if exchange is None:
            return (*router, *down, *self._routed(), *summed, *up, *beside, *end)
        # The sum after attention leaves each GPU its share of the tokens, which are gathered again after the experts:
        # the two halves of an all-reduce. Only the parts of a shared expert are left to be summed.
        end = end if beside else ()
        sent = self.size * self._element_bytes_sent()
        dispatch = AllToAll("dispatch", sent, self.routing, exchange)
        combine = AllToAll("combine", self.size * act, self.routing, exchange)
        return (*router, *down, dispatch, *self._routed(), combine, *summed, *up, *beside, *end)

    def _shared(self) -> Operators:
        mixture = self.mixture
        width = mixture.num_shared_experts * mixture.shared_width / self.parts.sharding.ranks
        if not width:
            return ()
        formats = mixture.shared_gate_up, mixture.shared_down
        gate: Operators = ()
        if mixture.shared_gate:
            gate = (self.parts.linear("shared_expert_gate", self.parts.hidden, 1),)
        return (*gate, *_dense("shared_", width, formats, self.parts, gated=mixture.gated))

    def _residual(self) -> Operators:
        mixture = self.mixture
        if not mixture.residual_width:
            return ()
        width = mixture.residual_width / self.parts.sharding.ranks
        formats = mixture.residual_gate_up, mixture.residual_down
        sum_of_both = Elementwise("residual_sum", 3 * self.parts.hidden * self.parts.act)
        return (*_dense("residual_", width, formats, self.parts, gated=mixture.gated), sum_of_both)

    def _latent(self) -> tuple[Operators, Operators]:
        """Projections to the size that experts work in, and back."""
        mixture, parts = self.mixture, self.parts
        if not mixture.latent_size:
            return (), ()
        size = mixture.latent_size
        down = parts.linear("experts_latent_down", parts.hidden, size, mixture.latent)
        return (down,), (parts.linear("experts_latent_up", size, parts.hidden, mixture.latent),)

    def _routed(self) -> Operators:
        """What one GPU computes of the experts that tokens choose: a part of each of them, or some of them whole."""
        mixture, parts = self.mixture, self.parts
        sharding = parts.sharding
        ranks = 1 if sharding.spread > 1 else sharding.ranks
        width, first = mixture.width / ranks, 2 if mixture.gated else 1
        if sharding.expert_kernel is not None:
            return (self._padded(sharding.expert_kernel, ranks),)
        if sharding.fused_experts:
            return (self._fused(width, ranks),)
        routed = self.chosen / sharding.spread
        return (
            self._experts("experts_gate_up", self.size, first * width, mixture.experts_gate_up),
            Elementwise("experts_activation", (first + 1) * width * routed * parts.act),
            self._experts("experts_down", width, self.size, mixture.experts_down),
        )

    def _of_all_peers(self) -> list[TokenOperator]:
        """Tokens and what the router says of them gathered from all replicas, the experts, and their results summed and
        scattered back.
        """
        sharding, act = self.parts.sharding, self.parts.act
        peers, gather, scatter = sharding.peers, sharding.all_gather, sharding.reduce_scatter
        assert gather is not None
        assert scatter is not None
        gathered = peers * (self.size + self.mixture.num_experts) * act
        return [
            Collective("experts_all_gather", gathered, gather),
            *(Gathered(operator, peers) for operator in self._routed()),
            Collective("experts_reduce_scatter", peers * self.size * act, scatter),
        ]

    def _element_bytes_sent(self) -> float:
        """Bytes of one element on its way to an expert: quantised before it is sent where experts compute in it."""
        dtype = self.parts.compute(self.mixture.experts_gate_up)
        return min(self.parts.act, bytes_per_element(dtype) + scale_bytes_per_element(dtype))

    def _shape(self, ranks: int) -> ExpertsShape:
        mixture = self.mixture
        # An MLP without a gate reads two matrices in place of three: as much as gated experts of two thirds the width.
        width = mixture.width if mixture.gated else round(mixture.width * 2 / 3)
        spread = self.parts.sharding.spread
        return ExpertsShape(self.size, width, self.chosen, mixture.num_experts, ranks, spread)

    def _padded(self, kernel: ExpertKernel, ranks: int) -> PaddedExperts:
        element_bytes = self.parts.element_bytes(self.mixture.experts_gate_up)
        return PaddedExperts("experts", self._shape(ranks), self.routing, kernel, element_bytes, self.parts.act)

    def _fused(self, width: float, ranks: int) -> FusedExperts:
        mixture, parts = self.mixture, self.parts
        weights, first = mixture.experts_gate_up, 2 if mixture.gated else 1
        weight_bytes = (
            self.size * width * (first * parts.element_bytes(weights) + parts.element_bytes(mixture.experts_down))
        )
        dtype, compute = parts.dtype(weights), parts.compute(weights)
        return FusedExperts("experts", self._shape(ranks), self.routing, weight_bytes, parts.act, dtype, compute)

    def _experts(self, name: str, inputs: float, outputs: float, weights: WeightFormat | None) -> ExpertLinear:
        parts = self.parts
        weight_bytes = inputs * outputs * parts.element_bytes(weights)
        dtype, compute = parts.dtype(weights), parts.compute(weights)
        return ExpertLinear(name, self.routing, inputs, outputs, weight_bytes, parts.act, dtype, compute)
