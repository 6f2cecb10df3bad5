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
        parts.append(str(summary.get("measured_error") or "error not measured for this level and GPU"))
    if extensions := summary.get("extensions"):
        parts.append(f"not in vLLM: {', '.join(extensions)}")
    return "; ".join(parts)
