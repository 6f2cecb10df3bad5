"""Chunked attention (Llama 4): every token looks back to the beginning of its chunk."""

from simserve.cost.attention import Attention
from simserve.cost.device import Device
from simserve.cost.held import WHOLE, Held
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

    def held(self, attention: GroupedAttention) -> Held:  # noqa: ARG002
        """All tokens: vLLM 0.32 turns its hybrid KV cache manager off for such models unless it is told otherwise
        (VLLM_ALLOW_CHUNKED_LOCAL_ATTN_WITH_HYBRID_KV_CACHE, config/vllm.py), since it slows them down.
        """
        return WHOLE

    def unmeasured(self, attention: GroupedAttention, model: ModelSpec, tables: Tables) -> str | None:  # noqa: ARG002
        """A format of KV."""
        return unmeasured_over_kv(model, tables)
