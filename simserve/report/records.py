"""Columns to Parquet and back: compact types, names in place of numbers for classes and statuses, and no pandas."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simserve.spec.result import STATUSES

ROW_GROUP = 1 << 16
"""Rows converted and written together; bounds the memory beside the records."""

NAMED = {"class_index": "class", "status": "status"}
"""Columns of codes -> the column of names they are stored as."""

SMALL = (
    *(
        "replica",
        "prefill_replica",
        "replica_before",
        "turn",
        "input_len",
        "client_input_len",
        "output_len",
        "cached_len",
        "num_preemptions",
    ),
    *("running", "waiting", "free_blocks", "preemptions", "graph", "draft_tokens", "output_tokens"),
)
"""Whole numbers that four bytes hold; the others get eight."""


def write_parquet(columns: Mapping[str, NDArray[Any]], class_names: tuple[str, ...], path: Path) -> None:
    """Write columns of equal length as one file, a row group at a time."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    names = {"class_index": list(class_names), "status": list(STATUSES)}
    schema = pa.schema([(NAMED.get(name, name), _stored_type(name, column)) for name, column in columns.items()])
    floats = [field.name for field in schema if pa.types.is_floating(field.type)]
    with pq.ParquetWriter(
        path,
        schema,
        compression="zstd",
        use_dictionary=list(NAMED.values()),
        use_byte_stream_split=floats,
        write_statistics=False,
    ) as writer:
        for rows in _row_groups(columns):
            arrays = [
                _stored(name, column[rows], field.type, names)
                for (name, column), field in zip(columns.items(), schema, strict=True)
            ]
            writer.write_table(pa.Table.from_arrays(arrays, schema=schema))


def _row_groups(columns: Mapping[str, NDArray[Any]]) -> Iterator[slice]:
    rows = max((column.size for column in columns.values()), default=0)
    yield from (slice(start, min(start + ROW_GROUP, rows)) for start in range(0, max(rows, 1), ROW_GROUP))


def _stored_type(name: str, column: NDArray[Any]) -> Any:
    import pyarrow as pa

    if name in NAMED:
        return pa.dictionary(pa.int8() if name == "status" else pa.int16(), pa.string())
    if np.issubdtype(column.dtype, np.floating):
        return pa.float64()
    return pa.int32() if name in SMALL else pa.int64()


def _stored(name: str, column: NDArray[Any], kind: Any, names: Mapping[str, list[str]]) -> Any:
    import pyarrow as pa

    if name in NAMED:
        return pa.DictionaryArray.from_arrays(_numbers(column, kind.index_type), _words(names[name]))
    return _numbers(column, kind)


def _numbers(column: NDArray[Any], kind: Any) -> Any:
    """The column as an Arrow array. `pa.array` and `cast` would do, but they import pandas and pyarrow.compute."""
    import pyarrow as pa

    column = np.ascontiguousarray(column, kind.to_pandas_dtype())
    return pa.Array.from_buffers(kind, column.size, [None, pa.py_buffer(column)])


def _words(names: Sequence[str]) -> Any:
    """Names as an Arrow array of text, for the same reason without `pa.array`."""
    import pyarrow as pa

    texts = [name.encode() for name in names]
    ends = np.cumsum([0, *map(len, texts)], dtype=np.int32)
    return pa.StringArray.from_buffers(len(texts), pa.py_buffer(ends), pa.py_buffer(b"".join(texts)))


def read_columns(path: Path, class_names: tuple[str, ...]) -> dict[str, NDArray[Any]]:
    """Columns of a file as they were in the `Result`."""
    import pyarrow.parquet as pq

    table = pq.read_table(path)
    names = {"class": ("class_index", class_names), "status": ("status", STATUSES)}
    columns = {}
    for name in table.column_names:
        column = table[name].combine_chunks()
        if name in names:
            original, order = names[name]
            codes = np.array([order.index(value) for value in column.dictionary.to_pylist()], np.int64)
            columns[original] = codes[column.indices.to_numpy(zero_copy_only=False)]
        else:
            columns[name] = column.to_numpy(zero_copy_only=False)
    return columns


def write_csv(parquet: Path) -> Path:
    """Write the same table as CSV beside the Parquet file."""
    import pyarrow as pa
    import pyarrow.csv
    import pyarrow.parquet as pq

    path = parquet.with_suffix(".csv")
    with pq.ParquetFile(parquet) as file:
        plain = pa.schema(
            [(f.name, f.type.value_type if pa.types.is_dictionary(f.type) else f.type) for f in file.schema_arrow]
        )
        with pyarrow.csv.CSVWriter(path, plain) as writer:
            for batch in file.iter_batches(ROW_GROUP):
                writer.write_batch(batch.cast(plain))
    return path
