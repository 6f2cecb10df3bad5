"""Pipeline parallelism: which layers are on which stage, and what is left of the forward pass there."""

from itertools import groupby
from typing import NamedTuple

from simserve.cost.collectives import CollectiveTime
from simserve.cost.curve import LinearCurve
from simserve.cost.operators import Collective
from simserve.cost.shape import ForwardShape
from simserve.spec.dtypes import bytes_per_element
from simserve.spec.hardware import GpuSpec
from simserve.spec.model import ModelSpec


def layers_of_stages(num_layers: int, stages: int) -> list[range]:
    """Layers of each stage: equal parts, and what is left over one by one to the stages before the last, which has the
    head to compute, from the back (vLLM 0.32, distributed/utils.py, get_pp_indices).
    """
    size, left = divmod(num_layers, stages)
    sizes = [size + (stages - 2 - stage < left) * (stage < stages - 1) for stage in range(stages)]
    starts = [sum(sizes[:stage]) for stage in range(stages)]
    return [range(start, start + size) for start, size in zip(starts, sizes, strict=True)]


def model_of_stage(model: ModelSpec, stages: int, stage: int) -> ModelSpec:
    """The model as if it had the layers of one stage only, embedding and head still with it."""
    layers = layers_of_stages(model.num_layers, stages)[stage]
    return model.with_layers(tuple(model.each_layer())[layers.start : layers.stop])


def unheld_parameters(model: ModelSpec, stages: int, stage: int) -> int:
    """Parameters of embedding and head that `model_of_stage` counts and the stage does not hold. A tied head is a copy
    of the embedding on the last stage.
    """
    held = (stage == 0 or (stage == stages - 1 and model.tie_word_embeddings)) * model.embedding_parameters
    held += (stage == stages - 1) * model.lm_head_parameters
    return model.embedding_parameters + model.lm_head_parameters - held


class Hop(NamedTuple):
    """What a stage hands to the next: bytes a token from each of its GPUs, and the time of a message."""

    bytes_per_token: float
    time: CollectiveTime

    @classmethod
    def of(cls, model: ModelSpec, gpu: GpuSpec, ranks: int) -> "Hop":
        """Hidden state and residual, cut over the `ranks` GPUs of a stage (vLLM 0.32, IntermediateTensors of llama.py,
        send_tensor_dict). A message takes the latency of the shortest collective, then the link's bandwidth.
        """
        links = gpu.interconnect
        shortest = min([spec.floor for spec in links.all_reduce.values()], default=gpu.efficiency.kernel_floor)
        time = CollectiveTime(LinearCurve((1.0,), (shortest,)), links.bandwidth, 1.0)
        return cls(2 * model.hidden_size * bytes_per_element(model.activation_dtype) / ranks, time)


def shape_of_stage(shape: ForwardShape, stages: int, stage: int, hop: Hop) -> ForwardShape:
    """The operators of one stage out of all of them; every stage but the last ends with a hop."""
    every = tuple(shape.each_layer())
    layers = layers_of_stages(len(every), stages)[stage]
    kept = every[layers.start : layers.stop]
    groups = tuple((len(list(same)), (layer,)) for layer, same in groupby(kept))
    embed = shape.embed if stage == 0 else ()
    if stage == stages - 1:
        return ForwardShape(embed, groups, shape.norm, shape.head)
    send = Collective("pipeline_send", hop.bytes_per_token, hop.time)
    return ForwardShape(embed, groups, (send,), ())
