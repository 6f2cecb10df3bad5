"""Questions to disaggregated fleets, for tests."""

from typing import Any

from hypothesis import strategies as st
from impatient_scenarios import impatient_scenarios
from random_scenarios import scenarios
from scenario_text import scenario

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
def pools(draw: st.DrawFn) -> dict[str, Any]:
    """One to three replicas in each pool, with engines alike or not, and links from free to narrow."""
    sizes = st.sampled_from([1, 1, 2, 3])
    routers = st.sampled_from([None, "random", "least_requests"])
    engines = st.sampled_from([{}, {}, {"max_num_seqs": 3, "max_num_active_seqs": None}, {"async_scheduling": False}])
    members = {
        name: {"replicas": draw(sizes), "router": draw(routers), "engine": draw(engines)}
        for name in ("prefill", "decode")
    }
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
def impatient_pooled_scenarios(draw: st.DrawFn, **fixed: dict[str, Any]) -> Scenario:
    """The same with clients who give up and send again."""
    no_queue_limits = {"max_num_queued_reqs": None, "max_num_queued_tokens": None}
    return draw(impatient_scenarios(cluster=draw(pools()), engine=no_queue_limits, **fixed))
