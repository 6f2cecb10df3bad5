"""Window attention: every token looks back on at most so many tokens."""

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


class WindowAttention:
    """An `AttentionKind`."""

    name = "window"

    def work(self, attention: GroupedAttention, model: ModelSpec, sharding: Sharding) -> Attention:
        """A layer that reads the KV of the tokens in its window."""
        return attention_over_kv(attention, model, sharding)._replace(window=attention.window, kind=self.name)

    def time(self, work: Attention, device: Device) -> LayerTime:
        """Its time, as measured inside a model where the device has that."""
        return attention_time(work, device)

    def held(self, attention: GroupedAttention) -> Held:
        """The window, and what is in flight."""
        assert attention.window is not None
        return HeldWindow(attention.window)

    def unmeasured(self, attention: GroupedAttention, model: ModelSpec, tables: Tables) -> str | None:  # noqa: ARG002
        """A format of KV."""
        return unmeasured_over_kv(model, tables)


@dataclass(frozen=True)
class HeldWindow:
    """`Held` by a layer that forgets what has left its window."""

    window: int

    def blocks(self, tokens: int, block_size: int, in_flight: int) -> int:
        """Blocks of the window and of the tokens under way, which may begin inside a block."""
        return ceil(min(self.window - 1 + in_flight, tokens) / block_size) + 1

    def sent_blocks(self, tokens: int, block_size: int, cached_blocks: int) -> int:
        """Blocks that the next token looks at, without those that are there (vLLM 0.32,
        distributed/kv_transfer/kv_connector/v1/nixl).
        """
        first = max(0, tokens - self.window + 1) // block_size
        return max(0, ceil(tokens / block_size) - max(cached_blocks, first))
