"""The share of its peak that a GEMM reaches, read from a card, or from weights, with another bend of the roofline.

A profile states shares of the peak by rows. Below the ridge of the card that they were measured on, rows x FLOPs take
less time than reading the weights does, and such a share says how fast that card reads, not how fast it multiplies: 64
rows of bf16 weights reach 11 % of an L40S, bound by its 864 GB/s. What holds elsewhere is the share of the *roofline*:

    time = roof / share,  roof = max(bytes / bandwidth, 2 m / peak) of one weight,  ridge = bytes peak / (2 bandwidth)

so that the share of the peak is that of the measured card times max(1, its ridge / m) / max(1, own ridge / m). Tables
of times are read for other rates in the same way (`simserve.cost.tables.Rates.roof`).
"""

from math import isclose

from simserve.cost.curve import LogLogCurve, mfu_curve
from simserve.spec.dtypes import bytes_per_element
from simserve.spec.hardware import GpuSpec


def gemm_share(gpu: GpuSpec, weights: str, compute: str, measured: str) -> LogLogCurve:
    """Share of the peak of `compute` against rows, for weights in some format, from the shares of the format `measured`
    on the card that they were measured on (`EfficiencySpec.measured_at`).

    A stand-in of the same card (`measured` is another format than `compute`) is read as if it were its own.
    """
    at = gpu.efficiency.measured_at
    points = gpu.efficiency.gemm_mfu[measured]
    own = _ridge(weights, gpu.peak_flops[compute], gpu.hbm_bandwidth)
    if at is not None and measured in at.peak_flops:
        theirs = _ridge(measured, at.peak_flops[measured], at.hbm_bandwidth)
    else:
        theirs = _ridge(compute, gpu.peak_flops[compute], gpu.hbm_bandwidth)
    if isclose(own, theirs):
        return mfu_curve(points)
    return mfu_curve({m: _read_elsewhere(share, theirs / m, own / m) for m, share in points.items()})


def _read_elsewhere(share: float, theirs: float, own: float) -> float:
    """A share of the peak with another ridge, ridges over rows. What exceeds the roof was not bound by reading, but
    stated of the arithmetic alone (1 at one row on `ideal-3tb`), and holds as it is.
    """
    of_roof = share * max(1.0, theirs)
    return share if of_roof > 1.0 else of_roof / max(1.0, own)


def _ridge(weights: str, peak: float, bandwidth: float) -> float:
    """Rows at which reading a weight takes as long as multiplying it."""
    return bytes_per_element(weights) * peak / (2.0 * bandwidth)
