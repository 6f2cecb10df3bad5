"""Entries of a file's lists that name no module of the model, though they look as if they should: the sign of a name
that is not known here, so of weights in a wrong format.
"""

import re
from collections.abc import Iterable, Mapping

from simserve.spec.hugging_face.quantization.listed import Listed
from simserve.spec.hugging_face.quantization.modules import Module, group_of, module

_OF_A_LAYER = re.compile(r"attn|attention|mlp|expert|ffn|feed_forward|moe|mixer|_proj", re.IGNORECASE)
_ELSEWHERE = re.compile(
    r"vision|visual|audio|image|video|tower|projector|multi_modal|mtp|embed|patch|norm|bias|conv1d|lm_head|indexer|"
    r"(gate|router|rotary_emb|sinks|compressor|A_log|dt_proj)\W*$",
    re.IGNORECASE,
)
"""What is no linear layer of the decoder, or is never quantised."""
_LAYER = re.compile(r"\b(?:layers|h)\\?\.(\d+)\b")


def nameless(lists: Mapping[str, Listed], names: Iterable[str]) -> list[str]:
    """What to say of each list some of whose entries should name one of the modules of these `names`, and do not."""
    modules = [module(name) for name in names]
    known = {part for each in modules for part in each.above}
    by_layer: dict[int | None, list[Module]] = {None: modules}
    for each in modules:
        if (layer := _layer(each.names[0])) is not None:
            by_layer.setdefault(layer, []).append(each)
    found = []
    for key, listed in lists.items():
        left = [
            entry
            for entry in listed.entries
            if known.isdisjoint((entry, group_of(entry)))
            and _should_name(entry, by_layer)
            and not listed.is_used(entry, by_layer[_layer(entry)])
        ]
        if left:
            some = ", ".join(left[:2]) + (", ..." if len(left) > 2 else "")
            found.append(
                f"{len(left)} of the {len(listed.entries)} entries of {key} name no module of the model ({some}): "
                "if they should, its weights are counted in a wrong format"
            )
    return found


def _layer(name: str) -> int | None:
    match = _LAYER.search(name)
    return None if match is None else int(match.group(1))


def _should_name(entry: str, by_layer: Mapping[int | None, object]) -> bool:
    return _layer(entry) in by_layer and bool(_OF_A_LAYER.search(entry)) and not _ELSEWHERE.search(entry)
