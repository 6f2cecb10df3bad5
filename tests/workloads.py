"""Random workloads in the golden format, made to reach the corners of the rules.

Tiny pools, tight budgets, shared prefixes, chats whose parents still live, priorities with ties, EOS before max_tokens,
arrivals in bursts and gaps.

`random_workload(rng)` takes any `random.Random`; `workloads()` is the same generator as a hypothesis strategy.
"""

from random import Random

from hypothesis import strategies as st


def random_workload(rng: Random, name: str = "random") -> dict:
    workload = patient_workload(rng, name)
    if chance(rng, 0.4):
        let_clients_leave(rng, workload["requests"], share=rng.choice([0.1, 0.4, 1.0]))
    return workload


def let_clients_leave(rng: Random, requests: list[dict], share: float) -> None:
    """Some clients leave: in the step of their arrival, in the queue, in the middle, after the end."""
    for request in requests:
        if chance(rng, share):
            patience = rng.choice([0, 1, 2, rng.randint(0, 12), rng.randint(0, 60)])
            request["abort_step"] = request["arrival_step"] + patience


def patient_workload(rng: Random, name: str = "patient") -> dict:
    if chance(rng, 0.2):
        return squeezed_workload(rng, name)
    if chance(rng, 0.1):
        return family_workload(rng, name)
    config = random_config(rng)
    return {"name": name, "config": config, "requests": random_requests(rng, config)}


def family_workload(rng: Random, name: str = "family") -> dict:
    """Children of a running parent, blocked until it has written so much of their prompts that the rest fits."""
    config = random_config(rng) | {"enable_prefix_caching": True, "scheduler_reserve_full_isl": chance(rng, 0.9)}
    config |= {
        "block_size": rng.choice([2, 3, 4, 7]),
        "max_model_len": 64,
        "watermark": 0.0,
        "max_num_active_seqs": None,
    }
    config |= {"max_num_seqs": 8, "max_num_batched_tokens": rng.choice([16, 64, 128])}
    config["enable_chunked_prefill"] = config["max_num_batched_tokens"] < 64 or chance(rng, 0.8)
    parent = {"id": "parent", "arrival_step": 0, "prompt_len": rng.randint(1, 20), "output_len": rng.randint(10, 30)}
    requests = random_requests(rng, config, longest=8, output=20, pace=0.0, count=rng.randint(1, 2))
    requests.insert(0, parent)
    conversation = parent["prompt_len"] + parent["output_len"]
    for index in range(rng.randint(1, 4)):
        prompt_len = min(63, conversation + rng.randint(0, 12))
        request = {"id": f"child{index}", "arrival_step": rng.randint(0, 4), "prompt_len": prompt_len}
        requests.append(request | {"output_len": rng.randint(1, 12), "parent": "parent"})
    requests[1:] = sorted(requests[1:], key=lambda request: request["arrival_step"])
    longest = max(request["prompt_len"] for request in requests)
    config["num_gpu_blocks"] = 1 + -(-longest // config["block_size"]) + rng.randint(0, 3)
    return {"name": name, "config": config, "requests": requests}


def large_workload(rng: Random, name: str = "large") -> dict:
    """Sizes nearer to what is served: hundreds of tokens, dozens of requests, thousands of steps at most."""
    config = random_config(rng)
    config["block_size"] = rng.choice([1, 4, 8, 16, 16, 32])
    config["max_model_len"] *= 6
    config["max_num_batched_tokens"] *= 1 if config["enable_chunked_prefill"] else 6
    config["num_gpu_blocks"] = round(config["max_model_len"] / config["block_size"] * rng.choice([1.1, 1.5, 3, 6])) + 2
    config["max_steps"] = 3000
    output = rng.choice([20, 60, 120])
    return {"name": name, "config": config, "requests": random_requests(rng, config, output=output, count=60)}


def workloads() -> st.SearchStrategy[dict]:
    return st.randoms(use_true_random=False).map(random_workload)


def chance(rng: Random, probability: float) -> bool:
    return rng.random() < probability


def random_config(rng: Random) -> dict:
    block_size = rng.choice([1, 2, 2, 3, 4, 4, 7, 16])
    max_model_len = rng.choice([24, 40, 64, 100]) if block_size < 16 else rng.choice([40, 64, 100, 160])
    max_num_seqs = rng.choice([1, 2, 3, 4, 6, 8, 8, 16])
    chunked = chance(rng, 0.75)
    budget = rng.choice([max_num_seqs, 2, 4, 8, 12, 16, 33, 64, 128]) if chunked else max_model_len + rng.randint(0, 9)
    if not (chunked and chance(rng, 0.3)):  # vLLM refuses a budget below max_num_seqs; its scheduler does not
        budget = max(budget, max_num_seqs)
    whole = -(-max_model_len // block_size)  # blocks of the longest request
    ample = whole + rng.randint(0, 8), 2 * whole, 4 * whole
    tight = whole, whole, whole + 1, rng.randint(2, whole)
    num_blocks = rng.choice(
        [*tight, *ample] if chunked else ample
    )  # unchunked: the budget is to be short, not the pool
    return {
        "max_num_seqs": max_num_seqs,
        "max_num_batched_tokens": budget,
        "max_model_len": max_model_len,
        "block_size": block_size,
        "num_gpu_blocks": max(2, num_blocks) + 1,
        "enable_prefix_caching": chance(rng, 0.8),
        "enable_chunked_prefill": chunked,
        "long_prefill_token_threshold": rng.choice([0, 0, 0, 1, 3, 5, 8, 20, max_model_len - 2]),
        "policy": rng.choice(["fcfs", "priority"]),
        "watermark": rng.choice([0.0, 0.0, 0.0, 0.05, 0.1, 0.29]),
        "scheduler_reserve_full_isl": chance(rng, 0.5),
        "async_scheduling": chance(rng, 0.55),
        "max_num_active_seqs": rng.randint(1, max_num_seqs) if chance(rng, 0.2) else None,
        "stall_steps": 3,
        "max_steps": 250,
    }


def squeezed_workload(rng: Random, name: str) -> dict:
    """Many decodes in a pool that soon runs out, the least important first: the victim is often early in `running`."""
    config = random_config(rng) | {
        "policy": "priority",
        "max_num_seqs": 8,
        "max_num_active_seqs": None,
        "max_num_batched_tokens": rng.choice([5, 8, 9, 16, 128]),
        "enable_chunked_prefill": True,
        "block_size": rng.choice([1, 1, 2]),
        "max_model_len": 64,
    }
    config["num_gpu_blocks"] = rng.randint(64, 90) // config["block_size"]
    requests = random_requests(rng, config, longest=9, output=40, pace=rng.choice([0.0, 0.5, 1.0]), count=14)
    for index, request in enumerate(requests):
        request["priority"] += 2 * (index < rng.randint(1, 5))
    return {"name": name, "config": config, "requests": requests}


def random_requests(
    rng: Random,
    config: dict,
    longest: int | None = None,
    output: int | None = None,
    pace: float | None = None,
    count: int | None = None,
) -> list[dict]:
    limit = config["max_model_len"] - 1  # longest prompt
    longest = longest or rng.choice([4, 4, 10, limit // 2, limit] if config["enable_chunked_prefill"] else [10, limit])
    output = output or rng.choice([3, 8, 20, 40, 40])
    pace = rng.choice([0.0, 0.0, 0.5, 1.0, 2.0, 6.0]) if pace is None else pace
    count = count or rng.choice([2, 4, 8, 14, 20])
    chats = rng.choice([0.0, 0.0, 0.3, 0.7])
    groups = rng.choice([0.0, 0.3, 0.8])
    eos = rng.choice([0.0, 0.5])
    priorities = rng.choice([1, 2, 2, 4])
    step = 0
    requests: list[dict] = []
    for index in range(count):
        if chance(rng, 0.6):  # else another one of the same burst
            step += round(rng.random() * 2 * pace)
            step += rng.randint(5, 40) if chance(rng, 0.05) else 0
        request = {"id": f"r{index:03}", "arrival_step": step, "prompt_len": rng.randint(1, longest)}
        request["output_len"] = rng.randint(1, output)
        request |= random_head(rng, requests, request["prompt_len"], limit, chats, groups)
        if chance(rng, eos):
            request["max_tokens"] = request["output_len"] + rng.choice([1, 1, 2, 5, 30])
        if config["policy"] == "priority" or chance(rng, 0.1):
            request["priority"] = rng.randint(0, priorities - 1)
        requests.append(request)
    return requests


def random_head(rng: Random, earlier: list[dict], prompt_len: int, limit: int, chats: float, groups: float) -> dict:
    """Let the prompt begin with a parent's conversation or with a group's prefix, the whole prompt at times."""
    if earlier and chance(rng, chats):
        parent = rng.choice(earlier[-rng.choice([1, 3, 20]) :])
        head = parent["prompt_len"] + parent["output_len"]
        if head <= limit:
            return {"parent": parent["id"], "prompt_len": min(limit, head + rng.choice([0, 1, rng.randint(0, 12)]))}
    if chance(rng, groups):
        prefix_len = rng.choice([prompt_len, prompt_len, rng.randint(1, prompt_len), max(1, prompt_len // 2)])
        return {"prefix_group": rng.randint(0, 1), "prefix_len": prefix_len}
    return {}
