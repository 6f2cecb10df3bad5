"""The model that is served: its shapes, how many parameters they make, and what they weigh in a number format.

The cost model reads shapes from here, the memory ledger weights and KV bytes. Shapes come from a Hugging Face
`config.json` by way of `hf_config.py`; nothing here needs torch or transformers.
"""

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from simserve.spec.dtypes import bytes_per_element, canonical_dtype, scale_bytes_per_element
from simserve.spec.quantities import Bytes, Count, PositiveCount
from simserve.spec.strict import Strict

_canonical = BeforeValidator(canonical_dtype)
WeightDtype = Annotated[Literal["bf16", "fp16", "fp32", "fp8", "int8", "int4", "mxfp4", "nvfp4"], _canonical]
KvDtype = Annotated[Literal["bf16", "fp16", "fp32", "fp8", "int8"], _canonical]
ActivationDtype = Annotated[Literal["bf16", "fp16", "fp32"], _canonical]


class ModelSpec(Strict):
    """Shapes and number formats of a decoder-only transformer, whole: before tensor parallelism."""

    name: str
    source: str = ""
    """Where the shapes were published."""

    hidden_size: PositiveCount
    num_layers: PositiveCount
    num_heads: PositiveCount
    num_kv_heads: PositiveCount
    head_dim: PositiveCount
    intermediate_size: Count
    """Width of the dense MLP; 0 where every layer is a mixture of experts."""
    vocab_size: PositiveCount
    tie_word_embeddings: bool = False
    max_position_embeddings: PositiveCount
    attention_bias: bool = False
    """Bias on q, k and v."""
    output_bias: bool = False
    """Bias on the output projection of attention."""
    qk_norm: bool = False

    weight_dtype: WeightDtype = "bf16"
    """Format of the quantised weights; embeddings, lm_head, router and norms stay in `activation_dtype`."""
    kv_dtype: KvDtype = "bf16"
    activation_dtype: ActivationDtype = "bf16"
    quantized: Literal["linear", "experts"] = "linear"
    """Which weights `weight_dtype` covers: all linear layers, or the experts alone (gpt-oss)."""
    given_weight_bytes: Bytes | None = Field(default=None, alias="weight_bytes")
    """Weights as the user states them, in place of the sum over the shapes."""

    num_experts: Count = 0
    experts_per_token: Count = 0
    moe_intermediate_size: Count = 0
    expert_bias: bool = False
    num_shared_experts: Count = 0
    shared_intermediate_size: Count = 0
    """Width of one shared expert."""
    num_dense_layers: Count = 0
    """Layers with a dense MLP among those of a mixture (`first_k_dense_replace`)."""

    kv_lora_rank: Count = 0
    q_lora_rank: Count = 0
    qk_nope_head_dim: Count = 0
    qk_rope_head_dim: Count = 0
    v_head_dim: Count = 0

    sliding_window: PositiveCount | None = None
    """Tokens that a window layer looks back on."""
    num_window_layers: Count = 0

    @property
    def is_moe(self) -> bool:
        """Whether layers route tokens to experts."""
        return self.num_experts > 0

    @property
    def is_mla(self) -> bool:
        """Whether a token caches one compressed latent in place of keys and values (DeepSeek-V2, arXiv 2405.04434)."""
        return self.kv_lora_rank > 0

    @property
    def num_moe_layers(self) -> int:
        """Layers whose MLP is a mixture of experts."""
        return self.num_layers - self.num_dense_layers if self.is_moe else 0

    @property
    def num_dense_mlp_layers(self) -> int:
        """Layers whose MLP is dense."""
        return self.num_layers - self.num_moe_layers

    @property
    def num_full_layers(self) -> int:
        """Layers whose attention reaches back to the first token."""
        return self.num_layers - sum(self.other_layers.values())

    @property
    def other_layers(self) -> dict[str, int]:
        """Layers with another attention than that to all tokens, by their kind (`simserve.cost.kinds`)."""
        return {"window": self.num_window_layers} if self.num_window_layers else {}

    @property
    def attention_layers(self) -> dict[str, int]:
        """Layers of each kind of attention that the model has."""
        full = {"full": self.num_full_layers} if self.num_full_layers else {}
        return full | self.other_layers

    @property
    def embedding_parameters(self) -> int:
        """Parameters of the token embedding; a tied lm_head is this same matrix."""
        return self.vocab_size * self.hidden_size

    @property
    def lm_head_parameters(self) -> int:
        """Parameters of the output projection; 0 where it is tied."""
        return 0 if self.tie_word_embeddings else self.vocab_size * self.hidden_size

    @property
    def attention_parameters(self) -> int:
        """Parameters of the projections of one attention layer, biases and their norms included."""
        return self._mla_parameters if self.is_mla else self._gqa_parameters

    @property
    def _gqa_parameters(self) -> int:
        q_dim, kv_dim = self.num_heads * self.head_dim, self.num_kv_heads * self.head_dim
        weights = self.hidden_size * (2 * q_dim + 2 * kv_dim)
        biases = (q_dim + 2 * kv_dim) * self.attention_bias + self.hidden_size * self.output_bias
        return weights + biases + 2 * self.head_dim * self.qk_norm

    @property
    def _mla_parameters(self) -> int:
        qk_dim = self.num_heads * (self.qk_nope_head_dim + self.qk_rope_head_dim)
        # Without a low rank the query projects from the hidden size itself; with it there is a norm in between.
        rank = self.q_lora_rank
        query = rank * (self.hidden_size + qk_dim + 1) if rank else self.hidden_size * qk_dim
        latent = self.hidden_size * (self.kv_lora_rank + self.qk_rope_head_dim) + self.kv_lora_rank
        expand = self.kv_lora_rank * self.num_heads * (self.qk_nope_head_dim + self.v_head_dim)
        return query + latent + expand + self.num_heads * self.v_head_dim * self.hidden_size

    @property
    def mlp_parameters(self) -> int:
        """Parameters of one dense gated MLP (gate, up and down)."""
        return 3 * self.hidden_size * self.intermediate_size

    @property
    def expert_parameters(self) -> int:
        """Parameters of one routed expert."""
        bias = (2 * self.moe_intermediate_size + self.hidden_size) * self.expert_bias
        return 3 * self.hidden_size * self.moe_intermediate_size + bias

    @property
    def shared_expert_parameters(self) -> int:
        """Parameters of the experts every token passes, of one layer."""
        return 3 * self.hidden_size * self.shared_intermediate_size * self.num_shared_experts

    @property
    def router_parameters(self) -> int:
        """Parameters of the router of one layer."""
        return self.hidden_size * self.num_experts

    @property
    def norm_parameters(self) -> int:
        """Parameters of all norms over the hidden size: two a layer and the last one."""
        return (2 * self.num_layers + 1) * self.hidden_size

    @property
    def num_parameters(self) -> int:
        """All parameters, tied matrices counted once."""
        return self._parameters(experts=self.num_experts)

    @property
    def num_active_parameters(self) -> int:
        """Parameters that one token passes: of the experts, only the routed ones."""
        return self._parameters(experts=self.experts_per_token)

    def _parameters(self, experts: int) -> int:
        return (
            self.embedding_parameters
            + self.lm_head_parameters
            + self.norm_parameters
            + self.num_layers * self.attention_parameters
            + self.num_dense_mlp_layers * self.mlp_parameters
            + self.num_moe_layers
            * (experts * self.expert_parameters + self.shared_expert_parameters + self.router_parameters)
        )

    @property
    def quantized_parameters(self) -> int:
        """Parameters stored in `weight_dtype`."""
        experts = self.num_moe_layers * self.num_experts * self.expert_parameters
        if self.quantized == "experts":
            return experts
        return (
            experts
            + self.num_layers * self.attention_parameters
            + self.num_dense_mlp_layers * self.mlp_parameters
            + self.num_moe_layers * self.shared_expert_parameters
        )

    @property
    def weight_bytes(self) -> float:
        """Bytes of all weights of the model, scales included; what the user stated, if so."""
        if self.given_weight_bytes is not None:
            return self.given_weight_bytes
        quantized = bytes_per_element(self.weight_dtype) + scale_bytes_per_element(self.weight_dtype)
        rest = self.num_parameters - self.quantized_parameters
        return self.quantized_parameters * quantized + rest * bytes_per_element(self.activation_dtype)

    @property
    def kv_elements_per_token_per_layer(self) -> int:
        """Elements that one layer caches for one token: keys and values, or the latent of MLA."""
        if self.is_mla:
            return self.kv_lora_rank + self.qk_rope_head_dim
        return 2 * self.num_kv_heads * self.head_dim

    @property
    def kv_bytes_per_token(self) -> float:
        """Bytes of KV cache of one token in all layers."""
        return self.num_layers * self.kv_elements_per_token_per_layer * bytes_per_element(self.kv_dtype)
