"""A step as a trace for Perfetto, and as a picture: what CPU, GPU and HBM did when."""

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from scenario_text import scenario
from typer.testing import CliRunner

from simserve.cli import app
from simserve.engine.gpu.timeline import Copy, step_timeline
from simserve.report.plots import launches_plot
from simserve.report.timeline import chrome_trace, write_timeline
from simserve.spec.timeline import StepTimeline

EAGER = "engine.enforce_eager=true"
LAYERS = 16
KERNELS = 1 + LAYERS * 10 + 3
"""Embedding, ten kernels a layer of Llama, last norm, lm_head and sampler."""


def step(*overrides: str, decodes: int = 1, copies: tuple[Copy, ...] = ()) -> StepTimeline:
    question = scenario("model=llama-3.2-1b", "cluster.gpu=b200-sxm-180gb", *overrides)
    return step_timeline(question, [], decodes, 1024 * decodes, decodes, copies=copies)


def events(trace: dict[str, Any], **fields: object) -> list[dict[str, Any]]:
    """Those events of a trace whose fields have these values."""
    return [event for event in trace["traceEvents"] if all(event.get(name) == fields[name] for name in fields)]


def test_an_eager_step_has_a_launch_for_each_kernel_and_a_graph_one_for_all() -> None:
    eager, graph = step(EAGER), step()
    assert (eager.graph, graph.graph) == ("none", "full")
    assert len(eager.kernels) == len(graph.kernels) == KERNELS
    assert len(eager.launches) == KERNELS
    assert [launch.name for launch in graph.launches] == ["graph: embedding to final_norm", "lm_head", "sampler"]
    assert [kernel.launch for kernel in graph.kernels] == [0] * (KERNELS - 2) + [1, 2]


def test_launches_come_one_after_the_other_and_kernels_after_their_launch() -> None:
    for timeline in (step(EAGER), step(), step("engine.cuda_graph.mode=piecewise")):
        for spans in (timeline.launches, timeline.kernels):
            assert all(before.end <= after.start for before, after in pairwise(spans))
        for kernel in timeline.kernels:
            assert kernel.start >= timeline.launches[kernel.launch].end
        assert timeline.time == timeline.kernels[-1].end


def test_a_trace_has_a_complete_event_for_each_span_in_microseconds() -> None:
    timeline = step(EAGER)
    trace = chrome_trace(timeline)
    kernels = events(trace, ph="X", cat="kernel")
    assert [event["name"] for event in kernels] == [kernel.name for kernel in timeline.kernels]
    for event, kernel in zip(kernels, timeline.kernels, strict=True):
        assert event["ts"] == pytest.approx(kernel.start * 1e6)
        assert event["dur"] == pytest.approx((kernel.end - kernel.start) * 1e6)
        assert event["args"].keys() == {"bytes", "flops", "bound", "gb_per_s"}
    assert len(events(trace, ph="X", cat="launch")) == KERNELS
    assert [event["name"] for event in events(trace, ph="X", cat="host")] == ["prepare", "wait for the GPU", "update"]
    assert len({event["tid"] for event in events(trace, ph="X")}) == 2


def test_lanes_have_names_and_arrows_lead_from_launches_to_kernels() -> None:
    trace = chrome_trace(step())
    names = [event["args"]["name"] for event in events(trace, ph="M", name="thread_name")]
    assert names == ["CPU: engine core", "GPU: stream"]
    starts, ends = events(trace, ph="s"), events(trace, ph="f")
    assert [event["id"] for event in starts] == [event["id"] for event in ends] == [0, 1, 2]
    assert all(begin["ts"] < end["ts"] for begin, end in zip(starts, ends, strict=True))


def test_the_hbm_counter_adds_up_to_the_bytes_of_all_kernels() -> None:
    timeline = step(decodes=8)
    levels = events(chrome_trace(timeline), ph="C")
    moved = sum(
        level["args"]["kernels"] * 1e9 * (after["ts"] - level["ts"]) * 1e-6 for level, after in pairwise(levels)
    )
    assert moved == pytest.approx(sum(kernel.bytes for kernel in timeline.kernels))
    assert levels[-1]["args"]["kernels"] == 0.0


def test_copies_have_a_lane_of_their_own_and_a_part_of_the_counter() -> None:
    trace = chrome_trace(step(copies=(Copy(at=1e-3, num_bytes=1e7, bandwidth=50e9),)))
    (copy,) = events(trace, ph="X", cat="copy")
    assert (copy["ts"], copy["dur"]) == (pytest.approx(1000), pytest.approx(200))
    assert max(level["args"]["copies"] for level in events(trace, ph="C")) == pytest.approx(50)


def test_a_written_trace_is_json(tmp_path: Path) -> None:
    trace = chrome_trace(step())
    write_timeline(tmp_path / "step.json", trace)
    assert json.loads((tmp_path / "step.json").read_text()) == trace


def test_the_step_command_writes_a_timeline_beside_its_table(tmp_path: Path) -> None:
    path = tmp_path / "step.json"
    arguments = ["step", "quickstart", "--decodes", "4", "--context", "100", "--prefill", "64"]
    done = CliRunner().invoke(app, [*arguments, "--timeline", str(path)])
    assert done.exit_code == 0
    assert str(path) in done.stderr
    assert done.stdout == CliRunner().invoke(app, arguments).stdout
    trace = json.loads(path.read_text())
    assert "64 prompt tokens, 4 decodes of 100 tokens of context" in trace["otherData"]["step"]
    assert events(trace, name="attention_prefill", ph="X")
    missing = CliRunner().invoke(app, [*arguments, "--timeline", str(tmp_path / "nowhere" / "step.json")])
    assert missing.exit_code == 2


def test_the_picture_shows_gaps_between_eager_kernels_and_none_in_a_graph() -> None:
    eager, graph = step(EAGER), step()
    figure = launches_plot([eager, graph], ["eager", "graph"], window=100e-6)
    assert [axes.get_title(loc="left") for axes in figure.axes] == ["eager", "graph"]
    for axes, timeline in zip(figure.axes, (eager, graph), strict=True):
        begin = timeline.launches[0].start
        launches, kernels = axes.containers
        assert len(launches) == sum(launch.start < begin + 100e-6 for launch in timeline.launches)
        assert len(kernels) == sum(kernel.start < begin + 100e-6 for kernel in timeline.kernels)
        gaps = [after.get_x() - before.get_x() - before.get_width() for before, after in pairwise(kernels)]
        assert (max(gaps) > 1.0) == (timeline is eager)
