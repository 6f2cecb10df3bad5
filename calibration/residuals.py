"""Picture of a calibration: predicted over measured time of every step, and the errors by kind.

`python -m calibration.residuals hardware_profiles/NAME -o picture` draws what `samples.csv` and `profile.yaml` of a
calibration hold, as picture.svg and picture.png.
"""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from calibration.fit import Fit, steps_of
from calibration.profile import SAMPLES
from calibration.samples import read_samples
from simserve.report.plots.style import plain_log_axis
from simserve.spec.calibrated import CalibratedSpec
from simserve.spec.errors import ScenarioError
from simserve.spec.gpus import read_gpu

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def residual_plot(folder: Path) -> "Figure":
    """Errors of the kept fit on all points; held-out steps are filled.

    Raises:
        ScenarioError: the folder holds no calibrated profile.
    """
    from matplotlib.figure import Figure

    spec = read_gpu(folder).calibrated
    if spec is None:
        raise ScenarioError(f"{folder}: is not calibrated")
    steps = steps_of(read_samples(folder / SAMPLES))
    ratio = fit_of(spec).predict(steps) / np.array([step.seconds for step in steps])
    drawn = Figure(figsize=(7.2, 3.6), layout="constrained")
    axes = drawn.subplots()
    for kind, color in (("decode", "C0"), ("prefill", "C1"), ("mixed", "C2")):
        for held_out in (False, True):
            chosen = [index for index, step in enumerate(steps) if (step.kind, step.held_out) == (kind, held_out)]
            axes.plot(
                [steps[index].seconds * 1e3 for index in chosen],
                [100 * (ratio[index] - 1) for index in chosen],
                "o",
                color=color,
                fillstyle="full" if held_out else "none",
                markersize=4,
                label=f"{kind}, held out" if held_out else kind,
            )
    floor = 100 * spec.quality.noise_floor
    axes.axhspan(-floor, floor, alpha=0.12, color="gray", label="noise floor")
    axes.axhline(0, color="gray", linewidth=0.8)
    axes.set(xscale="log", xlabel="measured step time [ms]", ylabel="predicted - measured [%]")
    plain_log_axis(axes.xaxis)
    axes.set_title(f"{spec.model} in {spec.weight_dtype}, form {spec.form}", fontsize=10)
    drawn.legend(loc="outside lower center", fontsize=7, ncols=4)
    return drawn


def fit_of(spec: CalibratedSpec) -> Fit:
    """The fit that a profile holds."""
    return Fit(spec.form, dict(spec.tokens), dict(spec.graph_tokens or {}), spec.coefficients)


def main() -> None:
    """Draw one calibration."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("-o", "--output", type=Path, required=True)
    given = parser.parse_args()
    try:
        drawn = residual_plot(given.folder)
    except ScenarioError as error:
        parser.error(str(error))
    given.output.parent.mkdir(parents=True, exist_ok=True)
    for suffix in (".svg", ".png"):
        drawn.savefig(given.output.with_suffix(suffix), dpi=150)


if __name__ == "__main__":
    main()
