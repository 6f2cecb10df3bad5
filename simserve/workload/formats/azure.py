"""The traces of Azure's LLM inference services of 2023, 2024 and 2025 (github.com/Azure/AzurePublicDataset, CC-BY-4.0).

Columns TIMESTAMP (a date), ContextTokens, GeneratedTokens; that of 2025 also counts images, which are not simulated.
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from simserve.workload.formats.columns import read_csv_columns
from simserve.workload.formats.source import Source
from simserve.workload.formats.table import Column, Options, Table

AZURE: Final = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")
_YEARS: Final = (1678, 2261)
"""Whole years that a clock of 64 bits counts in nanoseconds."""


def read_azure(source: Source, options: Options) -> Table:
    """Read a trace; times become seconds, to the 100 ns that the file holds."""
    found = read_csv_columns(source, options.rows, [(name,) for name in AZURE])
    stamps, inputs, outputs = (found.columns[name] for name in AZURE)
    columns: dict[str, Column] = {"arrival": seconds_of_dates(stamps), "input_len": inputs, "output_len": outputs}
    fields = dict(zip(columns, zip(AZURE, (stamps, inputs, outputs), strict=True), strict=True))
    notes = []
    if images := [name for name in found.ignored if "image" in name.lower()]:
        notes.append(f"Images ({', '.join(images)}) are not simulated: only the tokens stated for each request are.")
    return Table(columns, found.numbers, found.broken, fields, own_clock=False, ignored=found.ignored, notes=notes)


def seconds_of_dates(stamps: Column) -> NDArray[np.float64]:
    """Seconds since the first date that can be read; nan where there is none."""
    import pandas as pd

    dates = pd.to_datetime(pd.Series(stamps, dtype="str"), format="ISO8601", errors="coerce", utc=True)
    dates = dates.where(dates.dt.year.between(*_YEARS))
    readable = dates.notna().to_numpy()
    ticks = dates.dt.as_unit("ns").astype("int64").to_numpy()
    origin = ticks[readable][0] if readable.any() else 0
    return np.where(readable, (ticks - origin) / 1e9, np.nan)
