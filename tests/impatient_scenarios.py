"""Random questions as in tests/random_scenarios.py, of clients who give up and send again, at a door that refuses."""

from typing import Any

from hypothesis import strategies as st
from random_scenarios import Section, scenarios

from simserve.spec.scenario import Scenario

TIMES = [0.001, 0.01, 0.05, 0.2, 1, 5]
"""Whole milliseconds, as steps, think times and the door take, so that patience often ends at the tick of an answer."""


@st.composite
def impatient_scenarios(draw: st.DrawFn, **fixed: Section) -> Scenario:
    """Any scenario of a few requests, whose clients have little patience."""
    sections = {
        "workload": {"client": draw(clients())},
        "cluster": {"rate_limit": draw(rate_limits())},
        "engine": draw(queue_limits()),
    }
    for name, section in fixed.items():
        sections[name] = sections.get(name, {}) | section
    return draw(scenarios(**sections))


@st.composite
def clients(draw: st.DrawFn) -> Section:
    """Impatient with the whole answer, with the first token, with both or with refusals alone."""
    client: dict[str, Any] = {"retries": draw(st.sampled_from([0, 1, 2, 5])), "backoff": draw(backoffs())}
    first, whole = sorted(draw(st.lists(st.sampled_from(TIMES), min_size=2, max_size=2, unique=True)))
    kind = draw(st.sampled_from(["whole", "whole", "first", "both", "none"]))
    if kind in {"whole", "both"}:
        client["timeout"] = whole
    if kind in {"first", "both"}:
        client["first_token_timeout"] = first
    return client


def backoffs() -> st.SearchStrategy[Section]:
    """From at once to a while, with and without jitter."""
    return st.fixed_dictionaries(
        {
            "initial": st.sampled_from([0, 0.01, 0.1]),
            "factor": st.sampled_from([1, 2]),
            "jitter": st.sampled_from([0, 1]),
        }
    )


def rate_limits() -> st.SearchStrategy[Section | None]:
    """None for most, else so little that some are refused."""
    limits = st.fixed_dictionaries(
        {"requests_per_minute": st.sampled_from([60, 600]), "tokens_per_minute": st.sampled_from([None, 5000])},
        optional={"burst": st.sampled_from([1, 10])},
    )
    return st.none() | st.none() | limits


def queue_limits() -> st.SearchStrategy[Section]:
    """None for most."""
    some = st.fixed_dictionaries(
        {
            "max_num_queued_reqs": st.sampled_from([None, 0, 1, 4]),
            "max_num_queued_tokens": st.sampled_from([None, 64, 300]),
        }
    )
    return st.just({}) | st.just({}) | some
