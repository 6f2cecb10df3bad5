"""Random questions, small and made to reach the corners: full pools, ties, clients that wait, shared text, replicas.

`scenarios()` is a hypothesis strategy. Rates, think times and step times meet at whole milliseconds, so that arrivals,
answers and steps often fall on one tick.
"""

from typing import Any, get_args

import yaml
from hypothesis import strategies as st

from simserve.spec.load import parse_scenario
from simserve.spec.names import RouterName
from simserve.spec.scenario import Scenario

Section = dict[str, Any]


@st.composite
def scenarios(draw: st.DrawFn, **fixed: Section) -> Scenario:
    """Any scenario of a few requests; `fixed` sections replace keys of those drawn."""
    engine = draw(engines())
    workload = draw(workloads(engine["max_model_len"]))
    if draw(st.booleans()):
        squeeze(engine, workload)
    leave_out_livelocks(engine)
    sections: dict[str, Section] = {
        "workload": workload,
        "cluster": draw(clusters()),
        "engine": engine,
        "cost": draw(costs()),
        "run": draw(st.sampled_from([{}, {}, {}, {}, {}, {}, {"max_time": 0.1}, {"max_time": 2.0}])),
    }
    question: Section = {name: section | fixed.get(name, {}) for name, section in sections.items()}
    question |= {"seed": draw(st.integers(0, 999)), "model": "llama-3.1-8b"}
    return parse_scenario(yaml.safe_dump(question))


def leave_out_livelocks(engine: Section) -> None:
    """By priority, and where a prompt need not fit as a whole, two prompts that are computed in chunks may take each
    other's blocks for ever, as vLLM's rules have it: such a run does not end.
    """
    if engine["scheduling_policy"] == "priority" and not engine["scheduler_reserve_full_isl"]:
        engine["long_prefill_token_threshold"] = 0
        engine["max_num_batched_tokens"] = max(1024, engine["max_num_batched_tokens"])


def squeeze(engine: Section, workload: Section) -> None:
    """Many short prompts with long answers in a pool that holds hardly more than the longest request."""
    engine["num_gpu_blocks"] = engine["max_model_len"] // engine["block_size"] + 2
    engine["max_num_seqs"], engine["max_num_active_seqs"] = 64, None
    longest = 120 if "sessions" in workload else engine["max_model_len"] // 2
    workload["input"] = {"distribution": "uniform", "min": 1, "max": 40}
    workload["output"] = {"distribution": "uniform", "min": longest // 4, "max": longest}
    workload.pop("max_tokens", None)
    if "rate" in workload["arrivals"]:
        workload["arrivals"] |= {"rate": 100}


@st.composite
def engines(draw: st.DrawFn) -> Section:
    """Pools from the longest request alone to ample, a few seats or many."""
    block_size = draw(st.sampled_from([1, 4, 16, 16]))
    max_model_len = draw(st.sampled_from([256, 1024]))
    longest = max_model_len // block_size
    chunked = draw(st.sampled_from([True, True, True, False]))
    seats = draw(st.sampled_from([1, 2, 8, 64]))
    spare = draw(st.sampled_from([0, 1, 5, longest // 8, longest // 2, 40 * longest]))
    return {
        "max_model_len": max_model_len,
        "block_size": block_size,
        "num_gpu_blocks": longest + 1 + spare,
        "max_num_seqs": seats,
        "max_num_active_seqs": draw(st.sampled_from([None, None, None, (seats + 1) // 2])),
        "max_num_batched_tokens": draw(st.sampled_from([64, 256, 2048] if chunked else [1024, 2048])),
        "enable_chunked_prefill": chunked,
        "enable_prefix_caching": draw(st.sampled_from([True, True, False])),
        "async_scheduling": draw(st.booleans()),
        "scheduling_policy": draw(st.sampled_from(["fcfs", "priority"])),
        "enforce_eager": draw(st.booleans()),
        "watermark": draw(st.sampled_from([0.0, 0.0, 0.05])),
        "scheduler_reserve_full_isl": draw(st.booleans()),
        "long_prefill_token_threshold": draw(st.sampled_from([0, 0, 32])),
    }


@st.composite
def workloads(draw: st.DrawFn, max_model_len: int) -> Section:
    """Open traffic, users who wait for answers, or chats; some prompts are too long to be served."""
    workload = {
        "num_requests": draw(st.sampled_from([3, 10, 40])),
        "input": draw(lengths([8, 40, 200, max_model_len + 50])),
        "output": draw(lengths([8, 200, max_model_len // 2, max_model_len])),
    }
    traffic = draw(st.sampled_from(["open", "open", "closed_loop", "chats"]))
    if draw(st.integers(0, 2)) == 0:
        workload["max_tokens"] = 100
    if draw(st.integers(0, 2)) == 0:
        workload["classes"] = [{"name": "a", "share": 0.5}, {"name": "b", "share": 0.5, "priority": 3}]
    if draw(st.booleans()):
        workload["shared_prefix"] = {
            "groups": draw(st.sampled_from([1, 2])),
            "length": draw(st.sampled_from([20, 64])),
            "adds": True,
        }
    think_time = draw(st.sampled_from([0, 0, 0.01, 0.5]))
    if traffic == "closed_loop":
        users = draw(st.sampled_from([1, 3, 10]))
        workload["arrivals"] = {"process": "closed_loop", "users": users, "think_time": think_time}
        return workload
    workload["arrivals"] = draw(open_arrivals())
    if traffic == "chats":
        first_input = draw(st.sampled_from([1, 40, 80]))
        workload["sessions"] = {
            "turns": draw(st.sampled_from([2, 4])),
            "think_time": think_time,
            "first_input": first_input,
        }
        workload["input"] = draw(lengths([8, 40]))
        workload["output"] = draw(lengths([8, 40, 120]))
    return workload


def lengths(longest: list[int]) -> st.SearchStrategy[Any]:
    """A constant around a block, or uniform up to one of the longest."""
    uniform = st.sampled_from(longest).map(lambda most: {"distribution": "uniform", "min": 1, "max": most})
    return uniform | st.sampled_from([1, 16, 17, 64])


def open_arrivals() -> st.SearchStrategy[Section]:
    """Processes that do not wait, from a request every two seconds to all at once."""
    rate = st.sampled_from([0.5, 5, 50, 500, 1000])
    plain = st.fixed_dictionaries({"process": st.sampled_from(["poisson", "constant"]), "rate": rate})
    bursts = st.fixed_dictionaries({"process": st.just("gamma"), "rate": rate, "burstiness": st.just(0.3)})
    return plain | bursts | st.just({"process": "all_at_once"})


@st.composite
def clusters(draw: st.DrawFn) -> Section:
    """One to three replicas behind any router."""
    return {
        "gpu": "h100-sxm-80gb",
        "replicas": draw(st.sampled_from([1, 1, 2, 3])),
        "router": draw(st.sampled_from(get_args(RouterName))),
    }


def costs() -> st.SearchStrategy[Section]:
    """The data sheet, hosts slower than the GPU, hosts that cost nothing, and constant steps."""
    nothing = {"per_step": 0, "per_sequence": 0, "update": 0}
    slow = {"per_step": 0.02, "per_sequence": 0.0001, "update": 0.005}
    door = {"front_end_per_request": 0.002, "front_end_per_token": 0.00001, "delivery": 0.001}
    no_door = dict.fromkeys(door, 0)
    queue = {"front_end_busy": 0.003}
    return st.sampled_from(
        [
            {},
            {"host": nothing},
            {"host": slow},
            {"host": nothing | no_door},
            {"host": slow | door},
            {"constant_step": 0.001, "host": no_door},
            {"constant_step": 0.01, "host": no_door},
            {"constant_step": 0.01, "host": door},
            {"constant_step": 0.01, "host": door | queue},
            {"host": queue},
        ]
    )
