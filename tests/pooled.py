"""Questions to disaggregated fleets, for tests."""

from typing import Any

from hypothesis import strategies as st
from impatient_scenarios import impatient_scenarios
from random_scenarios import Section, scenarios
from scenario_text import scenario
from test_speculation import speculations

from simserve.spec.scenario import Scenario

ONE_OF_EACH = "cluster.pools={prefill: {}, decode: {}}"
FREE = "cluster.kv_link={latency: 0}"
"""A link that nobody has to wait for."""


def pooled(*overrides: str) -> Scenario:
    """The toy question to one prefill and one decode replica, with a free link unless another is stated."""
    link = [] if any(key.startswith("cluster.kv_link") for key in overrides) else [FREE]
    pools = [] if any(key.startswith("cluster.pools=") for key in overrides) else [ONE_OF_EACH]
    return scenario(*pools, *link, *overrides)


@st.composite
def pools(draw: st.DrawFn, most_stages: int = 3) -> Section:
    """One to three replicas in each pool, in stages or not, engines alike or not, and links from free to narrow."""
    sizes = st.sampled_from([1, 1, 2, 3])
    routers = st.sampled_from([None, "random", "least_requests", "prefix_affinity"])
    engines = st.sampled_from([{}, {}, {"max_num_seqs": 3, "max_num_active_seqs": None}, {"async_scheduling": False}])
    stages = draw(st.sampled_from([[1], [1], [2], [1, 2, 3]])) if most_stages > 1 else [1]
    members: Section = {}
    for name in ("prefill", "decode"):
        own = members[name] = {"replicas": draw(sizes), "router": draw(routers), "engine": draw(engines)}
        own["pipeline_parallel"] = draw(st.sampled_from(stages))
        if own["pipeline_parallel"] > 1:
            own["engine"] = own["engine"] | {"async_scheduling": False}
    return {
        "gpu": "h100-sxm-80gb",
        "replicas": 1,
        "pools": members | {"stay_below": draw(st.sampled_from([0, 0, 30, 100]))},
        "kv_link": {
            "bandwidth": draw(st.sampled_from([None, 1e11, 1e9, 2e8])),
            "backbone": draw(st.sampled_from([None, None, 1e9])),
            "latency": draw(st.sampled_from([0, 0.001, 0.05])),
        },
    }


@st.composite
def pooled_scenarios(draw: st.DrawFn, **fixed: dict[str, Any]) -> Scenario:
    """Any scenario of a few requests, served by two pools."""
    return draw(scenarios(cluster=draw(pools()), **fixed))


@st.composite
def drafting_pooled_scenarios(draw: st.DrawFn, **fixed: dict[str, Any]) -> Scenario:
    """The same with drafts to verify."""
    return draw(scenarios(cluster=draw(pools()), engine=draw(drafters()), **fixed))


@st.composite
def drafters(draw: st.DrawFn) -> Section:
    """Engine settings with any drafter."""
    section = draw(speculations())
    return {"speculative": section} | ({"async_scheduling": False} if section["method"] == "ngram" else {})


@st.composite
def impatient_pooled_scenarios(draw: st.DrawFn, **fixed: dict[str, Any]) -> Scenario:
    """Either of them with clients who give up and send again."""
    engine = draw(st.just({}) | drafters()) | {"max_num_queued_reqs": None, "max_num_queued_tokens": None}
    return draw(impatient_scenarios(cluster=draw(pools()), engine=engine, **fixed))
