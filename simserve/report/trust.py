"""How far the numbers of a run can be trusted, in one line that stands beside them everywhere."""

from collections.abc import Mapping
from typing import Any

LEVELS = {
    "constant": "every step takes the stated time",
    "datasheet": "step times from data-sheet peaks and kernel efficiencies",
    "kernels": "step times from measured operators",
    "calibrated": "step times fitted on a real engine",
}
"""What each cost level rests on."""


def trust_line(summary: Mapping[str, Any]) -> str:
    """How far to trust the numbers: cost level, share of steps beyond what was measured, and the known error."""
    level = str(summary.get("cost_level") or "unknown")
    steps, beyond = summary.get("total_steps"), summary.get("extrapolated_steps")
    parts = [f"cost level {level}" + (f", {LEVELS[level]}" if level in LEVELS else "")]
    if level != "constant":
        if steps and beyond is not None:
            parts.append(f"{100 * beyond / steps:.1f} % of steps beyond the measured range")
        parts.append(_known_error(summary.get("measured_error")))
    if extensions := summary.get("extensions"):
        parts.append(f"not in vLLM: {', '.join(extensions)}")
    return "; ".join(parts)


def _known_error(known: Mapping[str, Any] | None) -> str:
    """How far runs like this one were from measured servers, see `simserve.spec.measured_error`."""
    if not known:
        return "error not measured for this level and GPU"
    errors = known["errors"]
    if known["of"] == "steps":
        return f"steps held out of the calibration are {_percent(errors['step']['mean_abs'])} off on the mean"
    shown = {metric: each for metric, each in errors.items() if metric != "output tokens/s" or len(errors) == 1}
    runs = {each["runs"] for each in shown.values()}
    off = ", ".join(
        f"{metric} {_percent(each['median_abs'])}" + (f" ({each['runs']} runs)" if len(runs) > 1 else "")
        for metric, each in shown.items()
    )
    whose = {"model": "this model on this GPU", "gpu": "this GPU"}[known["of"]]
    count = max(runs)
    return f"error measured: {off}, " + ("one run" if count == 1 else f"median of {count} runs") + f" of {whose}"


def _percent(share: float) -> str:
    return f"{100 * share:.2g} %"
