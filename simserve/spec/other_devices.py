"""Accelerators that engines run on and simserve does not model: what people call them, and who makes them.

Their compilers build other graphs of other kernels, none of which was measured here; a GPU of the same bandwidth under
their name would be a number without a ground.
"""

from collections.abc import Mapping

_MAKERS: Mapping[str, tuple[str, ...]] = {
    "a TPU of Google": (
        "tpu",
        "v2",
        "v3",
        "v4",
        "v5e",
        "v5p",
        "v5litepod",
        "v6",
        "v6e",
        "trillium",
        "tpu7x",
        "ironwood",
    ),
    "a Gaudi of Intel": ("gaudi", "gaudi2", "gaudi3", "hl225", "hpu", "habana"),
    "an accelerator of AWS": (
        "trainium",
        "trainium2",
        "trainium3",
        "trn1",
        "trn2",
        "trn3",
        "inferentia",
        "inf1",
        "inf2",
    ),
    "an Ascend of Huawei": ("ascend", "910a", "910b", "910c", "atlas"),
    "a chip of Apple": ("apple", "mps", "m1", "m2", "m3", "m4", "m5"),
    "a GPU of Intel": ("intel", "arc", "b580", "b60", "xpu", "ponte"),
    "a GPU of Qualcomm, Moore Threads or others": ("qualcomm", "adreno", "musa", "mlu", "cambricon", "kunlun"),
    "an accelerator of a make of its own": ("cerebras", "groq", "lpu", "sambanova", "tenstorrent", "wormhole"),
    "a CPU": ("cpu", "xeon", "epyc"),
}


def other_device(words: frozenset[str]) -> str | None:
    """What a name of these words, all lower case, means if not a GPU of NVIDIA or AMD; None where it may be one."""
    return next((maker for maker, known in _MAKERS.items() if words & set(known)), None)
