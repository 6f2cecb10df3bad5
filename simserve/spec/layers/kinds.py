"""Kinds of layers by what mixes their tokens: which of them a run can use, and what the others are called."""

from collections.abc import Iterable

SIMULATED = frozenset({"full", "latent", "window", "chunked"})
"""Kinds that `simserve.cost.kinds` costs."""

KEEP_ALL = frozenset({"full", "latent", "chunked", "factored", "sparse", "sparse_latent"})
"""Kinds that keep all tokens of a request in the KV cache (chunked ones, too, as vLLM serves them by default)."""

_NAMES = {
    "factored": "layers whose queries pass a size of their own (Step-3)",
    "sparse": "sparse attention layers",
    "sparse_latent": "sparse latent attention layers",
    "compressed": "compressed attention layers",
    "gated_delta_net": "gated delta-net layers",
    "kimi_delta": "Kimi delta attention layers",
    "lightning": "lightning attention layers",
    "mamba1": "Mamba layers",
    "mamba2": "Mamba-2 layers",
    "parallel": "layers of attention beside Mamba-2",
    "shared_transformer": "shared transformer layers beside Mamba-2",
    "short_conv": "short convolution layers",
    "gated_linear_recurrence": "gated linear recurrence layers",
}


def not_simulated(kinds: Iterable[str]) -> str | None:
    """Why no run can use a model with layers of such kinds, in words; None where one can."""
    others = [_NAMES.get(kind, f"{kind} layers") for kind in dict.fromkeys(kinds) if kind not in SIMULATED]
    return f"{' and '.join(others)} are not simulated yet" if others else None
