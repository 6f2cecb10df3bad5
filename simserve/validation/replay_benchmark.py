"""One recorded benchmark replayed: the same arrivals and lengths through the simulator, and the errors.

Recordings are the detailed result of `vllm bench serve`, or a file with one request a line or row. They were taken by
the client's clock, or by the engine's, which starts when the engine takes the request in, between two steps.
"""

import csv
import json
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from simserve.simulation import simulate
from simserve.spec.errors import ScenarioError
from simserve.spec.result import COMPLETED, Result
from simserve.spec.scenario import Scenario
from simserve.validation.measured import STATISTICS
from simserve.workload.traces import CountedBy

FloatArray = NDArray[np.float64]
_NO_FRONT_END = ("front_end_per_request", "front_end_per_token", "delivery", "front_end_busy")


@dataclass(frozen=True)
class Recording:
    """Columns of a recorded benchmark in order of arrival, in seconds and tokens; nan where a latency does not exist.

    `clock`: whose latencies these are. `path`: where they come from. `input_len` is what is simulated: the server's
    count of a prompt's tokens, or the client's where no other is known (`input_counted_by`). `client_input_len` is the
    client's, None where it was not recorded.
    """

    path: Path
    arrival: FloatArray
    input_len: NDArray[np.int64]
    output_len: NDArray[np.int64]
    latencies: Mapping[str, FloatArray]
    clock: Literal["client", "engine"]
    client_input_len: NDArray[np.int64] | None = None
    input_counted_by: CountedBy = "server"

    @property
    def duration(self) -> float:
        """From the first arrival to the last answer."""
        return float(np.max(self.arrival + self.latencies["e2e"]) - self.arrival[0])


def read_recording(path: Path, chat_template_tokens: int | None = None) -> Recording:
    """Recording of a `.json` (`vllm bench serve --save-detailed`), `.jsonl` or `.csv` file.

    `chat_template_tokens` are what the server adds to every prompt that the client counted (chat template, BOS token),
    None where that is not known.

    Raises:
        ScenarioError: the file cannot be read, has not what a replay needs, or has the server's count already.
    """
    readers = {".json": _read_bench, ".jsonl": _read_jsonl, ".csv": _read_csv}
    if path.suffix not in readers:
        raise ScenarioError(f"{path}: expected a .json, .jsonl or .csv file")
    try:
        recording = readers[path.suffix](path)
    except OSError as error:
        raise ScenarioError(f"{path}: {(error.strerror or 'cannot be read').lower()}") from None
    except KeyError as error:
        raise ScenarioError(f"{path}: has no {error.args[0]!r}, which a replay needs") from None
    except (ValueError, TypeError, UnicodeDecodeError, csv.Error) as error:
        raise ScenarioError(f"{path}: cannot be read as a recorded benchmark: {error}") from None
    if recording.arrival.size == 0:
        raise ScenarioError(f"{path}: holds no completed request")
    return recording if chat_template_tokens is None else _templated(recording, chat_template_tokens)


def _templated(recording: Recording, template: int) -> Recording:
    """The recording with what the server made of the prompts that the client counted."""
    if recording.input_counted_by == "server":
        raise ScenarioError(
            f"{recording.path}: holds the server's count of the prompts' tokens, its chat template inside: "
            "take chat_template_tokens out"
        )
    return replace(recording, input_len=recording.input_len + template, input_counted_by="server")


def _read_bench(path: Path) -> Recording:
    """Detailed result of `vllm bench serve`; requests that failed are left out."""
    result = json.loads(path.read_text(encoding="utf-8"))
    if not isinstance(result, dict) or "ttfts" not in result:
        raise KeyError("ttfts (written by --save-detailed)")
    errors = result.get("errors") or [""] * len(result["ttfts"])
    kept = np.array([not error for error in errors], dtype=np.bool_)
    ttft, start = (np.array(result[name], dtype=np.float64)[kept] for name in ("ttfts", "start_times"))
    after = np.array([sum(gaps) for gaps in result["itls"]], dtype=np.float64)[kept]
    lengths = [np.array(result[name], dtype=np.int64)[kept] for name in ("input_lens", "output_lens")]
    e2e = np.array(result["latencies"], dtype=np.float64)[kept] if result.get("latencies") else ttft + after
    recording = _recording(path, start, [*lengths, lengths[0]], (ttft, e2e), "client")
    return replace(recording, input_counted_by="client")


def _read_jsonl(path: Path) -> Recording:
    """One request a line, by the engine's clock: arrival_time, queued_ts, first_token_ts, last_token_ts and tokens.

    `input_toks` are the server's, `client_input_toks`, where every line has them, the client's.
    """
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    names = ("arrival_time", "queued_ts", "first_token_ts", "last_token_ts")
    arrival, queued, first, last = (np.array([row[name] for row in rows], dtype=np.float64) for name in names)
    lengths = _lengths(rows, ["input_toks", "output_toks"], "client_input_toks")
    return _recording(path, arrival, lengths, (first - queued, last - queued), "engine")


def _read_csv(path: Path) -> Recording:
    """One request a row, by the client's clock: arrival_s, prompt_len, output_len, ttft_s, e2e_s.

    `prompt_len` is the server's, `client_prompt_len`, where there is such a column, the client's.
    """
    with path.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    arrival, ttft, e2e = (np.array([float(row[name]) for row in rows]) for name in ("arrival_s", "ttft_s", "e2e_s"))
    lengths = _lengths(rows, ["prompt_len", "output_len"], "client_prompt_len")
    return _recording(path, arrival, lengths, (ttft, e2e), "client")


def _lengths(rows: Sequence[Mapping[str, Any]], names: list[str], client: str) -> list[NDArray[np.int64]]:
    """Columns of tokens, that of the client's count last, where every row has it."""
    given = [*names, client] if all(client in row for row in rows) else names
    return [np.array([int(row[name]) for row in rows], dtype=np.int64) for name in given]


def _recording(
    path: Path,
    arrival: FloatArray,
    lengths: Sequence[NDArray[np.int64]],
    times: tuple[FloatArray, FloatArray],
    clock: Literal["client", "engine"],
) -> Recording:
    """In order of arrival; `lengths` are those of prompts, of answers and, where known, of prompts by the client."""
    order = np.argsort(arrival, kind="stable")
    input_len, output_len, *by_client = (each[order] for each in lengths)
    ttft, e2e = (each[order] for each in times)
    tpot = np.where(output_len > 1, (e2e - ttft) / np.maximum(output_len - 1, 1), np.nan)
    latencies = {"ttft": ttft, "tpot": tpot, "e2e": e2e}
    start = arrival[order]
    return Recording(
        path=path,
        arrival=start - (start[0] if start.size else 0.0),
        input_len=input_len,
        output_len=output_len,
        latencies=latencies,
        clock=clock,
        client_input_len=by_client[0] if by_client else None,
    )


@contextmanager
def replayed(scenario: Scenario, recording: Recording) -> Iterator[Scenario]:
    """The scenario with the arrivals and lengths of a recording, which lie in a file as long as the context is open.

    Where the engine's clock was recorded, the front end takes no time.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.csv"
        with path.open("w", newline="") as file:
            writer = csv.writer(file)
            counted = "client_input_len" if recording.input_counted_by == "client" else "input_len"
            writer.writerow(["arrival", counted, "output_len"])
            columns = (recording.arrival.tolist(), recording.input_len.tolist(), recording.output_len.tolist())
            writer.writerows(zip(*columns, strict=True))
        changes = [f"workload={{trace: {{file: {json.dumps(str(path))}, format: csv}}}}", "run={}"]
        if recording.clock == "engine":
            changes += [f"cost.host.{name}=0 s" for name in _NO_FRONT_END]
        yield scenario.with_overrides(changes)


def replay(scenario: Scenario, recording: Recording) -> dict[str, FloatArray]:
    """Predicted latencies of each request of a recording, by its clock, in seconds; nan where there is none.

    Raises:
        ScenarioError: the deployment cannot exist.
    """
    with replayed(scenario, recording) as ready:
        result = simulate(ready)
    return predicted_latencies(result, recording.clock)


def predicted_latencies(result: Result, clock: str) -> dict[str, FloatArray]:
    """Latencies of completed requests by the client's or the engine's clock, in seconds."""
    from simserve.report.metrics import e2el, tpot, ttft

    requests = result.requests
    done = requests["status"] == COMPLETED
    outside = taken_in(result) - requests["arrival"] if clock == "engine" else 0.0
    found = {"ttft": ttft(requests) - outside, "tpot": tpot(requests), "e2e": e2el(requests) - outside}
    return {name: np.where(done, values, np.nan) for name, values in found.items()}


def taken_in(result: Result) -> FloatArray:
    """When the engine took each request in: at once if it was idle, else after the step that ran."""
    requests, steps = result.requests, result.steps
    seen: FloatArray = requests["engine_arrival"].copy()
    for replica in np.unique(steps["replica"]).tolist():
        mine = requests["replica"] == replica
        start, end, count = (steps[name][steps["replica"] == replica] for name in ("start", "end", "steps"))
        at = seen[mine]
        row = np.maximum(np.searchsorted(start, at, side="right") - 1, 0)
        length = (end[row] - start[row]) / count[row]
        boundary = start[row] + np.ceil((at - start[row]) / length) * length
        seen[mine] = np.where((at >= start[row]) & (at < end[row]), np.minimum(boundary, end[row]), at)
    earliest: FloatArray = np.fmin(seen, requests["scheduled"])
    return earliest


class ReplayError(NamedTuple):
    """One statistic of a replay, in seconds, or in requests or tokens per second."""

    metric: str
    measured: float
    predicted: float

    @property
    def error(self) -> float:
        """Relative: predicted / measured - 1."""
        return self.predicted / self.measured - 1


def replay_errors(recording: Recording, predicted: Mapping[str, FloatArray]) -> list[ReplayError]:
    """Mean and percentiles of each latency, and the output throughput over the whole run."""
    found = [
        ReplayError(f"{statistic}_{name}", measured, simulated)
        for name, latencies in recording.latencies.items()
        for statistic, measured, simulated in zip(
            STATISTICS, _statistics(latencies), _statistics(predicted[name]), strict=True
        )
    ]
    tokens = float(recording.output_len.sum())
    ends = recording.arrival + predicted["e2e"]
    simulated = tokens / (float(np.nanmax(ends)) - float(recording.arrival[0]))
    return [*found, ReplayError("output_throughput", tokens / recording.duration, simulated)]


def _statistics(values: FloatArray) -> list[float]:
    values = values[~np.isnan(values)]
    if values.size == 0:
        return [float("nan")] * len(STATISTICS)
    return [float(values.mean()), *np.percentile(values, [float(each[1:]) for each in STATISTICS[1:]]).tolist()]


def replay_report(scenario: Scenario, recording: Recording) -> dict[str, Any]:
    """Replay and its errors as plain data: `requests`, `clock` and per metric `measured`, `predicted`, `error`.

    `input_tokens_counted_by` and `input_tokens_client_share` say whose count of the prompts was simulated, and what the
    client's is of it.
    """
    errors = replay_errors(recording, replay(scenario, recording))
    metrics = {
        each.metric: {"measured": each.measured, "predicted": each.predicted, "error": each.error} for each in errors
    }
    return {
        "requests": int(recording.arrival.size),
        "clock": recording.clock,
        "input_tokens_counted_by": recording.input_counted_by,
        "input_tokens_client_share": _client_share(recording),
        "metrics": metrics,
    }


def _client_share(recording: Recording) -> float | None:
    if recording.client_input_len is None:
        return None
    return float(recording.client_input_len.sum() / recording.input_len.sum())
