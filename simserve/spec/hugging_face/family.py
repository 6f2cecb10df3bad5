"""What a family of models is: its names in a configuration, and how its keys become layers."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from simserve.spec.hugging_face.keys import Keys
from simserve.spec.layers.layer import LayerSpec
from simserve.spec.layers.weights import Matrix


class Modules(NamedTuple):
    """How a checkpoint names the modules of a layer, for the lists of what is not quantised."""

    layers: str = "model.layers"
    attention: str = "self_attn"
    mlp: str = "mlp"
    renamed: dict[str, str] = {}  # noqa: RUF012
    """Our name of a matrix -> that of the checkpoint, where they differ; one that ends in `.` is a beginning. What
    begins with `.` stands in the layer itself, outside the block.
    """

    def name(self, layer: int, block: str, matrix: Matrix) -> str:
        """Whole name of a matrix of the `attention` or the `mlp` of a layer."""
        own = matrix.name
        for ours, theirs in self.renamed.items():
            if own == ours or (ours.endswith(".") and own.startswith(ours)):
                own = theirs + own.removeprefix(ours)
                break
        inside = own if own.startswith(".") else f".{getattr(self, block)}.{own}"
        return f"{self.layers}.{layer}{inside}"


class Decoder(NamedTuple):
    """The language model of a configuration, in no number format yet.

    `layers`: all of them in order; `tied`: whether the output projection is the embedding; `max_positions`: positions
    that the file states; `drafting_layers`: layers beside `layers` that propose drafts (MTP).
    """

    hidden_size: int
    vocab_size: int
    layers: Sequence[LayerSpec]
    tied: bool
    max_positions: int
    drafting_layers: int = 0
    extra_parameters: dict[str, int] = {}  # noqa: RUF012
    learned_positions: int = 0
    modules: Modules = Modules()
    left_out: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    last_norm: bool = True
    """Whether the norm behind the layers has weights."""


class Family(NamedTuple):
    """A family of decoders. `read` turns the keys of the language model into it; `model_types` and `architectures` are
    the names under which configurations go; `harmless` are keys that change nothing that is computed.
    """

    name: str
    model_types: tuple[str, ...]
    architectures: tuple[str, ...]
    read: Callable[[Keys], Decoder]
    harmless: tuple[str, ...] = ()


class Tower(NamedTuple):
    """What turns pictures or sound into tokens, beside a decoder, its projector included.

    `section`: where its keys are, as a path; `parameters` counts its weights from its keys, those around them and the
    decoder's hidden size; None, and so where there is no such function, is: not counted, which every result then says.
    `why` says it, too. `optional`: the class has no such tower where the file has not its section.
    """

    name: str
    section: tuple[str, ...]
    parameters: Callable[[Keys, Keys, int], int | None] | None = None
    why: str = ""
    optional: bool = False


class Wrapper(NamedTuple):
    """A multimodal model around a decoder. `text`: where the decoder's keys are, as a path of sections; `family`: its
    family where its keys do not say (old files have them all at the top), or say one of `text_types`; `towers`: what is
    beside it; `tied`: what the wrapper takes where neither it nor its decoder says anything of tying, None where that
    is the decoder's to say.
    """

    name: str
    model_types: tuple[str, ...]
    architectures: tuple[str, ...]
    towers: tuple[Tower, ...]
    text: tuple[str, ...] = ("text_config",)
    family: str = ""
    text_types: tuple[str, ...] = ()
    tied: bool | None = None
    class_ties: bool = False
    """Its class ties where the file says nothing, yet published checkpoints have a head: it is counted, and said."""
    harmless: tuple[str, ...] = ()
    defaults: Mapping[str, Mapping[str, Any]] = {}
    """What classes take for the decoder's keys that the file lacks, by the decoder's `model_type`."""
