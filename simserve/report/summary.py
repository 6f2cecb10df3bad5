"""The numbers of a run: `summary.json`, with the keys of `vllm bench serve` first and ours after them."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from simserve.report.attempts import attempt_counts, when_gone
from simserve.report.evidence import measured_error, per_replica
from simserve.report.kv_waste import kv_waste
from simserve.report.metrics import Columns, completed, metrics_of
from simserve.report.notes import notes_of
from simserve.report.objective import Limit, Verdict, good_requests, judge
from simserve.report.pools import transfer_keys, usable_blocks
from simserve.report.question import configured_load, objective_of, price_per_gpu_hour
from simserve.report.saturation import saturation
from simserve.report.speculation import num_later_tokens, speculation_keys
from simserve.report.statistics import PERCENTILES
from simserve.report.tokens import BoolArray
from simserve.report.trust import optimistic, trust_line
from simserve.report.window import Window, hit_rate, peak_concurrency, peak_output_rate, status_counts
from simserve.spec.result import Result

Summary = dict[str, Any]
"""Ready for JSON: numbers, words, None, and tables of them."""

FAILURES = ("rejected", "timed_out", "cancelled")


def summarize(result: Result) -> Summary:
    """All numbers of a run.

    Throughputs divide what was completed by the time from the first measured arrival to the end of the last measured
    request. Latencies are those of completed requests. A statistic that does not exist is None beside its `n_...`.
    Counters of the engine (`num_preemptions`, `skipped_steps`, step times) are of the whole run, warm-up included.
    """
    requests = result.requests
    window = Window.of(result)
    done = completed(requests, window.measured)
    verdicts = judge(result, window)
    summary = _identity(result, window) | _benchmark(result, window, done, verdicts) | _latencies(result, done)
    summary |= _engine(result, window, done) | _efficiency(result, summary) | _objectives(verdicts)
    summary |= transfer_keys(requests, done)
    summary |= {
        "saturation": saturation(
            requests,
            window.measured,
            window.end,
            result.scenario.cluster.num_engines,
            gone=when_gone(requests, result.attempts),
        ),
        "statuses": status_counts(requests, window.measured),
        **_too_long(result, window.measured, done),
        **attempt_counts(result, window.measured),
        "window": {
            "warmup": result.scenario.run.warmup,
            "start": window.start,
            "end": window.end,
            "excluded_requests": window.excluded,
        },
        "input_tokens_client_share": _client_share(requests, done),
        "class_names": result.class_names,
        "classes": _classes(result, window, done),
        "memory": dict(result.memory),
        "simulated_time": result.meta.get("duration"),
        "measured_error": _measured_error(result, per_replica(result, summary["max_concurrent_requests"])),
        "optimistic": _optimistic(result),
    }
    summary |= speculation_keys(result.meta)
    summary |= {key: value for key, value in result.meta.items() if key not in summary}
    plain: Summary = _plain(summary | {"trust": trust_line(summary), "notes": notes_of(result, summary)})
    return plain


def _identity(result: Result, window: Window) -> Summary:
    """What vLLM writes of a benchmark's set-up; `date` stays empty, so that the same seed gives the same file."""
    load = configured_load(result.scenario)
    return {
        "date": None,
        "endpoint_type": "simserve",
        "backend": "simserve",
        "label": result.scenario.name,
        "model_id": result.scenario.model.name,
        "tokenizer_id": None,
        "num_prompts": int(window.measured.sum()),
        "request_rate": load.request_rate,
        "burstiness": load.burstiness,
        "max_concurrency": load.max_concurrency,
    }


def _benchmark(result: Result, window: Window, done: BoolArray, verdicts: Sequence[Verdict]) -> Summary:
    """vLLM's counts, totals, throughputs and peaks; goodput is what was completed within every limit, per second."""
    requests = result.requests
    counts = status_counts(requests, window.measured)
    input_tokens, output_tokens = (int(requests[name][done].sum()) for name in ("input_len", "output_len"))
    return {
        "duration": window.duration,
        "completed": counts["completed"],
        "failed": sum(counts[status] for status in FAILURES),
        "total_input_tokens": input_tokens,
        "total_output_tokens": output_tokens,
        "request_throughput": _per_second(counts["completed"], window.duration),
        "request_goodput": _per_second(sum(v.good for v in verdicts), window.duration) if verdicts else None,
        "output_throughput": _per_second(output_tokens, window.duration),
        "total_token_throughput": _per_second(input_tokens + output_tokens, window.duration),
        "max_output_tokens_per_s": peak_output_rate(result, done, window.start),
        "max_concurrent_requests": peak_concurrency(requests, done, window.start),
        "rtfx": 0.0,
    }


def _optimistic(result: Result) -> str | None:
    model = result.scenario.model
    latent = "latent" in model.attention_layers
    level = str(result.meta.get("cost_level"))
    return optimistic(level, latent=latent, experts=model.is_moe, parameters=model.num_parameters)


def _measured_error(result: Result, concurrency: int) -> dict[str, Any] | None:
    """Known errors of runs like this one, as they were known when it was made."""
    if "measured_error" in result.meta:
        known: Any = result.meta["measured_error"]
        return known if isinstance(known, dict) else None
    return measured_error(result.scenario, str(result.meta.get("cost_level")), concurrency)


def _too_long(result: Result, measured: BoolArray, done: BoolArray) -> Summary:
    """What `max_model_len` did: answers that it ended, prompts that it left no room for an answer."""
    requests, limit = result.requests, result.scenario.engine.max_model_len
    wanted = requests.get("wanted_output_len", requests["output_len"])
    return {
        "answers_cut": int((done & (requests["input_len"] + wanted > limit)).sum()),
        "prompts_too_long": int((measured & (requests["input_len"] >= limit)).sum()),
    }


def _client_share(requests: Columns, done: BoolArray) -> float | None:
    """Prompt tokens that the client of a trace counted over those simulated, of completed requests with both counts."""
    if "client_input_len" not in requests:
        return None
    both = done & (requests["client_input_len"] >= 0)
    simulated = int(requests["input_len"][both].sum())
    return int(requests["client_input_len"][both].sum()) / simulated if simulated else None


def _latencies(result: Result, done: BoolArray) -> Summary:
    """Statistics of every metric that the run has, vLLM's first."""
    found: Summary = {}
    for metric in metrics_of(result):
        found |= metric.keys(metric.sample(result, done).statistics(PERCENTILES))
    tokens = num_later_tokens(result, done)
    assert found["n_itl"] == tokens, "the step log and the requests disagree on the number of tokens"
    return found


def _engine(result: Result, window: Window, done: BoolArray) -> Summary:
    """What the engine did: preemptions, prefix cache, KV blocks."""
    requests, steps = result.requests, result.steps
    arrival = requests["arrival"][window.measured]
    span = float(arrival.max() - arrival.min()) if arrival.size else 0.0
    cached = result.scenario.engine.enable_prefix_caching
    return {
        "offered_rate": (arrival.size - 1) / span if span > 0 else None,
        "num_preemptions": int(requests["num_preemptions"].sum()),
        "prefix_cache_hit_rate": hit_rate(requests, window.measured) if cached else None,
        "kv_cache_usage_peak": _kv_peak(steps, result.meta),
        "kv_cache_waste": _kv_waste(result, done),
    }


def _kv_peak(steps: Columns, meta: Mapping[str, object]) -> float | None:
    """Largest share of a replica's KV blocks in use after any step, as `vllm:kv_cache_usage_perc` counts it: block 0
    is vLLM's own and cached blocks that nobody holds are free."""
    usable = usable_blocks(meta, steps["replica"])
    if usable is None or steps["free_blocks"].size == 0:
        return None
    return 1 - float(np.min(steps["free_blocks"] / usable))


def _kv_waste(result: Result, done: BoolArray) -> float | None:
    size = result.meta.get("kv_block_size")
    return kv_waste(result.requests, done, size) if isinstance(size, int) else None


def _efficiency(result: Result, summary: Summary) -> Summary:
    """Throughput a GPU and a user, and what tokens cost."""
    gpus = result.scenario.cluster.num_gpus
    price = price_per_gpu_hour(result.scenario)
    per_hour = None if price is None else price * gpus
    return {
        "num_gpus": gpus,
        "tokens_per_s_per_gpu": summary["output_throughput"] / gpus,
        "total_tokens_per_s_per_gpu": summary["total_token_throughput"] / gpus,
        "tokens_per_s_per_user": _speed(summary["mean_tpot_ms"]),
        "p95_tokens_per_s_per_user": _speed(summary["p95_tpot_ms"]),
        "price_per_gpu_hour": price,
        "cost_per_million_output_tokens": _per_million(per_hour, summary["output_throughput"]),
        "cost_per_million_tokens": _per_million(per_hour, summary["total_token_throughput"]),
    }


def _speed(tpot_ms: float | None) -> float | None:
    """Tokens a second that a user sees: 1 / tpot; the p95 user is the one whose tpot is at p95."""
    return 1e3 / tpot_ms if tpot_ms else None


def _per_million(price_per_hour: float | None, per_second: float) -> float | None:
    return price_per_hour / 3600 / per_second * 1e6 if price_per_hour is not None and per_second > 0 else None


def _objectives(verdicts: Sequence[Verdict]) -> Summary:
    """Attainment over all objectives, and the verdict on each; where nobody asked for anything, none was met."""
    good, asked = sum(verdict.good for verdict in verdicts), sum(verdict.requests for verdict in verdicts)
    return {
        "slo_attainment": good / asked if asked else None,
        "slo_met": asked > 0 and all(verdict.met for verdict in verdicts) if verdicts else None,
        "slo": [_verdict_table(verdict) for verdict in verdicts],
    }


def _verdict_table(verdict: Verdict) -> Summary:
    return {
        "classes": list(verdict.classes),
        "percentile": verdict.percentile,
        "attainment": verdict.attainment,
        "met": verdict.met,
        "limits": {limit.metric: _limit_table(limit) for limit in verdict.limits},
    }


def _limit_table(limit: Limit) -> Summary:
    value = None if limit.value is None else limit.value * 1e3
    return {"limit_ms": limit.limit * 1e3, "value_ms": value, "met": limit.met}


def _classes(result: Result, window: Window, done: BoolArray) -> dict[str, Summary]:
    """The same latencies for each class of requests, where there is more than one."""
    if len(result.class_names) < 2:
        return {}
    tables = {}
    for index, name in enumerate(result.class_names):
        rows = result.requests["class_index"] == index
        counts = status_counts(result.requests, window.measured & rows)
        good = good_requests(result, window.measured & rows, objective_of(result.scenario, index))
        tables[name] = {
            "num_prompts": sum(counts.values()),
            **counts,
            "slo_attainment": None if good is None or not sum(counts.values()) else good.sum() / sum(counts.values()),
            "request_throughput": _per_second(counts["completed"], window.duration),
            "output_throughput": _per_second(int(result.requests["output_len"][done & rows].sum()), window.duration),
            **_latencies(result, done & rows),
        }
    return tables


def _per_second(count: float, duration: float) -> float:
    return count / duration if duration > 0 else 0.0


def _plain(value: Any) -> Any:
    """The same in Python's own types."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value.item() if isinstance(value, np.generic) else value
