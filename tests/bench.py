"""How fast the simulator is: `make bench`, `make bench-compiled`, or `python tests/bench.py [WORKLOAD ...] [--readme]`.

Requests per CPU-second of the run phase on one core, from the built fleet to the summary, beside two yardsticks of the
same process: SimPy timeouts per CPU-second of one process that does nothing else, and this code at resolution `steps`.
Shared machines drift; the yardstick drifts with them. Each figure is the median of three runs. `load` is the rate over
the throughput of the same workload when all requests are there at once.
"""

import argparse
import json
import platform
import re
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import simpy
import yaml

from simserve.engine import is_compiled
from simserve.report.summary import summarize
from simserve.simulation import build_simulation, simulate
from simserve.spec.load import parse_scenario
from simserve.spec.result import Result
from simserve.spec.scenario import Scenario

README = Path(__file__).parent.parent / "README.md"
CHAT = {"turns": 5, "think_time": "5 s"}

WORKLOADS: dict[str, tuple[float | None, int, dict[str, Any]]] = {
    # name: (load, requests, what differs from 512 in / 128 out on one replica)
    "75 % load": (0.75, 10_000, {}),
    "75 % load, 100,000 requests": (0.75, 100_000, {}),
    "10 % load": (0.10, 10_000, {}),
    "saturated, 2,000 blocks": (1.0, 10_000, {"engine": {"num_gpu_blocks": 2000, "max_model_len": 4096}}),
    "output 512, preemptions": (
        1.0,
        10_000,
        {
            "workload": {"output": {"distribution": "uniform", "min": 256, "max": 768}},
            "engine": {"num_gpu_blocks": 2600, "max_model_len": 4096},
        },
    ),
    "lognormal 2,000 in / 300 out": (
        0.75,
        10_000,
        {
            "workload": {
                "input": {"distribution": "lognormal", "mean": 2000, "cv": 1.0, "max": 16000},
                "output": {"distribution": "lognormal", "mean": 300, "cv": 1.0},
            }
        },
    ),
    "8 shared prefixes of 1,000": (
        0.75,
        10_000,
        {
            "workload": {
                "input": {"distribution": "uniform", "min": 1256, "max": 1768},
                "shared_prefix": {"groups": 8, "length": 1000},
            }
        },
    ),
    "chats of 5 turns, light load": (None, 10_000, {"workload": {"sessions": CHAT, "arrivals": {"rate": 3}}}),
    "chats of 5 turns, KV-limited": (
        None,
        10_000,
        {
            "workload": {"sessions": CHAT, "arrivals": {"rate": 8}},
            "engine": {"num_gpu_blocks": 6000, "max_model_len": 8192},
        },
    ),
    "16 replicas, least_requests": (0.75, 10_000, {"cluster": {"replicas": 16, "router": "least_requests"}}),
    "output 2,000": (
        0.75,
        10_000,
        {"workload": {"output": {"distribution": "uniform", "min": 1000, "max": 3000}}},
    ),
    "block size 256": (0.75, 10_000, {"engine": {"block_size": 256}}),
    "256 replicas, least_requests": (0.75, 20_000, {"cluster": {"replicas": 256, "router": "least_requests"}}),
    "pools of 2 + 2": (
        0.75,
        10_000,
        {
            "cluster": {
                "pools": {"prefill": {"replicas": 2}, "decode": {"replicas": 2}},
                "kv_link": {"bandwidth": "50 GB/s", "latency": "2 ms"},
            }
        },
    ),
    "EAGLE, 3 drafts": (
        0.75,
        4_000,
        {"engine": {"speculative": {"method": "eagle", "num_speculative_tokens": 3, "acceptance": 0.7}}},
    ),
    "4 stages of a 70B": (
        0.75,
        2_000,
        {"model": "llama-3.1-70b", "cluster": {"pipeline_parallel": 4}, "engine": {"async_scheduling": False}},
    ),
    "resolution kernels": (0.75, 1_000, {"run": {"resolution": "kernels"}}),
}


def scenario_of(changes: dict[str, Any], rate: float | None, num_requests: int) -> Scenario:
    arrivals = {"process": "poisson", "rate": rate} if rate else {"process": "all_at_once"}
    base: dict[str, Any] = {
        "model": "llama-3.1-8b",
        "cluster": {"gpu": "h100-sxm-80gb"},
        "workload": {
            "num_requests": num_requests,
            "arrivals": arrivals,
            "input": {"distribution": "uniform", "min": 256, "max": 768},
            "output": {"distribution": "uniform", "min": 64, "max": 192},
        },
        "engine": {},
    }
    return parse_scenario(yaml.safe_dump(_merged(base, changes)))


def _merged(base: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    whole = dict(base)
    for key, value in changes.items():
        nested = isinstance(value, dict) and isinstance(whole.get(key), dict) and "distribution" not in value
        whole[key] = _merged(whole[key], value) if nested else value
    return whole


def saturated_rate(changes: dict[str, Any]) -> float:
    """Requests per second of the workload when it never waits for arrivals, without the ends of the run."""
    fleet = {key: value for key, value in changes.get("cluster", {}).items() if key not in {"replicas", "router"}}
    changes = {key: value for key, value in changes.items() if key != "run"} | {"cluster": fleet}
    finish = sorted(simulate(scenario_of(changes, None, 3000)).requests["finish"])
    first, last = len(finish) // 5, 4 * len(finish) // 5
    return float((last - first) / (finish[last] - finish[first]))


def timed_run(scenario: Scenario) -> tuple[float, Result]:
    """CPU seconds from the built fleet to the summary, and what came of it."""
    simulation = build_simulation(scenario)
    start = time.process_time()
    result = simulation.run()
    summarize(result)
    return time.process_time() - start, result


def timeouts_per_second(count: int = 200_000) -> float:
    def ticking(env: simpy.Environment) -> Any:
        for _ in range(count):
            yield env.timeout(1)

    env = simpy.Environment()
    env.process(ticking(env))
    start = time.process_time()
    env.run()
    return count / (time.process_time() - start)


def question(name: str) -> Scenario:
    """A workload as a scenario, its rate found."""
    load, num_requests, changes = WORKLOADS[name]
    rate = changes.get("workload", {}).get("arrivals", {}).get("rate")
    if load is not None:
        rate = saturated_rate(changes) * load * changes.get("cluster", {}).get("replicas", 1)
    return scenario_of(changes, rate, num_requests)


def measure(name: str) -> str:
    """One row of the table."""
    scenario = question(name)
    num_requests = WORKLOADS[name][1]
    speeds, ratios = [], []
    for _ in range(3):
        before = timeouts_per_second()
        seconds, result = timed_run(scenario)
        speeds.append(num_requests / seconds)
        ratios.append(seconds / num_requests * (before + timeouts_per_second()) / 2)
    stepping = num_requests / timed_run(scenario.with_overrides(["run.resolution=steps"]))[0]
    meta: Any = result.meta
    skipped = meta["skipped_steps"] / meta["total_steps"]
    preemptions = meta["num_preemptions"] / num_requests
    return (
        f"| {name} | {statistics.median(speeds):,.0f} | {statistics.median(ratios):.0f} | {stepping:,.0f} "
        f"| {skipped:.0%} | {preemptions:.2f} |"
    )


def measure_process(num_requests: int, *options: str) -> str:
    """A whole `simserve run`: CPU seconds and peak memory of the process."""
    rate = saturated_rate({}) * 0.75
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "scenario.yaml"
        path.write_text(scenario_of({}, rate, num_requests).to_yaml(), encoding="utf-8")
        command = [sys.executable, "-m", "simserve", "run", str(path), "-o", str(Path(folder) / "out"), *options]
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(command, check=True, capture_output=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return f"| `simserve run`, {num_requests:,} requests | {seconds:.2f} CPU-s | {after.ru_maxrss / 1024:,.0f} MiB |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workload", nargs="*", help=f"of {json.dumps(list(WORKLOADS))}; all by default")
    parser.add_argument("--readme", action="store_true", help="write the table into README.md")
    options = parser.parse_args()
    lines = [
        f"{'Compiled' if is_compiled() else 'Plain source'}, Python {platform.python_version()}, {_processor()}, "
        f"one core; SimPy alone: {timeouts_per_second():,.0f} timeouts per CPU-second.",
        "",
        "| workload | requests per CPU-second | timeouts in the time of a request | requests at resolution `steps` "
        "| steps skipped | preemptions per request |",
        "|---|---|---|---|---|---|",
    ]
    print("\n".join(lines), flush=True)
    for name in options.workload or WORKLOADS:
        lines.append(measure(name))
        print(lines[-1], flush=True)
    if not options.workload:
        lines += ["", "| whole process | CPU time | peak memory |", "|---|---|---|"]
        for num_requests in (100, 1_000_000):
            lines.append(measure_process(num_requests))
            print(lines[-1], flush=True)
    if options.readme:
        mark = "bench-compiled" if is_compiled() else "bench"
        text = README.read_text(encoding="utf-8")
        table = f"<!-- {mark} -->\n" + "\n".join(lines) + f"\n<!-- /{mark} -->"
        README.write_text(
            re.sub(f"<!-- {mark} -->.*<!-- /{mark} -->", lambda _: table, text, flags=re.DOTALL), encoding="utf-8"
        )


def _processor() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    models = re.findall(r"model name\s*:\s*(.*)", cpuinfo.read_text(encoding="utf-8")) if cpuinfo.exists() else []
    return models[0] if models else platform.processor()


if __name__ == "__main__":
    main()
