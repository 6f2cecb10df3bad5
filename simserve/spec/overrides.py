"""What was measured on a GPU and does not hold for one that is based on it and differs in what was measured.

`{base: h100-sxm-80gb, interconnect: {bandwidth: 1 GB/s}}` has no all-reduce of an H100, nor has `{architecture: sm_80}`
its kernels. What falls away leaves the model of the data sheet behind, and `sources` says so; what the change itself
states stays. Times of kernels and shares of the roofline are read for the new rates instead: see
`simserve.cost.tables.Rates` and `EfficiencySpec.measured_at`.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from pydantic import ValidationError

from simserve.spec.hardware import GpuSpec, RatesSpec

_IN_TABLES = (
    "hbm_gemm",
    "gemm_mfu",
    "gemm_floor",
    "hbm_decode_attention",
    "decode_attention_floor",
    "decode_attention_per_head",
    "prefill_attention_mfu",
    "prefill_attention_floor",
)
"""Efficiencies that a table outweighs: who states one of them wants it to hold."""


class _Rule(NamedTuple):
    """Numbers of `section` (the profile itself where it is empty) under `keys`, whole or by their `entries`, which hold
    for what `what` names.
    """

    section: str
    keys: tuple[str, ...]
    of: Callable[[GpuSpec], object]
    what: str
    entries: bool = False


def _links(gpu: GpuSpec) -> object:
    return gpu.interconnect.kind, gpu.interconnect.bandwidth


def _rates(gpu: GpuSpec) -> object:
    return gpu.hbm_bandwidth, gpu.peak_flops


def _kernels(gpu: GpuSpec) -> object:
    efficiency = gpu.efficiency.model_dump(include=set(_IN_TABLES))
    return gpu.architecture, gpu.num_sms, efficiency


def _device(gpu: GpuSpec) -> object:
    host = gpu.host.per_step, gpu.host.per_sequence, gpu.host.update
    return _rates(gpu), gpu.l2_bytes, gpu.architecture, gpu.num_sms, gpu.efficiency, gpu.launch, host


_RULES = (
    _Rule("interconnect", ("all_reduce", "one_shot"), _links, "kind and bandwidth of the interconnect", entries=True),
    _Rule("", ("expert_kernels",), _rates, "bandwidth and peaks", entries=True),
    _Rule("", ("tables",), _kernels, "architecture, multiprocessors and efficiencies"),
    _Rule("", ("calibrated",), _device, "rates, efficiencies, launches and host"),
)


def consistent(base: GpuSpec, changed: dict[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Fields `changed`, which are those of `base` under `changes`, without measurements that the changes contradict; as
    they are where that is no GPU.

    What the changes state themselves stays, were it the same number.
    """
    old = base.model_dump()
    try:
        gpu = GpuSpec.model_validate(_without_reductions(changed))
    except ValidationError:
        return changed
    fields: dict[str, Any] = {**changed, "efficiency": _efficiency(old, changed["efficiency"], base, gpu)}
    said = {name: words for name, words in gpu.sources.items() if name != "tables" or gpu.tables is not None}
    for rule in _RULES:
        if rule.of(base) == rule.of(gpu):
            continue
        before, after = (each[rule.section] if rule.section else each for each in (old, fields))
        if rule.entries:
            kept = {key: _not_inherited(before[key], after[key]) for key in rule.keys}
        else:
            kept = {key: None if after[key] == before[key] and key not in changes else after[key] for key in rule.keys}
        if gone := [key for key in rule.keys if kept[key] != after[key]]:
            fields = {**fields, rule.section: {**after, **kept}} if rule.section else {**fields, **kept}
            said |= dict(_source(rule, gone, base, changes))
    return {**fields, "sources": said}


def _without_reductions(fields: dict[str, Any]) -> dict[str, Any]:
    """Fields of a GPU whose links are taken at their word, whatever was measured over others."""
    links = fields["interconnect"]
    if not isinstance(links, Mapping):
        return fields
    return {**fields, "interconnect": {**links, "all_reduce": {}, "one_shot": {}}}


def _not_inherited(before: Mapping[Any, Any], after: Any) -> Any:
    """What remains of a mapping without the entries of the base; null as it is."""
    return {key: item for key, item in after.items() if item != before.get(key)} if after else after


def _source(rule: _Rule, gone: list[str], base: GpuSpec, changes: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """What `sources` says of keys that fell away, unless the changes have words of their own for them."""
    stated, name = changes.get("sources"), rule.section or gone[0]
    if not (isinstance(stated, Mapping) and name in stated):
        yield name, f"{' and '.join(gone)} of {base.name} left out, measured with other {rule.what}"


def _efficiency(old: Mapping[str, Any], efficiency: Any, base: GpuSpec, gpu: GpuSpec) -> Any:
    """Efficiencies with the rates of the card on which the inherited shares of the peaks were measured."""
    before = old["efficiency"]
    if efficiency["measured_at"] != before["measured_at"]:
        return efficiency  # stated by the changes
    inherited = [name for name, table in efficiency["gemm_mfu"].items() if before["gemm_mfu"].get(name) == table]
    measured = base.efficiency.measured_at or RatesSpec(hbm_bandwidth=base.hbm_bandwidth, peak_flops=base.peak_flops)
    peaks = {name: measured.peak_flops[name] for name in inherited if name in measured.peak_flops}
    own = {name: gpu.peak_flops.get(name) for name in peaks}
    is_same = (measured.hbm_bandwidth, peaks) == (gpu.hbm_bandwidth, own)
    at = None if is_same or not peaks else {"hbm_bandwidth": measured.hbm_bandwidth, "peak_flops": peaks}
    return {**efficiency, "measured_at": at}
