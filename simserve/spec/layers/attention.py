"""Attention over a KV cache: grouped queries over keys and values, or over one latent a token."""

from collections.abc import Iterator, Sequence
from typing import Literal

from simserve.spec.layers.sequence import SequenceBlock
from simserve.spec.layers.weights import Matrix, WeightFormat, linear
from simserve.spec.quantities import Count, PositiveCount
from simserve.spec.strict import Strict


class Indexer(Strict):
    """Chooses the tokens that sparse attention reads (DeepSeek-V3.2): scores of small heads over keys of its own."""

    num_heads: PositiveCount
    head_dim: PositiveCount
    topk: PositiveCount
    """Tokens chosen."""
    cache_bytes: PositiveCount
    """Bytes that it caches for one token."""


class GroupedAttention(SequenceBlock):
    """Multi-head, grouped-query or multi-query attention (Ainslie et al., 2023, arXiv 2305.13245)."""

    type: Literal["grouped"] = "grouped"
    num_heads: PositiveCount
    num_kv_heads: PositiveCount
    head_dim: PositiveCount
    v_head_dim: Count = 0
    """Elements of a value, where they are not those of a key."""
    window: PositiveCount | None = None
    """Tokens that it looks back on, itself included; null is all."""
    chunked: bool = False
    """The window is a chunk: tokens look back to the last multiple of it (Llama 4)."""
    qkv_bias: bool = False
    output_bias: bool = False
    qk_norm: Literal["none", "head", "all"] = "none"
    """Norms of queries and keys: of each head alike, or of all heads at once."""
    gate: Literal["none", "head", "element"] = "none"
    """What the output is multiplied by before its projection: a number a head, or one an element."""
    keys_are_values: bool = False
    """Keys are taken as values, too: there is no projection of values, yet both are cached."""
    shares_kv: bool = False
    """It reads keys and values of an earlier layer: it projects and caches none."""
    sinks: bool = False
    """A learned logit a head takes part in the softmax (gpt-oss)."""
    indexer: Indexer | None = None
    """It reads the blocks of tokens that this chooses (MiniMax-M3)."""
    q_lora_rank: Count = 0
    """Queries are projected through so many elements, with a norm, which every GPU holds whole, as it does keys and
    values (Step-3); 0: from the hidden size itself."""
    qkv: WeightFormat | None = None
    out: WeightFormat | None = None
    index: WeightFormat | None = None
    queries: WeightFormat | None = None

    @property
    def kind(self) -> str:
        """Name of its kind of attention (`simserve.cost.kinds`)."""
        if self.indexer is not None:
            return "sparse"
        if self.q_lora_rank:
            return "factored"
        return "full" if self.window is None else "chunked" if self.chunked else "window"

    @property
    def value_dim(self) -> int:
        """Elements of a value."""
        return self.v_head_dim or self.head_dim

    @property
    def kv_elements(self) -> int:
        """Elements that it caches for one token."""
        return 0 if self.shares_kv else self.num_kv_heads * (self.head_dim + self.value_dim)

    def kept_bytes(self, kv_dtype: str) -> float:
        """Bytes that it caches for one token as long as the sequence lasts: none behind a window."""
        return super().kept_bytes(kv_dtype) if self.window is None else 0.0

    def window_bytes(self, kv_dtype: str) -> Sequence[tuple[int, float]]:
        """Its window with the bytes of one token."""
        return () if self.window is None else ((self.window, super().kept_bytes(kv_dtype)),)

    @property
    def index_cache_bytes(self) -> float:
        """Bytes of the indexer's key of one token."""
        return 0.0 if self.indexer is None else self.indexer.cache_bytes

    @property
    def rotary_dim(self) -> int:
        """Elements of a row in the table of rotary embeddings, at most."""
        return self.head_dim

    def bare_matrices(self, hidden_size: int) -> Iterator[Matrix]:
        """Projections of queries (and of an element's gate), keys, values, gate and output."""
        heads, kv = self.num_heads, self.num_kv_heads
        queries = heads * self.head_dim * (2 if self.gate == "element" else 1)
        if self.q_lora_rank:
            yield linear("qkv", "q_proj", hidden_size, self.q_lora_rank, parts=1)
            yield linear("queries", "wq", self.q_lora_rank, queries, parts=heads)
        else:
            yield linear("qkv", "q_proj", hidden_size, queries, parts=heads)
        if not self.shares_kv:
            yield linear("qkv", "k_proj", hidden_size, kv * self.head_dim, parts=kv)
            if not self.keys_are_values:
                yield linear("qkv", "v_proj", hidden_size, kv * self.value_dim, parts=kv)
        if self.gate == "head":
            yield linear("head_gate", "g_proj", hidden_size, heads, parts=heads)
        yield linear("out", "o_proj", heads * self.value_dim, hidden_size, parts=heads)
        if self.indexer is not None:
            width = self.indexer.num_heads * self.indexer.head_dim
            yield linear("index", "index_q_proj", hidden_size, width, parts=self.indexer.num_heads)
            yield linear("index", "index_k_proj", hidden_size, self.indexer.head_dim, parts=1)

    def vectors(self, hidden_size: int) -> int:
        """Biases, norms of queries and keys, those of the indexer, too; sinks."""
        keys = 0 if self.shares_kv else self.num_kv_heads
        values = 0 if self.keys_are_values else keys
        bias = self.num_heads * self.head_dim + keys * self.head_dim + values * self.value_dim
        norms = {"none": 0, "head": 1 + (keys > 0), "all": self.num_heads + keys}[self.qk_norm] * self.head_dim
        norms += 0 if self.indexer is None else 2 * self.indexer.head_dim
        norms += self.q_lora_rank
        return bias * self.qkv_bias + hidden_size * self.output_bias + norms + self.num_heads * self.sinks


class LatentAttention(SequenceBlock):
    """Multi-head latent attention: a token caches one compressed latent in place of keys and values (DeepSeek-V2, arXiv
    2405.04434).
    """

    type: Literal["latent"] = "latent"
    num_heads: PositiveCount
    kv_lora_rank: PositiveCount
    q_lora_rank: Count = 0
    """0: queries are projected from the hidden size itself."""
    qk_nope_head_dim: PositiveCount
    qk_rope_head_dim: Count
    """0: keys carry no positions."""
    v_head_dim: PositiveCount
    bias: bool = False
    """Bias on the projections to the latents and on the output."""
    output_gate: bool = False
    """The output is multiplied by a gate of its own width (Kimi K3)."""
    head_gate: bool = False
    """The output is multiplied by a number a head (Ling 3)."""
    indexer: Indexer | None = None
    shares_index: bool = False
    """Sparse with the tokens that an earlier layer's indexer chose (GLM-5.2)."""
    latent: WeightFormat | None = None
    """Projections of queries and of keys and values to their latents, one GEMM."""
    queries: WeightFormat | None = None
    expand: WeightFormat | None = None
    """Keys and values from the latent."""
    out: WeightFormat | None = None
    index: WeightFormat | None = None

    @property
    def kind(self) -> str:
        """Name of its kind of attention (`simserve.cost.kinds`)."""
        return "sparse_latent" if self.is_sparse else "latent"

    @property
    def is_sparse(self) -> bool:
        """Whether it reads chosen tokens only."""
        return self.indexer is not None or self.shares_index

    @property
    def qk_head_dim(self) -> int:
        """Elements of a query."""
        return self.qk_nope_head_dim + self.qk_rope_head_dim

    @property
    def kv_elements(self) -> int:
        """Elements that it caches for one token, on every GPU: the latent and the positions' part of the key."""
        return self.kv_lora_rank + self.qk_rope_head_dim

    @property
    def index_cache_bytes(self) -> float:
        """Bytes that its indexer caches for one token."""
        return 0.0 if self.indexer is None else self.indexer.cache_bytes

    @property
    def rotary_dim(self) -> int:
        """Elements of a row in the table of rotary embeddings."""
        return self.qk_rope_head_dim

    def bare_matrices(self, hidden_size: int) -> Iterator[Matrix]:
        """Projections to the latents, from them to heads, and of the output."""
        heads = self.num_heads
        if self.q_lora_rank:
            yield linear("latent", "q_a_proj", hidden_size, self.q_lora_rank, parts=1)
            yield linear("queries", "q_b_proj", self.q_lora_rank, heads * self.qk_head_dim, parts=heads)
        else:
            yield linear("queries", "q_proj", hidden_size, heads * self.qk_head_dim, parts=heads)
        yield linear("latent", "kv_a_proj_with_mqa", hidden_size, self.kv_elements, parts=1)
        expanded = heads * (self.qk_nope_head_dim + self.v_head_dim)
        yield linear("expand", "kv_b_proj", self.kv_lora_rank, expanded, parts=heads)
        if self.output_gate:
            yield linear("output_gate_proj", "g_proj", hidden_size, heads * self.v_head_dim, parts=heads)
        if self.head_gate:
            yield linear("head_gate", "g_proj", hidden_size, heads, parts=heads)
        yield linear("out", "o_proj", heads * self.v_head_dim, hidden_size, parts=heads)
        if self.indexer is not None:
            width = self.indexer.num_heads * self.indexer.head_dim
            yield linear("index", "indexer.wq_b", self.q_lora_rank or hidden_size, width, parts=1)
            yield linear("index", "indexer.wk", hidden_size, self.indexer.head_dim, parts=1)
            yield linear("index_weights", "indexer.weights_proj", hidden_size, self.indexer.num_heads, parts=1)

    def vectors(self, hidden_size: int) -> int:
        """Norms of the latents, biases, and the norm (weight and bias) of the indexer's keys."""
        norms = self.q_lora_rank + self.kv_lora_rank
        bias = (self.q_lora_rank + self.kv_elements + hidden_size) * self.bias
        index = 0 if self.indexer is None else 2 * self.indexer.head_dim
        return norms + bias + index
