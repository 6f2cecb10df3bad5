"""Chunked attention (Llama 4): every token looks back to the beginning of its chunk."""

from dataclasses import dataclass
from math import ceil

from simserve.cost.attention import Attention
from simserve.cost.device import Device
from simserve.cost.held import Held
from simserve.cost.kinds.over_kv import attention_over_kv, unmeasured_over_kv
from simserve.cost.layer_time import LayerTime
from simserve.cost.mixed_attention import attention_time
from simserve.cost.sharding import Sharding
from simserve.cost.tables import Tables
from simserve.spec.layers.attention import GroupedAttention
from simserve.spec.model import ModelSpec


class ChunkedAttention:
    """An `AttentionKind`. What a token reads depends on its place in the chunk, which the cost of a step does not know:
    past the first chunk a token is taken to read a whole one, where on average it reads half (said in `warnings` of
    such a model).
    """

    name = "chunked"

    def work(self, attention: GroupedAttention, model: ModelSpec, sharding: Sharding) -> Attention:
        """A layer that reads the KV of at most a chunk."""
        return attention_over_kv(attention, model, sharding)._replace(window=attention.window, kind=self.name)

    def time(self, work: Attention, device: Device) -> LayerTime:
        """Its time, as measured inside a model where the device has that."""
        return attention_time(work, device)

    def held(self, attention: GroupedAttention) -> Held:
        """The chunk, and what is in flight."""
        assert attention.window is not None
        return HeldChunk(attention.window)

    def unmeasured(self, attention: GroupedAttention, model: ModelSpec, tables: Tables) -> str | None:  # noqa: ARG002
        """A format of KV."""
        return unmeasured_over_kv(model, tables)


@dataclass(frozen=True)
class HeldChunk:
    """`Held` by a layer that forgets the chunks before the last one."""

    chunk: int

    def blocks(self, tokens: int, block_size: int, in_flight: int) -> int:
        """Blocks of a chunk and of the tokens under way (vLLM 0.32, v1/kv_cache_interface.py,
        ChunkedLocalAttentionSpec).
        """
        return ceil(min(self.chunk + in_flight, tokens) / block_size)

    def sent_blocks(self, tokens: int, block_size: int, cached_blocks: int) -> int:
        """Blocks of the chunk that the next token is in, without those that are there."""
        first = tokens // self.chunk * self.chunk // block_size
        return max(0, ceil(tokens / block_size) - max(cached_blocks, first))
