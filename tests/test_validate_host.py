"""The front end's time, estimated from measured runs and checked on the groups that are left out."""

from pathlib import Path

import pytest
from measured_rows import COLUMNS, OPEN_LOOP, write_rows
from typer.testing import CliRunner

from simserve.cli import app
from simserve.planning.executor import SerialExecutor
from simserve.validation.host_fit import DEFAULT, constant_of, front_ends, front_ends_without
from simserve.validation.measured import MeasuredRun, read_measured
from simserve.validation.prediction import Prediction, predict
from simserve.validation.table import left_out_table, validate_table


def prediction(model: str, measured: float, predicted: float, **cells: str) -> Prediction:
    """A row whose mean TTFT is measured and predicted in ms, with 2 ms of front end in the prediction."""
    texts = dict.fromkeys(COLUMNS, "") | OPEN_LOOP | {"id": f"{model}-{measured}", "model": model} | cells
    run = MeasuredRun(texts, {"ttft_mean_ms": measured, "e2e_mean_ms": 200.0})
    return Prediction(run, {"ttft_mean_ms": predicted}, front_end=2e-3)


MISSING = [prediction(model, 30, 22) for model in ("a/llama-2-7b", "a/llama-3.1-8b", "a/qwen3-8b")]


def test_what_all_rows_miss_is_the_front_end() -> None:
    estimates = front_ends(MISSING)
    assert list(estimates) == [constant_of(MISSING[0].run)]
    (estimate,) = estimates.values()
    assert estimate.seconds == pytest.approx(10e-3), "2 ms were in, 8 ms are missing"
    assert estimate.rows == 3


def test_one_row_that_is_far_off_moves_nothing() -> None:
    far = prediction("a/yi-34b", 3000, 22)
    (estimate,) = front_ends([*MISSING, far]).values()
    assert estimate.seconds == pytest.approx(10e-3)


def test_a_single_row_does_not_outweigh_the_base() -> None:
    (estimate,) = front_ends(MISSING[:1]).values()
    assert estimate.seconds == pytest.approx(DEFAULT)


@pytest.mark.parametrize(
    "cells",
    [
        {"isl_mean_tok": "7000"},
        {"arrival_process": "closed-loop", "max_concurrency": "64"},
        {"arrival_process": "all-at-t0"},
        {"request_rate_rps": "2000"},
    ],
)
def test_queues_and_long_prompts_tell_nothing_of_the_front_end(cells: dict[str, str]) -> None:
    assert front_ends([prediction("a/yi-34b", 3000, 22, **cells)]) == {}


def test_a_group_is_predicted_by_the_others_alone() -> None:
    odd = [prediction("a/yi-34b", measured, 22) for measured in range(90, 105)]
    hosts = front_ends_without([*MISSING, *odd])
    seconds = [host["front_end_per_request"] for host in hosts]
    assert seconds[0] > 50e-3, "Yi's rows outnumber the two that are left"
    assert seconds[3:] == pytest.approx([10e-3] * 15), "Yi's rows know nothing of Yi"
    assert front_ends_without(odd) == [{"front_end_per_request": DEFAULT}] * 15


def test_host_times_shift_the_ttft_and_nothing_else() -> None:
    texts = dict.fromkeys(COLUMNS, "") | OPEN_LOOP | {"n_requests": "60"}
    run = MeasuredRun(texts, {"ttft_mean_ms": 25})
    near, far = (predict(run, {"front_end_per_request": seconds}) for seconds in (1e-3, 11e-3))
    assert far.values["ttft_mean_ms"] - near.values["ttft_mean_ms"] == pytest.approx(10, abs=0.5)
    assert far.values["tpot_mean_ms"] == pytest.approx(near.values["tpot_mean_ms"], rel=1e-3)
    assert far.front_end == 11e-3


def test_the_left_out_table_has_the_same_rows(tmp_path: Path) -> None:
    rows = read_measured(write_rows(tmp_path / "t.csv", {**OPEN_LOOP, "n_requests": "60"}))
    report = validate_table(rows, SerialExecutor())
    again = left_out_table(report.predictions, SerialExecutor())
    assert [each.run.name for each in again.predictions] == ["made-up-s0"]
    assert again.predictions[0].front_end == DEFAULT
    table = write_rows(tmp_path / "t.csv", {**OPEN_LOOP, "n_requests": "60"})
    done = CliRunner().invoke(app, ["validate", "table", str(table), "--left-out", "--workers", "1"])
    assert done.exit_code == 0, done.output
    assert "that the others give" in done.stdout
