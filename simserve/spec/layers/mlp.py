"""The MLP of a layer: dense, or a mixture of experts with what stands beside the routed ones."""

from collections.abc import Iterator
from typing import Literal

from simserve.spec.layers.block import Block
from simserve.spec.layers.weights import Matrix, WeightFormat, linear
from simserve.spec.quantities import Count, PositiveCount


def _mlp(gemms: tuple[str, str], prefix: str, hidden: int, width: int, *, gated: bool) -> Iterator[Matrix]:
    if gated:
        yield linear(gemms[0], f"{prefix}gate_proj", hidden, width)
    yield linear(gemms[0], f"{prefix}up_proj", hidden, width)
    yield linear(gemms[1], f"{prefix}down_proj", width, hidden)


class DenseMlp(Block):
    """Gate, up and down (SwiGLU, Shazeer 2020, arXiv 2002.05202), or up and down alone."""

    type: Literal["dense"] = "dense"
    width: PositiveCount
    gated: bool = True
    bias: bool = False
    gate_up: WeightFormat | None = None
    down: WeightFormat | None = None

    @property
    def first_outputs(self) -> int:
        """Columns of its first GEMM: gate and up side by side."""
        return (2 if self.gated else 1) * self.width

    def bare_matrices(self, hidden_size: int) -> Iterator[Matrix]:
        """Its two or three matrices."""
        return _mlp(("gate_up", "down"), "", hidden_size, self.width, gated=self.gated)

    def vectors(self, hidden_size: int) -> int:
        """Biases."""
        return (self.first_outputs + hidden_size) * self.bias


class Mixture(Block):
    """Routed experts (Shazeer et al., 2017, arXiv 1701.06538), those that every token passes, and a dense MLP beside
    them where the model has one.
    """

    type: Literal["mixture"] = "mixture"
    num_experts: PositiveCount
    experts_per_token: PositiveCount
    width: PositiveCount
    """Width of one expert."""
    gated: bool = True
    expert_bias: bool = False
    router_bias: bool = False
    """The router has a bias for each expert."""
    num_shared_experts: Count = 0
    shared_width: Count = 0
    """Width of one shared expert."""
    shared_gate: bool = False
    """A gate of one number weighs the shared experts (Qwen2-MoE)."""
    residual_width: Count = 0
    """Width of the dense MLP beside the experts; 0 without (Gemma 4, Grok-2)."""
    latent_size: Count = 0
    """Experts work in this size in place of the hidden one, behind a projection down and one up (Nemotron 3 Super)."""
    zero_experts: Count = 0
    """Experts without weights that the router may choose, too (LongCat)."""
    norms: Count = 0
    """Norms over the hidden size inside the block."""
    extra_vectors: Count = 0
    """Further parameters of the router: its scales."""
    experts_gate_up: WeightFormat | None = None
    experts_down: WeightFormat | None = None
    shared_gate_up: WeightFormat | None = None
    shared_down: WeightFormat | None = None
    residual_gate_up: WeightFormat | None = None
    residual_down: WeightFormat | None = None
    latent: WeightFormat | None = None

    @property
    def expert_hidden(self) -> int:
        """Size that experts work in, where it is not the hidden size."""
        return self.latent_size

    def first_outputs(self, width: int) -> int:
        """Columns of the first GEMM of an MLP of some width."""
        return (2 if self.gated else 1) * width

    def bare_matrices(self, hidden_size: int) -> Iterator[Matrix]:
        """Router, routed experts, shared experts, the dense MLP beside them."""
        yield linear("router", "gate", hidden_size, self.num_experts + self.zero_experts, parts=1)
        size = self.latent_size or hidden_size
        for each in _mlp(("experts_gate_up", "experts_down"), "experts.0.", size, self.width, gated=self.gated):
            yield each._replace(copies=self.num_experts)
        if self.latent_size:
            yield linear("latent", "fc1_latent_proj", hidden_size, self.latent_size, parts=1)
            yield linear("latent", "fc2_latent_proj", self.latent_size, hidden_size, parts=1)
        if self.num_shared_experts:
            width = self.num_shared_experts * self.shared_width
            gemms = "shared_gate_up", "shared_down"
            yield from _mlp(gemms, "shared_experts.", hidden_size, width, gated=self.gated)
        if self.shared_gate:
            yield linear("shared_expert_gate", "shared_expert_gate", hidden_size, 1, parts=1)
        if self.residual_width:
            gemms = "residual_gate_up", "residual_down"
            yield from _mlp(gemms, "residual.", hidden_size, self.residual_width, gated=self.gated)

    def vectors(self, hidden_size: int) -> int:
        """Biases of experts and router, norms inside."""
        of_expert = self.first_outputs(self.width) + hidden_size
        bias = self.num_experts * of_expert * self.expert_bias
        router = (self.num_experts + self.zero_experts) * self.router_bias
        return bias + router + self.norms * hidden_size + self.extra_vectors

    def unused_parameters(self, hidden_size: int) -> int:
        """Parameters of the experts that one token does not pass."""
        size = self.latent_size or hidden_size
        one = (self.first_outputs(self.width) + self.width) * size
        one += (self.first_outputs(self.width) + hidden_size) * self.expert_bias
        return round((self.num_experts - self.real_experts_per_token) * one)

    @property
    def real_experts_per_token(self) -> float:
        """Experts with weights that a token is routed to, on average: of those without, the router chooses as many as
        of the others.
        """
        return self.experts_per_token * self.num_experts / (self.num_experts + self.zero_experts)
