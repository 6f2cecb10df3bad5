"""Weight matrices: their sizes, the format that each is stored in, and over how many GPUs one can be cut."""

from typing import Annotated, Any, Literal, NamedTuple

from pydantic import BeforeValidator, Field, model_validator

from simserve.spec.dtypes import bytes_per_element, canonical_dtype, scale_bytes_per_element
from simserve.spec.quantities import Number
from simserve.spec.strict import Strict

WeightDtype = Annotated[
    Literal["bf16", "fp16", "fp32", "fp8", "int8", "int4", "mxfp4", "nvfp4"], BeforeValidator(canonical_dtype)
]

ANY = 2**30
"""Parts of a matrix that can be cut over any number of GPUs."""


class WeightFormat(Strict):
    """How the weights of one GEMM are stored. A format written as text is that `dtype` with its usual scales."""

    dtype: WeightDtype
    scale_bytes: Annotated[Number, Field(ge=0)] = 0.0
    """Bytes of scales and zero points for each weight: 2.5 / 128 is an fp16 scale and a 4-bit zero point for 128."""
    output_bytes: Annotated[Number, Field(ge=0)] = 0.0
    """Bytes of scales and zero points for each output, where one serves a whole channel."""
    input_bytes: Annotated[Number, Field(ge=0)] = 0.0
    """Bytes for each input: which group it belongs to, where GPTQ keeps a table of that (`g_idx`)."""
    weight_only: bool = False
    """Activations stay in 16 bit, also where the GPU computes in this format (w8a16)."""

    @model_validator(mode="before")
    @classmethod
    def _usual(cls, data: Any) -> Any:
        if isinstance(data, str):
            data = {"dtype": data}
        if isinstance(data, dict) and data.get("scale_bytes") is None:
            dtype = canonical_dtype(data.get("dtype"))
            data = {**data, "scale_bytes": scale_bytes_per_element(dtype) if isinstance(dtype, str) else 0.0}
        return data

    @property
    def element_bytes(self) -> float:
        """Bytes of one weight with its share of the scales, those of whole channels left out (< 0.5 %)."""
        return bytes_per_element(self.dtype) + self.scale_bytes

    def bytes_each(self, inputs: int, outputs: int) -> float:
        """Bytes of one weight of a matrix of this size, with its share of all that stands beside the weights."""
        return self.element_bytes + self.output_bytes / inputs + self.input_bytes / outputs


class Matrix(NamedTuple):
    """A weight matrix of one layer, or `copies` alike.

    `gemm`: the operator that reads it, which is the name of the field that says its format; `name`: its module in the
    checkpoint, after those of layer and block. `format` None is the model's `activation_dtype`. `parts`: most GPUs that
    it can be cut over; on more it is copied, and 1 is whole on each.
    """

    gemm: str
    name: str
    inputs: int
    outputs: int
    format: WeightFormat | None = None
    parts: int = ANY
    copies: int = 1

    @property
    def elements(self) -> int:
        """Weights in all."""
        return self.inputs * self.outputs * self.copies

    def bytes(self, activation_dtype: str, ranks: int = 1) -> float:
        """Bytes on one of `ranks` GPUs, scales included."""
        plain = bytes_per_element(activation_dtype)
        element = plain if self.format is None else self.format.bytes_each(self.inputs, self.outputs)
        return self.elements * element / min(ranks, self.parts)


def linear(gemm: str, name: str, inputs: int, outputs: int, *, parts: int = ANY) -> Matrix:
    """A matrix in no format yet."""
    return Matrix(gemm, name, inputs, outputs, None, parts)
