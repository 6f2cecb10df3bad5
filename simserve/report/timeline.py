"""A step as a file for Perfetto (https://ui.perfetto.dev) or chrome://tracing: lanes for CPU, GPU stream and HBM.

The format is the Trace Event Format's JSON object with times in microseconds. An arrow leads from each launch to the
first kernel that it starts.
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from simserve.spec.timeline import Span, StepTimeline

_CPU, _STREAM, _COPIES = 1, 2, 3
_LANES = {_CPU: "CPU: engine core", _STREAM: "GPU: stream", _COPIES: "GPU: copies"}

Event = dict[str, Any]


def chrome_trace(timeline: StepTimeline) -> dict[str, Any]:
    """A timeline as a trace."""
    return {
        "displayTimeUnit": "ns",
        "otherData": {
            "step": timeline.name,
            "time_us": timeline.time * 1e6,
            "cuda_graph": timeline.graph,
            "hbm_peak_gb_per_s": timeline.hbm_bandwidth / 1e9,
        },
        "traceEvents": [*_names(timeline), *_spans(timeline), *_arrows(timeline), *_levels(timeline)],
    }


def write_timeline(path: Path, trace: Mapping[str, Any]) -> None:
    """Write a trace as JSON.

    Raises:
        OSError: the file cannot be written.
    """
    path.write_text(json.dumps(trace) + "\n", encoding="utf-8")


def _names(timeline: StepTimeline) -> Iterator[Event]:
    yield {"ph": "M", "pid": 1, "name": "process_name", "args": {"name": timeline.name}}
    for lane, name in _LANES.items():
        if lane != _COPIES or timeline.copies:
            yield {"ph": "M", "pid": 1, "tid": lane, "name": "thread_name", "args": {"name": name}}
            yield {"ph": "M", "pid": 1, "tid": lane, "name": "thread_sort_index", "args": {"sort_index": lane}}


def _spans(timeline: StepTimeline) -> Iterator[Event]:
    for span in timeline.host:
        yield _complete(_CPU, "host", span, {})
    for span in timeline.launches:
        yield _complete(_CPU, "launch", span, {})
    for lane, category, spans in ((_STREAM, "kernel", timeline.kernels), (_COPIES, "copy", timeline.copies)):
        for span in spans:
            duration = span.end - span.start
            rate = span.bytes / duration / 1e9 if duration else 0.0
            yield _complete(
                lane, category, span,
                {"bytes": span.bytes, "flops": span.flops, "bound": span.bound, "gb_per_s": rate},
            )  # fmt: skip


def _complete(lane: int, category: str, span: Span, args: Mapping[str, object]) -> Event:
    start = span.start * 1e6
    return {
        "ph": "X", "pid": 1, "tid": lane, "cat": category, "name": span.name,
        "ts": start, "dur": span.end * 1e6 - start, "args": args,
    }  # fmt: skip


def _arrows(timeline: StepTimeline) -> Iterator[Event]:
    drawn = -1
    for kernel in timeline.kernels:
        if kernel.launch != drawn:
            drawn = kernel.launch
            arrow = {"pid": 1, "cat": "launch", "name": "launch", "id": drawn}
            yield arrow | {"ph": "s", "tid": _CPU, "ts": timeline.launches[drawn].start * 1e6}
            yield arrow | {"ph": "f", "bp": "e", "tid": _STREAM, "ts": kernel.start * 1e6}


def _levels(timeline: StepTimeline) -> Iterator[Event]:
    for level in timeline.levels:
        rates = {"kernels": level.kernels / 1e9}
        if timeline.copies:
            rates["copies"] = level.copies / 1e9
        yield {"ph": "C", "pid": 1, "name": "HBM GB/s", "ts": level.at * 1e6, "args": rates}
