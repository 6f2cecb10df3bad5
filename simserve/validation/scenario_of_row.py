"""From a measured run to the scenario that repeats it, with a list of what had to be assumed.

What a row does not state takes the default of its engine's version. A run that simserve cannot repeat is refused with
the reason.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from simserve.spec import resources
from simserve.spec.catalogue import find_model
from simserve.spec.document import Document, Place
from simserve.spec.engine import capture_sizes
from simserve.spec.scenario import Scenario
from simserve.validation.engine_versions import Stack, family, gpu_of, penalizes, samples_top_p, stack_of
from simserve.validation.measured import MeasuredRun
from simserve.validation.replay_benchmark import Recording, read_recording

SHAREGPT_CV = 1.1
"""Coefficient of variation of the lengths of ShareGPT chats, where a row gives only their means."""
_ROUNDS_OF_WARMUP = 6
"""Requests per distinct prompt before a stage that follows another one: enough that each prompt was seen."""
_ENGINE_KEYS = {
    "max_num_seqs": "max_num_seqs",
    "max_num_batched_tokens": "max_num_batched_tokens",
    "max_model_len": "max_model_len",
    "num_gpu_blocks": "kv_cache_blocks_16tok",
}
_WITHOUT_SIZE: tuple[list[str], ...] = ([], ["instruct"], ["base"], ["chat"])
"""What follows in the name of a model that leaves out its size, as Mistral-Nemo-Instruct-2407 does."""
_ANY_WORKLOAD = {"arrivals": {"process": "all_at_once"}, "input": 1, "output": 1, "num_requests": 1}
"""Stands where a recording is going to."""


class NotModelledError(Exception):
    """Why a row cannot be simulated."""


@dataclass(frozen=True)
class RowScenario:
    """A row's scenario; `assumed`: what the row does not state; `hits`: prompts lie in the prefix cache."""

    run: MeasuredRun
    scenario: Scenario
    assumed: tuple[str, ...]
    hits: bool
    warmup: int = 0
    """Requests sent before the measured part."""
    recording: Recording | None = None
    """The run's own requests, where they lie beside the table; they stand for the scenario's workload."""


def scenario_of_row(run: MeasuredRun, seed: int = 0, host: Mapping[str, float] | None = None) -> RowScenario:
    """The scenario of a row; `host` outweighs the CPU times of its engine version.

    Raises:
        NotModelledError: simserve has not the model, the GPU, the engine or the load.
        ScenarioError: the deployment cannot exist.
    """
    _refuse(run)
    stack = stack_of(run.text("engine_version"), run.text("source"), run.text("gpu"))
    assumed: list[str] = [f"{column} of vLLM's defaults ({stack.name})" for column in stack.unread]
    quoted, run = run, run.without(stack.unread)
    recording = _recording(run) if run.text("arrival_process").startswith("trace") else None
    workload, warmup_time, warmup = _workload(run, assumed) if recording is None else (_ANY_WORKLOAD, 0.0, 0)
    data: dict[str, Any] = {
        "name": run.name,
        "seed": seed,
        "model": _model(run, stack, assumed),
        "workload": workload,
        "cluster": _cluster(run, assumed),
        "engine": _engine(run, stack, assumed),
        "run": {"warmup": warmup_time},
    }
    if data["model"].get("weight_dtype") not in {"fp8", "nvfp4"}:
        data["engine"].pop("linear_backend", None)  # it multiplies nothing else
    if recording is not None:
        meta = _meta(recording)
        if blocks := meta.get("kv_cache", {}).get("num_gpu_blocks"):
            data["engine"]["num_gpu_blocks"] = int(blocks)
        if meta.get("engine_kwargs", {}).get("enable_expert_parallel"):
            _share_experts(data["cluster"], assumed)
    times = {**stack.host_of(run.text("gpu").lower(), run.count("tp") or 1), **(host or {})}
    data["cost"] = {**stack.cost, "host": times}
    if find_model(data["model"]["config"]).is_moe:
        data["cost"]["routing_skew"] = stack.routing_skew
    backend = stack.moe_backend.get(family(run.text("gpu").lower()))
    if backend and data["model"]["config"].startswith("gpt-oss"):
        data["engine"]["moe_backend"] = backend
    if samples_top_p(run.text("source"), data["model"]["config"]):
        data["cost"]["sampling"] = "top_p"
    if penalizes(run.text("source"), data["model"]["config"], run.text("model")):
        data["cost"]["penalties"] = True
    scenario = Scenario.of(Document(data, {(): Place(f"row {run.name}")}))
    hits = "shared_prefix" in workload and scenario.engine.enable_prefix_caching
    return RowScenario(quoted, scenario, tuple(assumed), hits, warmup, recording)


def _recording(run: MeasuredRun) -> Recording:
    """Requests of a run: per_request/SOURCE_NAME_requests.jsonl beside the table, where its id ends in NAME."""
    name = run.name.partition("-")[2]
    folder = run.folder / "per_request"
    for path in sorted(folder.glob("*_requests.jsonl")):
        if path.name.removesuffix("_requests.jsonl").replace("_", "-").endswith(f"-{name}"):
            return read_recording(path)
    raise NotModelledError(f"its arrivals and lengths are a list that {folder} has not")


def _meta(recording: Recording) -> dict[str, Any]:
    """What the server logged at its start, from the file beside the list of requests; empty where there is none."""
    path = recording.path.with_name(recording.path.name.replace("_requests.jsonl", "_meta.json"))
    meta: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    return meta


def _share_experts(cluster: dict[str, Any], assumed: list[str]) -> None:
    """Experts lie on the GPUs of all data-parallel ranks, or of the tensor-parallel group."""
    ranks = cluster["replicas"]
    cluster["expert_parallel"] = {"data_parallel": ranks}
    if ranks > 1:
        assumed[:] = [each for each in assumed if "with all experts" not in each]
        assumed.append(f"{ranks} data-parallel ranks share the experts and step together")


def _refuse(run: MeasuredRun) -> None:
    engine = run.text("engine")
    if engine != "vllm":
        raise NotModelledError(f"engine {engine}: only vLLM's scheduler is modelled")
    if run.text("spec_decode") not in {"", "none", "none (assumed)"}:
        raise NotModelledError(f"speculative decoding ({run.text('spec_decode')}) is not modelled yet")
    for column, what in (("pp", "pipeline parallelism"), ("dcp", "context parallelism")):
        if (run.count(column) or 1) > 1:
            raise NotModelledError(f"{what} is not modelled yet")
    if (run.count("ep") or 1) > 1 and (run.count("dp") or 1) == 1:
        raise NotModelledError("expert parallelism is not modelled yet")


def catalogue_name(model: str) -> str:
    """Name in the catalogue of a model of the Hugging Face hub, whatever variant or format its name mentions.

    Raises:
        NotModelledError: the catalogue has none.
    """
    known = resources.names("models")
    parts = model.rsplit("/", maxsplit=1)[-1].lower().replace("meta-llama", "llama").split("-")
    for length in range(len(parts), 0, -1):
        head = "-".join(parts[:length])
        if head in known:
            return head
        longer = [name for name in known if name.startswith(f"{head}-")]
        if len(longer) == 1 and parts[length:][:1] in _WITHOUT_SIZE:
            return longer[0]
    raise NotModelledError(f"model {model} is not in the catalogue")


def _model(run: MeasuredRun, stack: Stack, assumed: list[str]) -> dict[str, Any]:
    name = catalogue_name(run.text("model"))
    data: dict[str, Any] = {"config": name}
    weights, kv = run.text("weight_dtype"), run.text("kv_dtype")
    if not weights and "fp8" in run.text("model").lower():
        weights = "fp8"
    if weights in {"fp4", "nvfp4"}:
        if not name.startswith("gpt-oss"):  # its own format is MXFP4, whatever a table of runs calls it
            data["weight_dtype"] = "nvfp4"
    elif weights in {"fp8", "int4", "int8"}:
        data["weight_dtype"] = weights
    if not kv and (kv := stack.kv_dtype.get(family(run.text("gpu").lower()), "")):
        assumed.append(f"kv_dtype {kv} ({stack.name})")
    if kv == "fp8":
        data["kv_dtype"] = kv
    return data


def _cluster(run: MeasuredRun, assumed: list[str]) -> dict[str, Any]:
    gpu = gpu_of(run.text("gpu"), run.text("source"))
    if isinstance(gpu, str) and resources.find("hardware_profiles", f"{gpu}/profile.yaml") is None:
        raise NotModelledError(f"GPU {run.text('gpu')} has no profile")
    replicas = run.count("dp") or 1
    if replicas > 1:
        assumed.append(f"each of {replicas} data-parallel ranks is a replica of its own, with all experts")
    return {"gpu": gpu, "replicas": replicas, "tensor_parallel": run.count("tp") or 1}


def _engine(run: MeasuredRun, stack: Stack, assumed: list[str]) -> dict[str, Any]:
    stated = {key: run.count(column) for key, column in _ENGINE_KEYS.items()}
    engine: dict[str, Any] = {key: value for key, value in stated.items() if value is not None}
    if utilization := run.number("gpu_mem_util"):
        engine["gpu_memory_utilization"] = utilization
    for column, key in (("prefix_caching", "enable_prefix_caching"), ("chunked_prefill", "enable_chunked_prefill")):
        if run.text(column):
            engine[key] = run.text(column) != "off"
    missing = {key: value for key, value in stack.engine.items() if key not in engine}
    assumed += [f"{key} {value} ({stack.name})" for key, value in missing.items()]
    engine |= missing
    assumed += [
        f"{key} of vLLM's defaults"
        for key in ("max_num_seqs", "max_num_batched_tokens", "max_model_len")
        if key not in engine
    ]
    graph: dict[str, Any] = {}
    if mode := stack.graph_mode.get(family(run.text("gpu").lower())):
        graph["mode"] = mode
    if stack.largest_graph and "max_num_seqs" in engine:
        graph["capture_sizes"] = list(_graphs(stack.largest_graph, int(engine["max_num_seqs"])))
    engine |= stack.flags_of(run.text("gpu").lower(), run.count("tp") or 1)
    return {**engine, "cuda_graph": graph} if graph else engine


def _graphs(largest: int, max_num_seqs: int) -> tuple[int, ...]:
    """Captured sizes up to a limit of the launch script."""
    sizes = {*capture_sizes(largest), max_num_seqs}
    return tuple(sorted(size for size in sizes if size <= largest))


def _workload(run: MeasuredRun, assumed: list[str]) -> tuple[dict[str, Any], float, int]:
    """Workload, seconds of warm-up and requests in it."""
    lengths = {"input": _length(run, "isl", assumed), "output": _length(run, "osl", assumed)}
    process = run.text("arrival_process")
    if process == "closed-loop":
        users = run.count("max_concurrency")
        if not users:
            raise NotModelledError("closed loop without a number of users")
        if not run.count("n_requests"):
            assumed.append("10 requests per user, 100 at least")
        count = run.count("n_requests") or max(100, 10 * users)
        return {"arrivals": {"process": "closed_loop", "users": users}, "num_requests": count, **lengths}, 0.0, 0
    if process == "all-at-t0":
        if not run.count("n_requests"):
            raise NotModelledError("all requests at once, but how many is not stated")
        return {"arrivals": {"process": "all_at_once"}, "num_requests": run.count("n_requests"), **lengths}, 0.0, 0
    rate = run.number("request_rate_rps")
    if process not in {"constant", "poisson"} or not rate:
        raise NotModelledError(f"arrivals {process!r} at {rate or 'no stated'} requests/s cannot be repeated")
    return _open_loop(run, rate, lengths)


def _open_loop(run: MeasuredRun, rate: float, lengths: dict[str, Any]) -> tuple[dict[str, Any], float, int]:
    """Poisson arrivals, rescaled as the load generators do: inference-perf's "constant" draws exponential gaps too."""
    count = run.count("n_requests") or round(rate * (run.number("duration_s") or 600))
    workload: dict[str, Any] = {**lengths}
    warmup = 0
    if prompts := _distinct_prompts(run):
        workload["shared_prefix"] = {"groups": prompts, "length": max(1, round(run.number("isl_mean_tok") or 1))}
        warmup = _ROUNDS_OF_WARMUP * prompts if _follows_a_stage(run) else 0
    workload["num_requests"] = count + warmup
    workload["arrivals"] = {"process": "poisson", "rate": rate, "normalize": True}
    return workload, warmup / rate, warmup


def _distinct_prompts(run: MeasuredRun) -> int:
    """Number of distinct prompts of inference-perf's shared_prefix data: system prompts x questions for each."""
    found = re.search(r"shared_prefix .*?x(\d+) prompts x(\d+) users", run.text("isl_spec"))
    return int(found[1]) * int(found[2]) if found else 0


def _follows_a_stage(run: MeasuredRun) -> bool:
    """Whether the server had served these prompts before: ids and notes number the stages of one run from 0."""
    found = re.search(r"-s(\d+)$", run.name) or re.search(r"\bstage (\d+)", run.text("notes"))
    return bool(found) and int(found[1]) > 0 if found else False


def _length(run: MeasuredRun, column: str, assumed: list[str]) -> dict[str, Any] | int:
    spec, mean = run.text(f"{column}_spec"), run.number(f"{column}_mean_tok")
    if spec.startswith("uniform"):
        share, low, high = run.numbers_in(f"{column}_spec")
        return {"distribution": "uniform", "min": int(share * low), "max": int(high)}
    if mean is None:
        raise NotModelledError(f"{column}_mean_tok is not stated")
    if "ShareGPT" in spec and mean > 8:
        assumed.append(f"{column} log-normal with cv {SHAREGPT_CV}")
        return {"distribution": "lognormal", "mean": mean, "cv": SHAREGPT_CV, "max": 2048}
    return max(1, round(mean))
