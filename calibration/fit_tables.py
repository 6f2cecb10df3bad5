"""The kernel tables of one profile: made from measurements, tried on what they do not hold, and written beside it.

With the tables goes `held_out.yaml`: for each of them how many rows were read and how far the table errs, see
`calibration.held_out`.
"""

import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import yaml

from calibration import distil
from calibration.held_out import HeldOut, held_out
from calibration.kernel_source import read_kernels
from simserve.spec.errors import ScenarioError
from simserve.spec.gpus import read_gpu
from simserve.spec.hardware import GpuSpec

HELD_OUT = "held_out.yaml"

_HEADER = """\
# How far the kernel tables of this folder err, written by `simserve profiles fit`. rows: measurements read; times: kept
# in the table; points: measurements asked of a table that was made without them. Errors are shares of the measurement:
# median and p90 of their size, bias their median with its sign. roughness: how far a measurement lies from the smooth
# curve through its neighbours, in the median: jumps that interpolation does not follow.
"""


class FittedTable(NamedTuple):
    """A table and how it was come by: measurements read, and errors where it had not seen them."""

    kind: str
    rows: int
    table: distil.Rows
    errors: HeldOut

    @property
    def times(self) -> int:
        """Times in the table."""
        return sum(len(row) for row in self.table.values())


def fit_tables(
    source: Path, output: Path, gpu: str | None = None, progress: Callable[[float], None] = lambda _: None
) -> list[FittedTable]:
    """Tables of the profile in the folder `output` from the measurements in `source`; nothing is written.

    `gpu`: how the source calls the card; None is by the name of the folder. `progress` is told the share that is done.

    Raises:
        ScenarioError: `output` holds no profile, or the source not what is expected of it.
    """
    profile = _profile_in(output)
    measured = read_kernels(source, gpu or output.resolve().name)
    fitted = []
    for kind in measured:
        fitted.append(_fit(kind, profile, measured, source))
        progress(len(fitted) / len(measured))
    return fitted


def _profile_in(output: Path) -> GpuSpec:
    if not (output / "profile.yaml").is_file():
        raise ScenarioError(
            f"{output}: has no profile.yaml, and tables lie beside the data sheet of their card; begin with one that is"
            f" like it: mkdir -p {output} && simserve profiles h100-sxm-80gb > {output}/profile.yaml"
        )
    return read_gpu(output)


def _fit(kind: str, gpu: GpuSpec, measured: dict[str, list[distil.Row]], source: Path) -> FittedTable:
    rows = measured[kind]
    table = {key: row for key, row in distil.TABLES[kind].make(rows).items() if row}
    if not table:
        raise ScenarioError(f"{source}: {distil.TABLES[kind].layout.file} holds no measurement for the table {kind}")
    try:
        return FittedTable(kind, len(rows), table, held_out(kind, gpu, measured))
    except ValueError as error:
        raise ScenarioError(f"{source}: {distil.TABLES[kind].layout.file}: too little for a table: {error}") from None


def check_free(output: Path, force: bool) -> None:
    """Raise FileExistsError where `output` holds tables already and `force` is not set."""
    for kind in distil.TABLES:
        if (output / f"{kind}.csv").exists() and not force:
            raise FileExistsError(f"{output / f'{kind}.csv'} exists")


def write_tables(fitted: list[FittedTable], output: Path) -> list[Path]:
    """Write the tables and their errors, all of them once all are ready; returns their paths."""
    aside = Path(tempfile.mkdtemp(prefix=".tables.", suffix=".partial", dir=output))
    try:
        for each in fitted:
            distil.write(aside / f"{each.kind}.csv", distil.TABLES[each.kind].header, each.table)
        (aside / HELD_OUT).write_text(_HEADER + _document(fitted), encoding="utf-8")
        return [path.replace(output / path.name) for path in sorted(aside.iterdir())]
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def _document(fitted: list[FittedTable]) -> str:
    facts = {
        each.kind: {"rows": each.rows, "times": each.times, "points": each.errors.points}
        | {name: round(value, 4) + 0.0 for name, value in each.errors._asdict().items() if name != "points"}
        for each in fitted
    }
    return yaml.safe_dump(facts, sort_keys=False, default_flow_style=None, width=200)
