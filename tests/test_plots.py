"""Pictures: they show the numbers of the run, leave no global state behind, and come out the same every time."""

from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest
from made_result import MILLISECOND, Toy, poisson, with_status
from matplotlib.figure import Figure
from scenario_text import scenario

from simserve.report.plots import (
    gantt_plot,
    latency_cdf_plot,
    latency_throughput_plot,
    memory_plot,
    pareto_plot,
    save_figure,
    step_time_plot,
    timeline_plot,
)
from simserve.report.plots.curves import frontier
from simserve.report.plots.style import inline_svg
from simserve.report.series import series
from simserve.spec.result import Result

MEMORY = {"total": 80 * 2**30, "weights": 15 * 2**30, "activations": 2**30, "cuda_graphs": 2**29, "framework": 2**29,
          "kv": 55 * 2**30, "source": "memory ledger"}  # fmt: skip


def row(rate: float, p95: float | None, **more: Any) -> dict[str, Any]:
    found = {f"{p}_{m}_ms": p95 for p in ("p50", "p95", "p99") for m in ("ttft", "tpot")}
    return {"completed": 10, "request_rate": rate, "saturation": "stable"} | found | more


@pytest.fixture
def result() -> Result:
    toy = poisson(60, rate=20, stalls={5: {2: 20}}, replicas=2)
    return toy.run(scenario=scenario("slo={ttft: 60 ms, itl: 7 ms}"))


def texts(fig: Figure) -> list[str]:
    return [text.get_text() for text in fig.findobj(mpl.text.Text) if text.get_text()]


def test_latency_throughput_shows_each_percentile_against_load() -> None:
    points = [row(4, 90.0), row(2, 50.0), row(8, None), row(16, 700.0, saturation="overloaded")]
    fig = latency_throughput_plot(points, slo={"ttft": 0.2}, capacity=9.5)
    ttft, tpot = fig.axes
    assert ttft.get_yscale() == "log"
    p95 = ttft.get_lines()[1]
    assert p95.get_xdata().tolist() == [2, 4, 16]
    assert p95.get_ydata().tolist() == [50, 90, 700]
    found = texts(fig)
    assert {"SLO 200 ms", "capacity 9.5", "p50", "p95", "p99", "overloaded", "TTFT (ms)", "TPOT (ms)"} <= set(found)
    assert "request rate (requests/s)" in found
    filled = [(markers.get_facecolors()[:, 3] > 0).tolist() for markers in ttft.collections]
    assert filled == [[True, True, False]] * 3
    assert ttft.get_ylim()[1] > 700
    assert not any(line.get_ydata()[0] == 200 for line in tpot.get_lines())


def test_latency_throughput_takes_a_data_frame_and_one_curve_a_value() -> None:
    points = pd.DataFrame([row(2, 50.0, gpu="a"), row(4, 60.0, gpu="a"), row(2, 20.0, gpu="b"), row(4, 90.0, gpu="b")])
    points.loc[len(points)] = {"gpu": "c", "request_rate": 2.0, "completed": np.nan}
    fig = latency_throughput_plot(points, by="gpu")
    assert {"gpu a", "gpu b"} <= set(texts(fig))
    assert "gpu c" not in texts(fig)
    assert len(fig.axes[0].get_lines()) == 6


def test_several_runs_at_one_load_are_joined_at_their_median() -> None:
    points = [row(2, 10.0), row(2, 30.0), row(2, 20.0), row(4, 50.0)]
    axes = latency_throughput_plot(points).axes[0]
    assert axes.get_lines()[1].get_ydata().tolist() == [20, 50]
    band = axes.collections[2]
    assert band.get_datalim(axes.transData).intervaly.tolist() == [10, 50]


def test_no_run_no_curve() -> None:
    assert "no run has a TTFT" in texts(latency_throughput_plot([{"error": "weights do not fit"}]))


def test_frontier_holds_what_no_other_beats() -> None:
    x = np.array([10.0, 20.0, 30.0, 15.0, 30.0, 5.0])
    y = np.array([90.0, 50.0, 20.0, 95.0, 10.0, 80.0])
    assert frontier(x, y) == [3, 1, 2]


def test_pareto_names_the_best_trades() -> None:
    points = [
        {"completed": 1, "tokens_per_s_per_user": u, "tokens_per_s_per_gpu": g, "cluster.tensor_parallel": tp}
        for u, g, tp in ((100.0, 900.0, 1), (150.0, 500.0, 2), (140.0, 300.0, 4), (None, 300.0, 8))
    ]
    found = texts(pareto_plot(points, label=["cluster.tensor_parallel"]))
    assert "1   tensor_parallel 1" in found
    assert "2   tensor_parallel 2" in found
    assert not any("tensor_parallel 4" in text for text in found)


def test_cdf_ends_at_the_largest_value_of_each_latency(result: Result) -> None:
    panels = latency_cdf_plot(result).axes
    requests = result.requests
    ttft = (requests["first_token"] - requests["arrival"]).max() * 1e3
    assert panels[0].get_lines()[0].get_xdata()[-1] == pytest.approx(ttft)
    itl = panels[2].get_lines()[0]
    assert itl.get_ydata()[0] == 0
    assert itl.get_ydata()[-1] == pytest.approx(1)
    assert {"SLO 60 ms", "SLO 7 ms"} <= set(texts(panels[0].figure))


def test_cdf_has_one_line_a_class() -> None:
    classes = "workload.classes=[{name: chat, share: 0.5, slo: {ttft: 33 ms}}, {name: batch, share: 0.5}]"
    result = poisson(60, rate=20).run(scenario=scenario(classes), class_names=("chat", "batch"))
    result.requests["class_index"][:] = np.arange(60) % 2
    found = texts(latency_cdf_plot(result))
    assert {"chat", "batch", "SLO 33 ms"} <= set(found)


def test_series_means_integrate_to_the_whole(result: Result) -> None:
    found = series(result, stretches=37)
    assert found is not None
    width = np.diff(found.edges)
    steps = result.steps
    assert found.output_rate @ width == pytest.approx(result.requests["output_len"].sum())
    assert found.prefill_rate @ width == pytest.approx(steps["prefill_tokens"].sum())
    assert found.preemptions.sum() == steps["preemptions"].sum()
    busy = (steps["end"] - steps["start"]) @ steps["running"]
    assert found.running @ width == pytest.approx(busy)
    used = (steps["end"] - steps["start"]) @ (1 - steps["free_blocks"] / 4096) / 2
    assert found.kv_usage is not None
    assert found.kv_usage @ width == pytest.approx(used)


def test_timeline_marks_preemptions(result: Result) -> None:
    found = texts(timeline_plot(result))
    assert {"running", "waiting", "preemption", "simulated time (s)"} <= set(found)
    assert "preemption" not in texts(timeline_plot(Toy([0], [10], [5]).run(scenario=scenario())))


def test_gantt_shows_at_most_so_many_requests(result: Result) -> None:
    fig = gantt_plot(result, limit=25)
    assert "The first 25 requests" in texts(fig)
    assert [len(bars) for bars in fig.axes[0].containers] == [25, 25, 25]


def test_gantt_of_requests_that_were_not_served(result: Result) -> None:
    for column in ("scheduled", "first_token", "finish"):
        result.requests[column][7] = np.nan
    with_status(result, 7, "unfinished")
    assert [len(bars) for bars in gantt_plot(result).axes[0].containers] == [60, 59, 59]


def test_step_time_is_in_shares_of_the_whole() -> None:
    fig = step_time_plot({"linear": 3.0, "attention_decode": 1.0, "nothing": 0.0})
    fig.draw_without_rendering()
    assert {"linear layers", "attention of decodes", "75.0 %", "25.0 %"} <= set(texts(fig))
    assert "nothing" not in texts(fig)


def test_memory_adds_up_to_the_card() -> None:
    found = texts(memory_plot(MEMORY))
    assert {"weights 15.0", "KV cache 55.0", "CUDA graphs 0.5", "left alone 8.0"} <= set(found)


@pytest.mark.parametrize("draw", [latency_cdf_plot, timeline_plot, gantt_plot])
def test_nothing_to_show_is_said(draw: Any) -> None:
    result = Toy([], [], []).run(scenario=scenario())
    assert any("no " in text for text in texts(draw(result)))
    assert texts(memory_plot({})) == ["this run has no memory ledger"]
    assert texts(step_time_plot({})) == ["the time of the steps is not broken down"]


def test_no_global_state(result: Result) -> None:
    before = dict(mpl.rcParams)
    timeline_plot(result)
    assert dict(mpl.rcParams) == before
    assert not mpl._pylab_helpers.Gcf.figs


def test_own_settings_do_not_change_the_picture(tmp_path: Path) -> None:
    save_figure(memory_plot(MEMORY), tmp_path / "a")
    with mpl.rc_context({"font.size": 30, "xtick.direction": "in", "savefig.bbox": "tight"}):
        save_figure(memory_plot(MEMORY), tmp_path / "b")
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()


def test_same_picture_same_bytes(result: Result, tmp_path: Path) -> None:
    for name in ("a", "b"):
        save_figure(timeline_plot(result), tmp_path / name)
    for kind in ("svg", "png"):
        assert (tmp_path / f"a.{kind}").read_bytes() == (tmp_path / f"b.{kind}").read_bytes()


def test_inline_picture_takes_the_colours_of_the_page(tmp_path: Path) -> None:
    svg, _ = save_figure(memory_plot(MEMORY), tmp_path / "memory")
    text = inline_svg(svg.read_text(), "memory", "what fits")
    assert text.startswith('<svg role="img" aria-label="what fits"')
    assert "var(--ink)" in text
    assert "#ffffff" not in text
    assert 'id="memory-figure_1"' in text
    assert "width=" not in text[: text.index(">")]


def test_time_axis_suits_the_length_of_the_run() -> None:
    toy = Toy([0, 400 * 10**13], [10, 10], [3, 3], base=5 * MILLISECOND)
    assert "simulated time (min)" in texts(timeline_plot(toy.run(scenario=scenario())))
