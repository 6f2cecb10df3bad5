"""The oracle restates vLLM's scheduler: it must reproduce every recorded trace, field by field."""

import gzip
import json
from pathlib import Path

import pytest
from recorder import drive

GOLDEN = Path(__file__).parent / "golden"
WORKLOADS = sorted(path.name.removesuffix(".in.json") for path in GOLDEN.glob("*.in.json"))


def with_key_order(step: dict) -> dict:
    return step | {"scheduled": list(step["scheduled"].items())} if "scheduled" in step else step


def test_all_recorded_workloads_are_here():
    assert len(WORKLOADS) == 52


@pytest.mark.parametrize("name", WORKLOADS)
def test_oracle_reproduces_the_recorded_trace(name):
    workload = json.loads((GOLDEN / f"{name}.in.json").read_text())
    recorded = json.loads(gzip.decompress((GOLDEN / f"{name}.trace.json.gz").read_bytes()))
    trace = drive(workload)
    for ours, theirs in zip(trace["steps"], recorded["steps"], strict=False):
        assert with_key_order(ours) == with_key_order(theirs)
    assert list(trace["summary"]) == list(recorded["summary"])
    del recorded["oracle"]
    assert trace == recorded
