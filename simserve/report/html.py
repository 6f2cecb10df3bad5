"""The page of a run: the question, the answer, the why, and how far to trust it, in one self-contained file."""

from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

from simserve.report.explain import explanations
from simserve.report.page import figure_block, numbers, page, table
from simserve.report.plots import gantt_plot, latency_cdf_plot, memory_plot, save_figure, step_time_plot, timeline_plot
from simserve.report.plots.style import inline_svg
from simserve.report.plots.timeline import MAX_BARS
from simserve.report.question import question_facts
from simserve.report.summary import Summary
from simserve.report.text import count, limit_ms, ms, number, percent

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from simserve.report.run_folder import RunFolder

LATENCIES = {
    "ttft": ("TTFT", "arrival to first token, at the client, queue included"),
    "tpot": ("TPOT", "(last - first token) / (tokens - 1), of each request with more than one token"),
    "itl": ("ITL", "all gaps between successive tokens, of all requests together; a preemption is one gap"),
    "e2el": ("E2EL", "arrival to last token, at the client"),
    "queue_time": ("Queue", "arrival at the engine to first being scheduled"),
    "engine_ttft": ("Engine TTFT", "the same as TTFT by the engine's clock: without front end and delivery"),
}
STATISTICS = ("mean", "median", "std", "p90", "p95", "p99")
CAPTIONS = {
    "latency": "How latencies spread: the share of requests (for ITL: of gaps) that took at most so long.",
    "timeline": "The run over time, summed over replicas, as means over short stretches.",
    "step_time": "What the GPU's time went into; host is time in which the GPU waited for the engine.",
    "memory": "What one GPU's memory holds. What is left of the budget becomes KV blocks.",
    "requests": "Each request from arrival to last token.",
}


def write_report(run: "RunFolder") -> Path:
    """Write report.html and plots/*.svg, *.png into the folder of a run; return the page."""
    plots = run.path / "plots"
    plots.mkdir(exist_ok=True)
    pictures = {}
    for name, drawn in report_figures(run).items():
        svg, _ = save_figure(drawn, plots / name)
        pictures[name] = inline_svg(svg.read_text(encoding="utf-8"), name, CAPTIONS[name])
    path = run.path / "report.html"
    partial = path.with_suffix(".partial")
    partial.write_text(report_page(run, pictures), encoding="utf-8")
    return partial.replace(path)


def report_figures(run: "RunFolder") -> "dict[str, Figure]":
    """The pictures of a run by name."""
    figures = {
        "latency": latency_cdf_plot(run.result),
        "timeline": timeline_plot(run.result),
        "step_time": step_time_plot(run.summary.get("step_time_breakdown") or {}),
        "memory": memory_plot(run.result.memory),
    }
    if 0 < run.result.requests["arrival"].size <= MAX_BARS:
        figures["requests"] = gantt_plot(run.result)
    return figures


def report_page(run: "RunFolder", pictures: dict[str, str]) -> str:
    """The page as text; `pictures` are SVG elements by name."""
    summary = run.summary
    blocks = {name: figure_block(picture, CAPTIONS[name]) for name, picture in pictures.items()}
    facts = question_facts(run.result.scenario, summary)
    return page(
        {
            "title": escape(str(summary["label"])),
            "description": escape(run.result.scenario.description),
            "verdict": _verdict(summary),
            "tiles": numbers(_tiles(summary)),
            "question": table(["", ""], [[name, value] for name, value in facts.items()], headless=True),
            "scenario": escape(run.result.scenario.to_yaml()),
            "latencies": _latency_table(summary),
            "objectives": _objective_table(summary),
            "classes": _class_table(summary),
            "latency_picture": blocks.pop("latency"),
            "why": "".join(f"<li>{escape(line)}</li>" for line in explanations(summary)),
            "counters": numbers(_counters(summary)),
            "pictures": "".join(blocks.values()),
            "trust": escape(summary["trust"][:1].upper() + summary["trust"][1:]),
            "definitions": "".join(f"<dt>{name}</dt><dd>{escape(text)}</dd>" for name, text in LATENCIES.values()),
        }
    )


def _verdict(summary: Summary) -> str:
    """The first line: was the objective met, and does the load last."""
    if summary["slo_met"] is None:
        kind, text = "plain", "No objective was set."
    else:
        kind = "good" if summary["slo_met"] else "bad"
        text = f"{'Meets' if summary['slo_met'] else 'Misses'} the objective"
        if summary["slo_attainment"] is not None:
            text += f": {percent(summary['slo_attainment'])} of requests were within all limits."
    if summary["saturation"] not in (None, "stable"):
        kind = "bad"
        text += f" The fleet was {summary['saturation']}."
    return f'<p class="verdict {kind}">{escape(text)}</p>'


def _tiles(summary: Summary) -> dict[str, str]:
    tiles = {
        "p95 TTFT": ms(summary["p95_ttft_ms"]),
        "p95 TPOT": ms(summary["p95_tpot_ms"]),
        "p95 E2EL": ms(summary["p95_e2el_ms"]),
        "output tokens/s": number(summary["output_throughput"]),
        "requests/s": number(summary["request_throughput"]),
        "tokens/s for a user": number(summary["tokens_per_s_per_user"]),
        "load": str(summary["saturation"] or "unknown"),
    }
    if summary["request_goodput"] is not None:
        tiles["goodput, requests/s"] = number(summary["request_goodput"])
    if summary["cost_per_million_output_tokens"] is not None:
        tiles["per million output tokens"] = f"$ {summary['cost_per_million_output_tokens']:.2f}"
    return tiles


def _latency_table(summary: Summary) -> str:
    rows = [
        [name, *(number(summary[f"{statistic}_{key}_ms"]) for statistic in STATISTICS), count(summary[f"n_{key}"])]
        for key, (name, _) in LATENCIES.items()
    ]
    return table(["ms", *STATISTICS, "n"], rows)


def _objective_table(summary: Summary) -> str:
    rows = [
        [
            *([", ".join(verdict["classes"])] if len(summary["class_names"]) > 1 else []),
            f"p{verdict['percentile']:g} {LATENCIES[latency][0]}",
            limit_ms(limit["limit_ms"]),
            ms(limit["value_ms"]),
            "met" if limit["met"] else "missed",
        ]
        for verdict in summary["slo"]
        for latency, limit in verdict["limits"].items()
    ]
    heads = [*(["classes"] if len(summary["class_names"]) > 1 else []), "objective", "limit", "found", ""]
    return table(heads, rows) if rows else ""


def _class_table(summary: Summary) -> str:
    keys = ("p50_ttft_ms", "p95_ttft_ms", "p50_tpot_ms", "p95_tpot_ms", "p95_e2el_ms")
    rows = [
        [
            name,
            count(found["completed"]),
            count(found["num_prompts"] - found["completed"]),
            *(number(found[key]) for key in keys),
            number(found["output_throughput"]),
            percent(found["slo_attainment"]),
        ]
        for name, found in summary["classes"].items()
    ]
    heads = ["class", "completed", "other", *(key.replace("_", " ").upper().replace("P", "p", 1) for key in keys)]
    heads = [head.replace(" MS", "") for head in heads]
    return "<h3>By class (latencies in ms)</h3>" + table([*heads, "tokens/s", "within limits"], rows) if rows else ""


def _counters(summary: Summary) -> dict[str, str]:
    statuses = {name.replace("_", " "): count(value) for name, value in summary["statuses"].items() if value}
    return {
        **statuses,
        "duration": f"{number(summary['duration'])} s",
        "left out as warm-up": count(summary["window"]["excluded_requests"]),
        "preemptions": count(summary["num_preemptions"]),
        "prefix cache hits": percent(summary["prefix_cache_hit_rate"]),
        "peak KV usage": percent(summary["kv_cache_usage_peak"]),
        "peak output tokens/s": number(summary["max_output_tokens_per_s"]),
        "peak requests at once": count(summary["max_concurrent_requests"]),
    }
