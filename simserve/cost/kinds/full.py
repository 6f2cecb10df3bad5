"""Full attention: every token looks back to the first one."""

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


class FullAttention:
    """An `AttentionKind`."""

    name = "full"

    def work(self, attention: GroupedAttention, model: ModelSpec, sharding: Sharding) -> Attention:
        """A layer that reads the KV of all tokens."""
        return attention_over_kv(attention, model, sharding)

    def time(self, work: Attention, device: Device) -> LayerTime:
        """Its time, as measured inside a model where the device has that."""
        return attention_time(work, device)

    def held(self, attention: GroupedAttention) -> Held:  # noqa: ARG002
        """All tokens."""
        return WHOLE

    def unmeasured(self, attention: GroupedAttention, model: ModelSpec, tables: Tables) -> str | None:  # noqa: ARG002
        """A format of KV."""
        return unmeasured_over_kv(model, tables)
