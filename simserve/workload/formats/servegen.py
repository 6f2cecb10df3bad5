"""Clients of ServeGen (github.com/alibaba/ServeGen): not requests but what they were drawn from, in two files.

`chunk-N-trace.csv` has no header and a row per window: start (s), rate (requests/s), cv, Gamma or Weibull or nothing,
and two parameters, of which the first is the shape. `chunk-N-dataset.json` has, for each window start, probabilities of
input and output tokens as a Python dictionary in a string. Requests are drawn from both: gaps of that shape with the
mean that the rate gives, lengths independently. Another seed draws others.
"""

import ast
import math
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from simserve.spec.errors import ScenarioError
from simserve.workload.formats.columns import bare_rows, check_rows
from simserve.workload.formats.source import MOST_ROWS, Source
from simserve.workload.formats.table import Options, Table, finite, plural
from simserve.workload.streams import random_stream

SHAPES: Final = ("Gamma", "Weibull", "Exponential", "")
_LAST_WINDOW: Final = 600.0
"""Seconds of a window that no other follows."""
Weights = tuple[NDArray[np.int64], NDArray[np.float64]]


class _Window(NamedTuple):
    line: int
    start: float
    end: float
    rate: float
    kind: str
    shape: float


def read_servegen(source: Source, options: Options) -> Table:
    """Draw the requests of a client, from either of its two files."""
    trace, dataset = _pair(source)
    lengths = _Lengths(dataset)
    lines: list[int] = []
    times: list[float] = []
    inputs: list[int] = []
    outputs: list[int] = []
    stop = options.rows.stop
    rng = random_stream(options.seed, f"servegen/{trace.path.name}")
    for window in _windows(trace):
        drawn = _times(window, rng)
        lines += [window.line] * len(drawn)
        times += drawn
        inputs += lengths.draw("input_tokens", window.start, len(drawn), rng)
        outputs += lengths.draw("output_tokens", window.start, len(drawn), rng)
        check_rows(len(lines), trace)
        if stop is not None and len(lines) >= stop:
            break
    notes = [f"Requests are drawn with seed {options.seed} from the client's distributions: none of them was recorded."]
    if lengths.borrowed:
        notes.append(f"{plural(lengths.borrowed, 'length')} drawn from the nearest window that has any.")
    rows = options.rows
    return Table(
        {"arrival": times[rows], "input_len": inputs[rows], "output_len": outputs[rows]},
        lines[options.rows],
        place="window in line",
        own_clock=False,
        notes=notes,
    )


def _pair(source: Source) -> tuple[Source, Source]:
    """The two files of a client, whichever was named."""
    name = source.path.name
    if name.endswith(".json"):
        stem = name.removesuffix("dataset.json")
        found = sorted(source.path.parent.glob(f"{_escaped(stem)}trace*.csv*"))
        if not name.endswith("dataset.json") or len(found) != 1:
            raise ScenarioError(
                f"{source.path}: holds the lengths of a ServeGen client; its rates are sought beside it as"
                f" {stem}trace.csv: {plural(len(found), 'file')} found"
            )
        return Source(found[0]), source
    stem = name.partition("trace")[0]
    dataset = source.path.with_name(f"{stem}dataset.json")
    if "trace" not in name or not dataset.is_file():
        raise ScenarioError(
            f"{source.path}: holds the rates of a ServeGen client and no lengths: put its other file,"
            f" {dataset.name}, beside it"
        )
    return source, Source(dataset)


def _escaped(stem: str) -> str:
    return "".join(f"[{sign}]" if sign in "*?[" else sign for sign in stem)


def _windows(source: Source) -> Iterator[_Window]:
    rows = [(number, [field.strip() for field in record]) for number, record in bare_rows(source)]
    for place, (number, record) in enumerate(rows):
        following = finite(rows[place + 1][1][0]) if place + 1 < len(rows) else None
        numbers = [finite(field) for field in (*record[:3], *record[4:5])]
        start, rate = numbers[0], numbers[1]
        kind = record[3] if len(record) > 3 else ""
        if start is None or rate is None or rate < 0 or kind not in SHAPES or None in numbers:
            raise ScenarioError(
                f"{source.path}, line {number}: {','.join(record)[:80]!r} is not a window of ServeGen: start, rate, cv,"
                " Gamma or Weibull or nothing, two parameters"
            )
        end = start + _LAST_WINDOW if following is None else following
        if end <= start:
            raise ScenarioError(
                f"{source.path}, line {number}: the window ends before it starts; sort the file by time"
            )
        if rate * (end - start) > MOST_ROWS:
            raise ScenarioError(f"{source.path}, line {number}: rate {rate:g}/s is more than a window can hold")
        yield _Window(number, start, end, rate, kind, numbers[3] or 1.0)


def _times(window: _Window, rng: np.random.Generator) -> list[float]:
    """Arrivals in a window: gaps of its shape whose mean is 1 / rate."""
    if not window.rate:
        return []
    mean, now, found = 1 / window.rate, window.start, []
    count = math.ceil((window.end - window.start) * window.rate) + 8
    while now < window.end:
        gaps = _gaps(window, count, rng) * mean
        times = now + np.cumsum(gaps)
        found += times[times < window.end].tolist()
        now = float(times[-1])
    return found


def _gaps(window: _Window, count: int, rng: np.random.Generator) -> NDArray[np.float64]:
    """Gaps of mean 1; at least a billionth, so that a shape near 0 cannot stand still."""
    shape = min(max(window.shape, 1e-2), 1e3)
    if window.kind == "Gamma":
        drawn = rng.standard_gamma(shape, count) / shape
    elif window.kind == "Weibull":
        drawn = rng.weibull(shape, count) / math.gamma(1 + 1 / shape)
    else:
        drawn = rng.standard_exponential(count)
    return np.maximum(drawn, 1e-9)


class _Lengths:
    """Distributions of lengths by window; those of the nearest one where a window has none."""

    def __init__(self, source: Source) -> None:
        document = source.documents[0] if source.documents else None
        if not isinstance(document, dict):
            raise ScenarioError(f"{source.path}: is not an object of windows; expected ServeGen's dataset.json")
        self.borrowed = 0
        self._found: dict[str, Mapping[float, Weights]] = {}
        self._starts: dict[str, list[float]] = {}
        for kind in ("input_tokens", "output_tokens"):
            read = {_start(source, key): _weights(source, key, kind, value) for key, value in document.items()}
            found = {start: weights for start, weights in read.items() if weights is not None}
            if not found:
                raise ScenarioError(f"{source.path}: has no probabilities of {kind} in any window")
            self._found[kind], self._starts[kind] = found, sorted(found)
            self._own = sorted(read)

    def draw(self, kind: str, time: float, count: int, rng: np.random.Generator) -> list[int]:
        """Lengths in tokens of requests of the window at a time."""
        starts = self._starts[kind]
        own = self._own[max(bisect_right(self._own, time) - 1, 0)]
        start = own if own in self._found[kind] else min(starts, key=lambda each: abs(each - time))
        self.borrowed += 0 if start == own else count
        values, weights = self._found[kind][start]
        places = np.searchsorted(np.cumsum(weights), rng.random(count) * weights.sum(), side="right")
        drawn: list[int] = values[np.minimum(places, len(values) - 1)].tolist()
        return drawn


def _start(source: Source, key: str) -> float:
    start = finite(key)
    if start is None:
        raise ScenarioError(f"{source.path}: window {key[:40]!r} is not a time in seconds")
    return start


def _weights(source: Source, key: str, kind: str, value: Any) -> Weights | None:
    text = value.get(kind) if isinstance(value, dict) else None
    try:
        found = ast.literal_eval(text) if isinstance(text, str) else text
        if found in ({}, None):
            return None
        pairs = np.array(sorted((int(tokens), float(weight)) for tokens, weight in found.items()), dtype=np.float64)
    except (ValueError, SyntaxError, TypeError, AttributeError, RecursionError, MemoryError, OverflowError):
        pairs = np.zeros((0, 2))
    lengths, weights = pairs[:, 0], pairs[:, 1]
    if not len(pairs) or not (np.isfinite(pairs).all() and (weights >= 0).all() and weights.sum() > 0):
        raise ScenarioError(f"{source.path}, window {key}: {kind} is not a dictionary of tokens and probabilities")
    return lengths.astype(np.int64), weights


def is_dataset(document: Any) -> bool:
    """Whether a JSON document is the second file of a client."""
    if not isinstance(document, dict) or not document:
        return False
    first = next(iter(document.values()))
    return isinstance(first, dict) and "input_tokens" in first and "output_tokens" in first
