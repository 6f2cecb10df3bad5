"""Operators that all blocks are made of: GEMMs in their formats, norms, the sums over the GPUs between blocks."""

from simserve.cost.operators import Collective, Elementwise, FusedAllReduce, Linear, TokenOperator
from simserve.cost.sharding import Sharding
from simserve.spec.dtypes import bytes_per_element
from simserve.spec.layers.weights import WeightFormat
from simserve.spec.model import ModelSpec

_BACKEND_FORMATS = frozenset({"fp8", "nvfp4"})
"""Formats whose GEMMs are those of `engine.linear_backend`."""

Operators = tuple[TokenOperator, ...]


class Parts:
    """Writes down operators of one model on one GPU. `scale` is what every weight is multiplied by."""

    def __init__(self, model: ModelSpec, sharding: Sharding, scale: float = 1.0) -> None:
        self.model = model
        self.sharding = sharding
        self.scale = scale
        self.act = bytes_per_element(model.activation_dtype)
        self.hidden = model.hidden_size

    @property
    def norm_ends_layers(self) -> bool:
        """Whether the norm before a layer's attention is in the kernel that ends what precedes it."""
        sharding = self.sharding
        return sharding.fusions.all_reduce is not None and sharding.exchange is None and sharding.peers == 1

    def dtype(self, weights: WeightFormat | None) -> str:
        """Name of a format; None is the activations'."""
        return self.model.activation_dtype if weights is None else weights.dtype

    def compute(self, weights: WeightFormat | None) -> str:
        """Format in which a GEMM on such weights computes on this GPU."""
        wide = self.model.activation_dtype
        widened = weights is None or weights.weight_only
        return self.sharding.compute_dtype(wide if widened else self.dtype(weights), wide)

    def element_bytes(self, weights: WeightFormat | None) -> float:
        """Bytes of one weight with its share of the scales."""
        return (self.act if weights is None else weights.element_bytes) * self.scale

    def linear(
        self, name: str, inputs: float, outputs: float, weights: WeightFormat | None = None, *, group: str = "linear"
    ) -> Linear:
        """A GEMM over all tokens."""
        dtype, bytes_read = self.dtype(weights), inputs * outputs * self.element_bytes(weights)
        backend = self.sharding.backend if dtype in _BACKEND_FORMATS else None
        return Linear(name, inputs, outputs, bytes_read, self.act, dtype, self.compute(weights), group, backend)

    def quantize(self, name: str, width: float, weights: WeightFormat | None) -> Operators:
        """What brings the input of a GEMM into the format that it computes in, where that is a kernel of its own:
        for fp4 always, for fp8 behind attention (elsewhere vLLM's compiler puts it into norm or activation).
        """
        compute = self.compute(weights)
        if not (compute == "nvfp4" or (compute == "fp8" and name == "out")):
            return ()
        return (Elementwise(f"{name}_quantize", width * (self.act + bytes_per_element(compute))),)

    def norm(self, name: str) -> Elementwise:
        """Residual and norm over the hidden size."""
        return Elementwise(name, 4 * self.hidden * self.act)

    def all_reduce(self, name: str) -> Operators:
        """The sum over the GPUs; nothing on one."""
        reduce = self.sharding.all_reduce
        return () if reduce is None else (Collective(name, self.hidden * self.act, reduce),)

    def reduce_and_norm(self, reduce: str, norm: str, quantize: Operators) -> Operators:
        """All-reduce, norm and quantisation of its result: one kernel, or each by itself. Where the message is too
        large for the kernel, its operator ends with a copy (vLLM 0.11, compilation/collective_fusion.py).
        """
        apart = (*self.all_reduce(reduce), self.norm(norm), *quantize)
        time, largest, _ = self.sharding.fusions
        if time is None:
            return apart
        apart = (*apart, Elementwise("copy_back", 2 * self.hidden * self.act))
        return (FusedAllReduce(f"{reduce}_and_norm", self.hidden * self.act, time, largest, apart),)

    def end_of_layer(self, quantize_next: Operators) -> Operators:
        """The sum over the GPUs that ends a layer, and the norm of the next one where one kernel does both."""
        if not self.norm_ends_layers:
            return self.all_reduce("mlp_all_reduce")
        return self.reduce_and_norm("mlp_all_reduce", "input_norm", quantize_next)
