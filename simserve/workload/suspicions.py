"""What looks odd in a trace, in sentences: it is replayed all the same, and a person is told."""

from collections.abc import Iterator
from typing import Final

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

_ENOUGH: Final = 10
"""Requests from which on a pattern says something."""
_SLOW: Final = 60.0
_FAST: Final = 1e4
"""Seconds between requests, and requests per second, beyond which a unit is doubted."""
_LONG: Final = 2_000_000
"""Tokens that no model takes."""


def suspicions(
    arrival: FloatArray, input_len: IntArray, output_len: IntArray, session: NDArray[np.str_]
) -> Iterator[str]:
    """Sentences on times (seconds, nan where there is none), lengths (tokens) and sessions of requests in order."""
    times = arrival[np.isfinite(arrival)]
    if len(times) >= _ENOUGH:
        yield from _of_times(times)
        repeats = _repeats(arrival, input_len, output_len)
        if repeats:
            yield f"{repeats:,} requests are exact repeats of another, in time and both lengths."
    if len(input_len) >= _ENOUGH:
        yield from _of_lengths(input_len, output_len)
        yield from _of_sessions(session)


def _repeats(arrival: FloatArray, input_len: IntArray, output_len: IntArray) -> int:
    """How many requests are like an earlier one; only those of the same time are compared."""
    timed = np.isfinite(arrival)
    rows = np.stack([column[timed].astype(np.float64) for column in (arrival, input_len, output_len)], axis=1)
    together = np.zeros(len(rows), dtype=np.bool_)
    same = rows[1:, 0] == rows[:-1, 0]
    together[1:] |= same
    together[:-1] |= same
    found = rows[together]
    return len(found) - len(np.unique(found, axis=0)) if len(found) else 0


def _of_times(times: FloatArray) -> Iterator[str]:
    gaps = np.diff(times)
    span = float(times[-1] - times[0])
    mean = span / len(gaps)
    if span == 0:
        yield "All requests arrive at the same time."
        return
    whole = bool(np.all(times == np.floor(times)))
    if mean > _SLOW or (whole and mean > 1 and np.median(gaps) >= 20):
        yield (
            f"A request every {mean:.3g} s on the mean: if the times are milliseconds, state"
            " workload.trace.time_unit: ms."
        )
    elif 1 / mean > _FAST:
        yield f"{1 / mean:.3g} requests/s on the mean: if the times are seconds, state workload.trace.time_unit: s."
    if step := grid_of(times):
        yield f"Times stand on a grid of {step:g} s, several requests on each point: their gaps say little of bursts."
    longest = int(gaps.argmax())
    if gaps[longest] > 0.2 * span and gaps[longest] > 50 * mean:
        yield f"No request comes for {gaps[longest]:.3g} s of {span:.3g}: several recordings in one?"


def grid_of(times: FloatArray) -> float | None:
    """Step in seconds of a grid on which most times of a trace coincide; None where there is no such grid."""
    points = np.unique(times)
    if len(points) < _ENOUGH or len(points) * 2 > len(times):
        return None
    steps = np.diff(points)
    step = float(np.median(steps))
    on_grid = np.abs(steps / step - np.rint(steps / step)) < 1e-3
    return step if np.mean(on_grid) > 0.9 else None


def _of_lengths(input_len: IntArray, output_len: IntArray) -> Iterator[str]:
    for name, lengths in (("prompts", input_len), ("answers", output_len)):
        if len(np.unique(lengths)) == 1 and lengths[0] > 1:
            yield f"All {name} have {lengths[0]:,} tokens."
        if lengths.max() > _LONG:
            yield f"One of the {name} has {lengths.max():,} tokens; are these characters or bytes?"
    if np.all(output_len == 1):
        yield "All answers have one token: there is no TPOT."


def _of_sessions(session: NDArray[np.str_]) -> Iterator[str]:
    names, counts = np.unique(session[session != ""], return_counts=True)
    if len(names) and counts.max() > 0.5 * len(session):
        name, share = str(names[counts.argmax()])[:40], counts.max() / len(session)
        yield f"One session, {name!r}, sends {share:.0%} of all requests."
