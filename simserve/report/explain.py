"""Why the numbers are what they are, in sentences: each follows from the summary alone."""

from collections.abc import Iterator, Mapping
from typing import Any

from simserve.report.replayed import replay_notes
from simserve.report.saturation import MEANING
from simserve.report.text import count, gib, group_name, ms, number, percent

KV_PRESSURE = 0.95
"""A KV cache that was at least so full is named as tight."""


def explanations(summary: Mapping[str, Any]) -> list[str]:
    """Sentences on the load, the first token, the steps, the memory and the prefix cache."""
    return [
        *_load(summary),
        *replay_notes(summary),
        *_attempts(summary),
        *_first_token(summary),
        *_steps(summary.get("step_time_breakdown") or {}),
        *_memory(summary),
        *_cache(summary),
        *_drafts(summary),
    ]


def _load(summary: Mapping[str, Any]) -> Iterator[str]:
    if summary["saturation"] is None:
        yield "Nothing was completed, so that the load cannot be judged."
    else:
        yield f"Load: {summary['saturation']}. {MEANING[summary['saturation']]}"
    if summary["statuses"]["unfinished"]:
        left = count(summary["statuses"]["unfinished"])
        yield f"{left} requests were unfinished when the run stopped; they count as late."


def _attempts(summary: Mapping[str, Any]) -> Iterator[str]:
    attempts = summary.get("attempts")
    if attempts is not None and attempts["count"]:
        given_up = count(summary["statuses"]["timed_out"] + summary["statuses"]["rejected"])
        yield (
            f"Clients: {number(attempts['per_request'])} attempts a request on the mean, {given_up} requests given up;"
            f" {count(attempts['wasted_output_tokens'])} output tokens were generated in vain."
        )


def _first_token(summary: Mapping[str, Any]) -> Iterator[str]:
    whole, queue, engine = (summary[f"mean_{name}_ms"] for name in ("ttft", "queue_time", "engine_ttft"))
    if not whole or queue is None or engine is None:
        return
    outside = max(whole - engine, 0.0)
    sent_again = ((summary.get("attempts") or {}).get("per_request") or 1) > 1
    before = "earlier attempts, " if sent_again else ""
    yield (
        f"First token: of {ms(whole)} on the mean, {percent(queue / whole)} was waiting in the queue,"
        f" {percent((engine - queue) / whole)} computing the prompt and {percent(outside / whole)} {before}front"
        " end and delivery."
    )


def _steps(breakdown: Mapping[str, float]) -> Iterator[str]:
    total = sum(breakdown.values())
    if total <= 0:
        return
    largest = sorted(breakdown.items(), key=lambda part: -part[1])[:3]
    parts = "; ".join(f"{group_name(name)} {percent(seconds / total)}" for name, seconds in largest)
    yield f"Steps: their time goes into {parts}."


def _memory(summary: Mapping[str, Any]) -> Iterator[str]:
    memory, peak = summary["memory"], summary["kv_cache_usage_peak"]
    if memory.get("kv") and memory.get("kv_tokens"):
        tokens, source = count(int(memory["kv_tokens"])), memory.get("source", "unknown")
        yield f"Memory: {gib(memory['kv'])} a GPU hold the KV cache of {tokens} tokens ({source})."
    if peak is not None:
        tight = (
            " The cache was tight: more of it, or fewer requests at once, would help." if peak >= KV_PRESSURE else ""
        )
        lost = summary["num_preemptions"]
        yield f"KV cache: {percent(peak)} in use at the peak, {count(lost)} preemptions.{tight}"


def _cache(summary: Mapping[str, Any]) -> Iterator[str]:
    rate = summary["prefix_cache_hit_rate"]
    if rate:
        yield f"Prefix cache: {percent(rate)} of the prompt tokens were found in it and not computed."
    speed = summary["tokens_per_s_per_user"]
    if speed is not None:
        slow = number(summary["p95_tokens_per_s_per_user"])
        yield f"A user sees {number(speed)} tokens a second on the mean, the slow one (p95) {slow}."


def _drafts(summary: Mapping[str, Any]) -> Iterator[str]:
    length = summary.get("spec_decode_acceptance_length")
    if length is not None:
        right = percent(summary["spec_decode_acceptance_rate"] / 100)
        yield f"Drafts: {right} of them were accepted, so that a step with drafts gave a request {length:.2f} tokens."
