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

_MUCH = 0.2
"""Share of steps beyond the measured range from which the line begins with them."""


def trust_line(summary: Mapping[str, Any]) -> str:
    """How far to trust the numbers: cost level, share of steps beyond what was measured, and the known error."""
    level = str(summary.get("cost_level") or "unknown")
    steps, beyond = summary.get("total_steps"), summary.get("extrapolated_steps")
    parts = [f"cost level {level}" + (f", {LEVELS[level]}" if level in LEVELS else "")]
    if level != "constant":
        if steps and beyond is not None:
            share = f"{100 * beyond / steps:.1f} % of steps beyond the measured range"
            parts.insert(int(beyond <= _MUCH * steps), share)
        parts.append(_known_error(summary.get("measured_error")))
    if summary.get("optimistic"):
        parts.append(str(summary["optimistic"]))
    if extensions := summary.get("extensions"):
        parts.append(f"not in vLLM: {', '.join(extensions)}")
    return "; ".join(parts)


def _known_error(known: Mapping[str, Any] | None) -> str:
    """How far runs like this one were from measured servers, see `simserve.report.evidence`."""
    if not known:
        return "error not measured for this level and GPU"
    errors = known["errors"]
    if known["of"] == "steps":
        return f"steps held out of the calibration are {_percent(errors['step']['mean_abs'])} off on the mean"
    off, count = _shown(errors)
    runs = "one run" if count == 1 else f"median of {count} runs"
    if known["of"] == "nearest":
        differs = "; ".join(known["differs"])
        return f"error not measured for such a run: the nearest on this GPU is {known['whose']} ({off}, {runs}), " + (
            f"here {differs}"
        )
    whose = f"this model deployed like this ({known['whose']})" if known["of"] == "model" else known["whose"]
    return f"error measured: {off}, {runs} of {whose}"


def _shown(errors: Mapping[str, Mapping[str, Any]]) -> tuple[str, int]:
    """Errors in words, and of how many runs they are."""
    shown = {metric: each for metric, each in errors.items() if metric != "output tokens/s" or len(errors) == 1}
    runs = {each["runs"] for each in shown.values()}
    off = ", ".join(
        f"{metric} {_percent(each['median_abs'])}" + (f" ({each['runs']} runs)" if len(runs) > 1 else "")
        for metric, each in shown.items()
    )
    return off, max(runs)


def _percent(share: float) -> str:
    return f"{100 * share:.2g} %"


_LARGE = 50e9
"""Parameters from which a mixture of experts counts as large."""


def optimistic(level: str, *, latent: bool, experts: bool, parameters: float) -> str | None:
    """What is known of runs of a kind that data-sheet times are too short for; None where nothing is.

    DeepSeek-R1 on H200 and on 8 H100 (AWQ), Kimi-K2 on 8 H200, gpt-oss-120b on A100: measured 1.8 to 2.8 times as long.
    """
    if level != "datasheet" or not (latent or (experts and parameters > _LARGE)):
        return None
    kind = "MLA" if latent else "large mixtures of experts"
    return f"data-sheet times of {kind} were 2 to 3 times too short at small batches where they could be compared"
