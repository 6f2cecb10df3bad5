"""Attention over latents (MLA): every token looks back to the first one, over one compressed latent for all heads."""

from simserve.cost.attention import Attention
from simserve.cost.device import Device
from simserve.cost.held import WHOLE, Held
from simserve.cost.layer_time import LayerTime
from simserve.cost.mixed_attention import attention_time
from simserve.cost.sharding import Sharding
from simserve.cost.tables import Tables
from simserve.spec.dtypes import bytes_per_element
from simserve.spec.layers.attention import LatentAttention
from simserve.spec.model import ModelSpec


class LatentKind:
    """An `AttentionKind`."""

    name = "latent"

    def work(self, attention: LatentAttention, model: ModelSpec, sharding: Sharding) -> Attention:
        """A layer that reads the latents of all tokens: expanded to keys and values for a prompt, as they are for a
        decode, whose queries are brought to their size (DeepSeek-V2, arXiv 2405.04434, section 2.1.2). Every GPU holds
        all latents.
        """
        heads = attention.num_heads / sharding.ranks
        kv_bytes = attention.kv_elements * bytes_per_element(model.kv_dtype)
        dtype = sharding.compute_dtype(model.activation_dtype, model.activation_dtype)
        latent, value = attention.kv_lora_rank, attention.v_head_dim
        pair = 2 * heads * (attention.qk_head_dim + value)
        decode = 2 * heads * (2 * latent + attention.qk_rope_head_dim)
        history = 2 * latent * heads * (attention.qk_nope_head_dim + value)
        return Attention(heads, kv_bytes, pair, decode, history, None, dtype, kind=self.name)

    def time(self, work: Attention, device: Device) -> LayerTime:
        """Its time by the rates of the device."""
        return attention_time(work, device)

    def held(self, attention: LatentAttention) -> Held:  # noqa: ARG002
        """All tokens."""
        return WHOLE

    def unmeasured(self, attention: LatentAttention, model: ModelSpec, tables: Tables) -> str:  # noqa: ARG002
        """All of it."""
        return "attention over latents"
