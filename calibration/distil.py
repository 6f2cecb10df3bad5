"""Distils measured kernels into the tables that the level `kernels` reads, one for each kind of operator.

`calibration.kernel_source` reads the measurements, one a row. In a table rows are shapes, columns are sizes, entries
are microseconds. Kept is what interpolation needs.
"""

import csv
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from math import inf, log
from pathlib import Path
from typing import NamedTuple

from simserve.cost.attention_tables import IDLE_SHARE
from simserve.cost.tables import ALL_REDUCES
from simserve.spec.catalogue import find_model
from simserve.spec.errors import ScenarioError
from simserve.spec.layers.attention import GroupedAttention
from simserve.validation.scenario_of_row import NotModelledError, catalogue_name

Row = Mapping[str, str]
Key = tuple[str, ...]
Rows = dict[Key, dict[int, float]]
"""Shape -> size -> microseconds."""

DTYPES = {"bfloat16": "bf16", "half": "bf16", "float16": "bf16", "w4a16_mxfp4": "mxfp4"}
"""Our names of formats. fp8_block: fp8 with a scale for each 128 x 128 weights."""

DECODE_LENGTHS = {16, 64, 128, *(2**i for i in range(8, 18))}
"""Lengths of context that are kept: below 16 tokens nothing changes."""

DECODE_HEADS = {("4", "1"), ("8", "1"), ("8", "2"), ("16", "2"), ("32", "8"), ("64", "8")}
"""(Query, KV) heads that are kept. Attention over b sequences with 8 KV heads takes the time of 2 b with 4. With two KV
heads it takes 10 to 17 % more than 2 b with one on A100, L40S and RTX PRO 6000, on H100 and H200 1 to 3 % less.
"""

SPIKE = 1.5
"""An all-reduce of so many times both its neighbours' time was disturbed. Changes of the algorithm, which may also make
a larger message faster, stay below 1.2."""

_ALL_REDUCES = {
    "vllm_graph": ALL_REDUCES["flashinfer"],
    "vllm_symm_mem_graph": ALL_REDUCES["symm_mem"],
    "vllm_custom_graph": ALL_REDUCES["custom"],
}
"""Kernel of a source -> operation in the table. `vllm_graph` is that of the newest version."""

_NCCL_FROM = 2**24
"""Bytes from which NCCL stands in for vLLM's all-reduce, where it is faster."""

_OTHERS = ("all_gather", "reduce_scatter", "alltoall")

_LEAST_MORE = 0.05
"""All further prompts together add at least this share of the time of one alone."""

STEP_TOKENS = 8192
"""Tokens that one step prefills at most: the largest default of engines."""


def dtype(name: str) -> str:
    """Our name of a number format."""
    return DTYPES.get(name, name)


def collected(points: Iterable[tuple[Key, int, float]]) -> Rows:
    """Points as rows; of points measured more than once the median."""
    found: defaultdict[Key, defaultdict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    for key, size, time in points:
        found[key][size].append(time)
    return {key: {size: statistics.median(times) for size, times in row.items()} for key, row in found.items()}


def gemm(rows: Iterable[Row]) -> Rows:
    """GEMM of m rows by k x n weights: a row for each (format, n, k), a column for each m."""
    return collected(((dtype(r["dtype"]), r["n"], r["k"]), int(r["m"]), float(r["time_us"])) for r in rows)


def decode_attention(rows: Iterable[Row]) -> Rows:
    """Decode attention of a batch with equal contexts: a column for each length of context."""
    return collected(
        ((dtype(r["kv_dtype"]), r["heads_q"], r["heads_kv"], r["batch"]), int(r["kv_len"]), float(r["time_us"]))
        for r in rows
        if is_kept(r)
    )


def is_kept(row: Row) -> bool:
    """Whether a decode is in the tables."""
    return int(row["kv_len"]) in DECODE_LENGTHS and (row["heads_q"], row["heads_kv"]) in DECODE_HEADS


def mixed_attention(rows: Iterable[Row]) -> Rows:
    """Attention inside a model in bf16 on one GPU, over decodes of equal context, over a chunk, or over both: a column
    for each length of the history of the chunk, 0 without.

    Raises:
        ScenarioError: the catalogue has not the model, which says what heads there were.
    """
    names = ("n_decode", "kv_decode", "prefill_chunk")
    return collected(
        (("bf16", *_heads_of(r["model"]), *(r[name] for name in names)), int(r["kv_prefill"]), float(r["time_us"]))
        for r in rows
        if {int(r["kv_decode"]), int(r["kv_prefill"])} <= DECODE_LENGTHS | {0}
    )


@cache
def _heads_of(name: str) -> Key:
    try:
        model = find_model(catalogue_name(name))
    except NotModelledError as error:
        raise ScenarioError(f"attention inside a model: {error}") from None
    attention = next(iter(model.attentions))
    assert isinstance(attention, GroupedAttention)
    return str(attention.num_heads), str(attention.num_kv_heads)


Batches = dict[tuple[int, int], float]
"""(Prompts, their length) -> microseconds."""


def prefill_attention(rows: Iterable[Row]) -> Rows:
    """Causal attention over prompts. By their length: `alone` is one, `more` what each further one of that length adds
    in a step. By the tokens of all: `step` is the least that prompts of so many tokens take, be they short or long: the
    time to move their queries, keys and values, on L40S from HBM where they no longer fit into L2.
    """
    own: defaultdict[Key, Batches] = defaultdict(dict)
    for (*shape, batch), row in collected(_prefills(rows)).items():
        own[tuple(shape)] |= {(int(batch), size): time for size, time in row.items()}
    table: Rows = {}
    for heads in own:
        batches = _alike(heads, own) | own[heads]
        alone = _never_falling({size: time for (batch, size), time in batches.items() if batch == 1})
        step = _least_by_tokens(batches)
        table[*heads, "alone"] = alone
        table[*heads, "more"] = _more(batches, alone, step)
        table[*heads, "step"] = step
    return table


def _prefills(rows: Iterable[Row]) -> Iterator[tuple[Key, int, float]]:
    for r in rows:
        key = dtype(r["kv_dtype"]), r["heads_q"], r["heads_kv"], r["batch"]
        yield key, int(r["seq_len"]), float(r["time_us"])


def _alike(heads: Key, measured: Mapping[Key, Batches]) -> Batches:
    """What batches take by those of other heads: b prompts with 8 KV heads take the time of 4 b with 2, the same query
    heads to each (within 1 to 3 % in the median of all cards). A prompt of one token runs another kernel.
    """
    found: defaultdict[tuple[int, int], list[float]] = defaultdict(list)
    group, keys, most = _group(heads), int(heads[2]), max(batch for batch, _ in measured[heads])
    for other, batches in measured.items():
        if other != heads and other[0] == heads[0] and _group(other) == group:
            for (batch, size), time in batches.items():
                alike, rest = divmod(batch * int(other[2]), keys)
                if 1 <= alike <= most and not rest and size > 1:
                    found[alike, size].append(time)
    return {batch: statistics.median(times) for batch, times in found.items()}


def _group(heads: Key) -> float:
    return int(heads[1]) / int(heads[2])


def _never_falling(row: Mapping[int, float]) -> dict[int, float]:
    """The largest times below the given ones that never fall with the size."""
    least, found = inf, {}
    for size in sorted(row, reverse=True):
        found[size] = least = min(least, row[size])
    return dict(sorted(found.items()))


def _least_by_tokens(batches: Batches) -> dict[int, float]:
    """Tokens of a step -> the shortest time of so many or more that fit into one step."""
    times = {(batch * size, time) for (batch, size), time in batches.items() if batch * size <= STEP_TOKENS}
    powers = {tokens for tokens, _ in times if tokens & (tokens - 1) == 0}
    return {power: min(time for tokens, time in times if tokens >= power) for power in sorted(powers)}


def _more(batches: Batches, alone: Mapping[int, float], step: Mapping[int, float]) -> dict[int, float]:
    """Length -> what each prompt after the first adds: of the values that the measured batches say, the one from which
    all of them deviate least, on the mean of logarithms; never less than for shorter prompts.
    """
    idle = IDLE_SHARE * min(alone.values())
    found: dict[int, float] = {}
    least = 0.0
    for size, first in alone.items():
        times = {batch: time for (batch, length), time in batches.items() if length == size and batch > 1}
        times = {batch: time for batch, time in times.items() if batch * size <= STEP_TOKENS} or times

        def deviation(more: float, size: int = size, first: float = first, times: Mapping[int, float] = times) -> float:
            predicted = {b: max(first + (b - 1) * more - idle, step.get(b * size, 0.0)) for b in times}
            return sum(abs(log(predicted[b] / time)) for b, time in times.items())

        said = [
            max(max(time - first + idle, _LEAST_MORE * first) / (batch - 1), least) for batch, time in times.items()
        ]
        if said:
            least = found[size] = min(said, key=deviation)
    return found


def moe(rows: Iterable[Row]) -> Rows:
    """All experts of a layer on one rank: a column for each number of tokens.

    Measured were routers that send every expert as many tokens (`balanced`), so that a few tokens touch as many experts
    as they can. Those of a served model are trained to be balanced, but each token chooses on its own: by chance fewer
    experts are touched. What the untouched ones would have taken comes off.
    """
    names = ("hidden_size", "inter_size", "topk", "num_experts", "moe_tp_size", "moe_ep_size")
    balanced = collected(
        ((dtype(r["dtype"]), *(r[name] for name in names)), int(r["num_tokens"]), float(r["time_us"]))
        for r in rows
        if r["distribution"] == "balanced"
    )
    return {key: _touched_by_chance(row, int(key[3]), int(key[4])) for key, row in balanced.items()}


def _touched_by_chance(row: Mapping[int, float], top_k: int, experts: int) -> dict[int, float]:
    """Times by tokens, less the time of the experts that balanced tokens touch and independent ones do not.

    An expert takes what the measured times rise by from one token to so few tokens that all experts are touched.
    """
    fewest = min(row)
    full = min((tokens for tokens in row if tokens * top_k >= experts), default=max(row))
    more = min(experts, full * top_k) - min(experts, fewest * top_k)
    each = max(0.0, (row[full] - row[fewest]) / more) if more else 0.0
    return {
        tokens: time - each * (min(experts, tokens * top_k) - experts * (1.0 - (1.0 - top_k / experts) ** tokens))
        for tokens, time in row.items()
    }


def collectives(rows: Iterable[Row]) -> Rows:
    """By bytes. All-reduce: vLLM's own kernel in a CUDA graph, from 16 MiB NCCL where it is faster; and the kernels
    of its earlier versions, where the source holds them. The others are NCCL's, by the bytes of the whole.

    A message that took far longer than both the next smaller and the next larger one was disturbed, and is left out.
    """
    rows = list(rows)
    nccl = {ranks: row for (_, ranks), row in _by_message(rows, "all_reduce", "nccl", "nccl").items()}
    table: Rows = {}
    for kernel, name in _ALL_REDUCES.items():
        for (_, ranks), row in _by_message(rows, "all_reduce", kernel, name).items():
            faster = {size: time for size, time in nccl.get(ranks, {}).items() if size >= _NCCL_FROM}
            table[name, ranks] = {size: min(time, faster.get(size, time)) for size, time in _undisturbed(row).items()}
    for operation in _OTHERS:
        found = _by_message(rows, operation, "nccl", operation)
        table |= {key: _undisturbed(row) for key, row in found.items()}
    return {key: {size: time for size, time in row.items() if 1024 <= size <= 2**29} for key, row in table.items()}


def _by_message(rows: Iterable[Row], operation: str, kernel: str, name: str) -> Rows:
    return collected(
        ((name, r["num_gpus"]), int(r["message_bytes"]), float(r["time_us"]))
        for r in rows
        if (r["op"], r["kernel"]) == (operation, kernel)
    )


def _undisturbed(row: Mapping[int, float]) -> dict[int, float]:
    """The row without times of more than `SPIKE` times both of their neighbours'."""
    sizes = sorted(row)
    spikes = {
        size
        for before, size, after in zip(sizes, sizes[1:], sizes[2:], strict=False)
        if row[size] > SPIKE * max(row[before], row[after])
    }
    return {size: row[size] for size in sizes if size not in spikes}


class Layout(NamedTuple):
    """A file of measurements: the end of its name, and its columns of words and of counts, beside `gpu` and `time_us`.
    Counts are above 0, but those of `or_none`.
    """

    file: str
    words: Key
    counts: Key
    or_none: Key = ()

    @property
    def columns(self) -> Key:
        """All columns that are needed."""
        return ("gpu", *self.words, *self.counts, *self.or_none, "time_us")


class Kind(NamedTuple):
    """One kind of operator: what its measurements look like, the columns that name a shape in its table, and what makes
    the table.
    """

    layout: Layout
    header: Key
    make: Callable[[Iterable[Row]], Rows]


TABLES: Mapping[str, Kind] = {
    "gemm": Kind(Layout("gemm.csv", ("dtype",), ("m", "n", "k")), ("dtype", "n", "k"), gemm),
    "decode_attention": Kind(
        Layout("generation_attention.csv", ("kv_dtype",), ("batch", "kv_len", "heads_q", "heads_kv")),
        ("kv_dtype", "heads_q", "heads_kv", "batch"),
        decode_attention,
    ),
    "prefill_attention": Kind(
        Layout("context_attention.csv", ("kv_dtype",), ("batch", "seq_len", "heads_q", "heads_kv")),
        ("kv_dtype", "heads_q", "heads_kv", "load"),
        prefill_attention,
    ),
    "mixed_attention": Kind(
        Layout("mixed_attention.csv", ("model",), (), ("prefill_chunk", "kv_prefill", "n_decode", "kv_decode")),
        ("kv_dtype", "heads_q", "heads_kv", "decodes", "context", "chunk"),
        mixed_attention,
    ),
    "moe": Kind(
        Layout(
            "moe.csv",
            ("dtype", "distribution"),
            ("num_tokens", "hidden_size", "inter_size", "topk", "num_experts", "moe_tp_size", "moe_ep_size"),
        ),
        ("dtype", "hidden", "inter", "top_k", "experts", "tp", "ep"),
        moe,
    ),
    "collectives": Kind(
        Layout("comm.csv", ("op", "kernel"), ("num_gpus", "message_bytes")), ("operation", "ranks"), collectives
    ),
}
"""Kind of operator -> how its table is made."""


def write(path: Path, header: Key, rows: Rows) -> None:
    """A table: key columns, then one column for each size."""
    sizes = sorted({size for row in rows.values() for size in row})
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow([*header, *sizes])
        for key, row in sorted(rows.items(), key=lambda item: tuple(_sortable(part) for part in item[0])):
            writer.writerow([*key, *(f"{row[size]:.4g}" if size in row else "" for size in sizes)])


def _sortable(part: str) -> tuple[int, str]:
    return (int(part), "") if part.isdigit() else (-1, part)
