"""Turns a fit into `profile.yaml`: a hardware profile with a `calibrated` section, to be a scenario's GPU."""

import hashlib
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from calibration.engine.runner import ModelRunner
from calibration.fit import Fitted
from calibration.launches import Launches
from calibration.machine import machine, memory_bytes, software
from calibration.measure import HostTimes, Measured
from calibration.points import Point
from simserve.spec.calibrated import CalibratedSpec
from simserve.spec.hardware import GpuSpec, LaunchSpec

PROFILE, SAMPLES = "profile.yaml", "samples.csv"


class Findings(NamedTuple):
    """All that a calibration measured."""

    points: Sequence[Point]
    passes: int
    measured: Measured
    fitted: Fitted
    host: Sequence[HostTimes]
    launches: Launches
    graph_sizes: Sequence[int]
    copy_bandwidth: float
    gemm_peak: float


def calibrated_section(runner: ModelRunner, findings: Findings, samples: Path) -> dict[str, Any]:
    """The section as plain data, in SI units."""
    fitted, measured, points = findings.fitted, findings.measured, findings.points
    fit, model = fitted.fit, runner.model
    per_step, per_sequence = _line([(each.num_seqs, each.host) for each in findings.host])
    zero, zero_sequence = _line([(each.num_seqs, each.device) for each in findings.host])
    graphs = [each.graph_device for each in findings.host if each.graph_device is not None]
    cuda = runner.device.type == "cuda"
    return {
        "model": model.name,
        "num_parameters": model.num_parameters,
        "num_layers": model.num_layers,
        "hidden_size": model.hidden_size,
        "weight_dtype": runner.dtype,
        "block_size": runner.scheduler_config.block_size,
        "device": runner.device.type,
        "backend": runner.backend,
        "clock": "cuda_events" if cuda else "thread_cpu",
        "form": fit.form,
        "tokens": _seconds(fit.tokens),
        "graph_sizes": list(findings.graph_sizes) if fit.graph_tokens else [],
        "graph_tokens": _seconds(fit.graph_tokens) or None,
        "coefficients": _seconds(fit.coefficients.model_dump()),
        "host": _seconds({"per_step": per_step, "per_sequence": per_sequence}),
        "domain": {
            "tokens": max(point.tokens for point in points),
            "decodes": max(len(point.decodes) for point in points),
            "context": max(sum(point.decodes) for point in points),
            "chunk_pairs": max(sum(new * (new + old) for new, old in point.chunks) for point in points),
        },
        "quality": {
            "noise_floor": round(fitted.noise_floor, 5),
            "held_out": fitted.errors.model_dump(),
            "residuals": {kind: errors.model_dump() for kind, errors in fitted.residuals.items()},
            "candidates": {form: errors.model_dump() for form, errors in fitted.candidates.items()},
            "points": len(points),
            "passes": findings.passes,
            "probe_drift": round(measured.probe_drift, 4),
            "wall_over_cpu": round(measured.wall_over_cpu, 3),
        },
        "overheads": _seconds({"zero_work_step": zero, "zero_work_sequence": zero_sequence})
        | {"zero_work_graph": f"{statistics.median(graphs):.4g} s" if graphs else None}
        | {"zero_work_operators": findings.launches.operators},
        "roofs": {
            "copy_bandwidth": f"{findings.copy_bandwidth / 1e9:.4g} GB/s",
            "gemm_peak": f"{findings.gemm_peak / 1e12:.4g} TFLOP/s",
        },
        "machine": machine(runner.device),
        "software": software(),
        "samples": hashlib.sha256(samples.read_bytes()).hexdigest(),
    }


def launch_section(launches: Launches) -> tuple[dict[str, Any], str]:
    """`launch` of a profile as plain data, and the source of its numbers in words."""
    kernel, eager, graph, operators = launches
    replay = operators * eager if graph is None else graph
    words = f"measured: kernel: a counter's increment; eager: a step of no work over its {operators} operators; graph: "
    words += "no graphs here, so the whole of that step" if graph is None else "its replay"
    times = _seconds({"kernel": kernel, "graph": replay, "eager": eager})
    return LaunchSpec.model_validate(times).model_dump(mode="json"), words


def write_profile(
    folder: Path, section: dict[str, Any], launches: Launches, runner: ModelRunner, base: str | None
) -> Path:
    """Write the profile, checked as simserve reads it; with `base` the data sheet is that profile's.

    Launch times are those measured, whatever the base states.

    Raises:
        ScenarioError: there is no such base.
    """
    from simserve.spec.gpus import resolve_gpu

    name = folder.resolve().name
    section = CalibratedSpec.model_validate(section).model_dump(mode="json")
    words = f"simserve calibrate: {section['model']} in {section['weight_dtype']}, on {_device_name(section)}"
    profile: dict[str, Any] = {"base": base} if base else _complete(section, memory_bytes(runner.device))
    profile["launch"], source = launch_section(launches)
    profile["sources"] = {**profile.get("sources", {}), "launch": source}
    profile |= {"name": name, "provenance": words, "calibrated": _whole_keys(section)}
    GpuSpec.model_validate(resolve_gpu(profile))
    path = folder / PROFILE
    aside = path.with_suffix(".partial")
    text = yaml.safe_dump(profile, sort_keys=False, width=120, allow_unicode=True, default_flow_style=None)
    aside.write_text(
        f"# Written by simserve calibrate; calibration/README.md says what each number means.\n{text}", "utf-8"
    )
    aside.replace(path)
    return path


def _device_name(section: dict[str, Any]) -> str:
    facts = section["machine"]
    return str(facts.get("gpu") or f"one thread of {facts['cpu']}")


def _complete(section: dict[str, Any], memory: int) -> dict[str, Any]:
    """A profile without a data sheet: its peaks are the measured roofs, and nothing else is known of it.

    The level `calibrated` needs none of these; `datasheet` on such a profile is the roofline of an ideal device behind
    the host and the launches that were measured.
    """
    roofs, dtype = section["roofs"], section["weight_dtype"]
    full = {dtype: {1: 1.0}}
    efficiency = {"hbm_gemm": {dtype: 1.0}, "gemm_mfu": full, "gemm_floor": 0.0, "hbm_decode_attention": 1.0}
    efficiency |= {"decode_attention_floor": 0.0, "prefill_attention_mfu": {1: 1.0}, "prefill_attention_floor": 0.0}
    outside = dict.fromkeys(("update", "front_end_per_request", "front_end_per_token", "delivery"), 0.0)
    return {
        "name": "",
        "provenance": "",
        "memory": memory,
        "hbm_bandwidth": roofs["copy_bandwidth"],
        "peak_flops": {dtype: roofs["gemm_peak"]},
        "l2_bytes": 0,
        "efficiency": efficiency | {"hbm_elementwise": 1.0, "kernel_floor": 0.0},
        "interconnect": {"kind": "none", "bandwidth": "1 GB/s", "host_bandwidth": "1 GB/s"},
        "host": section["host"] | outside,
        "framework_bytes": 0,
        "sources": {
            "hbm_bandwidth": "measured: copy",
            "peak_flops": "measured: GEMM",
            "efficiency": "not measured: 1",
            "host": "measured: the engine around a step of no work; no front end",
        },
    }


def _line(points: Sequence[tuple[int, float]]) -> tuple[float, float]:
    """Base and slope, neither negative, of seconds by a count."""
    from scipy.optimize import nnls

    seconds = [time for _, time in points]
    (base, slope), _ = nnls([[1 / time, count / time] for count, time in points], [1.0 for _ in seconds])
    return float(base), float(slope)


def _seconds(values: dict[Any, float]) -> dict[Any, str]:
    return {key: f"{value:.6g} s" for key, value in values.items()}


def _whole_keys(value: Any) -> Any:
    if isinstance(value, dict):
        return {int(key) if str(key).isdigit() else key: _whole_keys(item) for key, item in value.items()}
    return value
