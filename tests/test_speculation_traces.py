"""The scheduler under speculative decoding decides what vLLM's decided in recorded runs, field by field."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from workloads import workloads

from simserve.engine.acceptance import Acceptance
from simserve.engine.drafts import Drafts, Speculation, speculation_by
from simserve.engine.request_wise import RequestWise
from simserve.validation.recording import SchedulerWorkload, parse_workload
from simserve.validation.replay import Replay

TRACES = sorted((Path(__file__).parent / "speculation_traces").glob("*.json.gz"))
UNORDERED = ("got_token", "finished")


def steps_of(workload: SchedulerWorkload, speculation: Speculation, acceptance: Acceptance) -> list[dict[str, Any]]:
    """Steps of a workload under speculation, in the recorder's format; block counts are checked after each."""
    replay = Replay(workload)
    replay.scheduler = RequestWise(replay.scheduler.config, Drafts(speculation, acceptance))
    steps = []
    while not replay.is_over:
        steps.append(in_any_order(replay.step()))
        replay.scheduler.ledger.pool.check()
    return steps


def in_any_order(step: dict[str, Any]) -> dict[str, Any]:
    """A step with the lists sorted whose order means nothing here."""
    return step | {name: sorted(step[name]) for name in UNORDERED if name in step}


def numbered(content: dict[str, Any]) -> dict[str, Any]:
    """The workload with its requests named by their rows, as draws know them."""
    rows = {request["id"]: str(row) for row, request in enumerate(content["requests"])}
    requests = [
        request | {name: rows[request[name]] for name in ("id", "parent") if request.get(name) is not None}
        for request in content["requests"]
    ]
    return content | {"requests": requests}


@pytest.mark.parametrize("path", TRACES, ids=lambda path: path.name.removesuffix(".json.gz"))
def test_scheduler_decides_what_vllm_decided(path: Path) -> None:
    trace = json.loads(gzip.decompress(path.read_bytes()))
    told = trace["speculation"]
    speculation = speculation_by(told["method"], told["k"])
    acceptance = Acceptance(told["acceptance"], told["match_rate"], told["seed"])
    steps = steps_of(parse_workload(trace["workload"]), speculation, acceptance)
    for ours, recorded in zip(steps, trace["steps"], strict=True):
        assert ours == in_any_order(recorded)


def test_all_recorded_traces_are_here() -> None:
    assert len(TRACES) == 17


@given(workloads())
@settings(max_examples=100)
def test_without_drafts_it_decides_what_the_scheduler_decides(content: dict[str, Any]) -> None:
    """Synchronous and asynchronous, with aborts, by priority, with a full pool."""
    workload = parse_workload(numbered(content))
    plain = Replay(workload)
    expected = []
    while not plain.is_over:
        expected.append(in_any_order(plain.step()))
    assert steps_of(workload, speculation_by("ngram", 0), Acceptance((), 1.0, 0)) == expected
