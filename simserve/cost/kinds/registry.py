"""The list of all kinds of attention: a further kind is one more line here."""

from simserve.cost.kinds.chunked import ChunkedAttention
from simserve.cost.kinds.full import FullAttention
from simserve.cost.kinds.kind import AttentionKind
from simserve.cost.kinds.latent import LatentKind
from simserve.cost.kinds.window import WindowAttention

KINDS: dict[str, AttentionKind] = {
    kind.name: kind for kind in (FullAttention(), LatentKind(), WindowAttention(), ChunkedAttention())
}
"""Kinds by the names that `attention.kind` of a layer has."""
