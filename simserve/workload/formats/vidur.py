"""Files of lengths as Vidur has them (github.com/microsoft/vidur): num_prefill_tokens, num_decode_tokens, no times but
where `arrived_at` (s) is among the columns.
"""

from typing import Final

from simserve.workload.formats.columns import read_csv_columns
from simserve.workload.formats.source import Source
from simserve.workload.formats.table import Options, Table

VIDUR: Final = {"num_prefill_tokens": "input_len", "num_decode_tokens": "output_len", "arrived_at": "arrival"}


def read_vidur(source: Source, options: Options) -> Table:
    """Read lengths, and times where there are any."""
    required = [(name,) for name, ours in VIDUR.items() if ours != "arrival"]
    found = read_csv_columns(source, options.rows, required, ("arrived_at",))
    columns = {ours: found.columns[name] for name, ours in VIDUR.items() if name in found.columns}
    fields = {ours: (name, found.columns[name]) for name, ours in VIDUR.items() if name in found.columns}
    return Table(columns, found.numbers, found.broken, fields, ignored=found.ignored)
