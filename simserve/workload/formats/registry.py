"""The formats of traces, the more particular first: how each is recognised, how it is read, and what it is."""

from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Final, NamedTuple, get_args

from simserve.spec.errors import ScenarioError
from simserve.spec.names import TraceFormat
from simserve.workload.formats import own
from simserve.workload.formats.aiperf import read_aiperf
from simserve.workload.formats.azure import AZURE, read_azure
from simserve.workload.formats.bailian import BAILIAN, read_bailian
from simserve.workload.formats.bench_serve import TOTALS, read_bench_serve
from simserve.workload.formats.block_hashes import block_hash_reader
from simserve.workload.formats.burstgpt import BURSTGPT, read_burstgpt
from simserve.workload.formats.guidellm import read_guidellm
from simserve.workload.formats.inference_perf import read_inference_perf
from simserve.workload.formats.lmcache import LMCACHE, read_lmcache
from simserve.workload.formats.sample import Sample, sample_of
from simserve.workload.formats.servegen import SHAPES, is_dataset, read_servegen
from simserve.workload.formats.sharegpt import CONVERSATIONS, read_sharegpt
from simserve.workload.formats.source import Source
from simserve.workload.formats.table import Options, Table, finite
from simserve.workload.formats.vidur import VIDUR, read_vidur


class Format(NamedTuple):
    """One format: `looks` tells it by the beginning of a file, `what` is for a person, `takes` are the options that
    say something of it.
    """

    what: str
    looks: Callable[[Sample], bool]
    read: Callable[[Source, Options], Table]
    takes: tuple[str, ...] = ()


_TIMES: Final = ("time_unit",)
_HASHES: Final = ("time_unit", "block_size")
_TEXTS: Final = ("tokenizer", "characters_per_token")
_RESULTS: Final = ("result",)


def _has_times_in(unit: str, *, ids: bool | None = None) -> Callable[[Sample], bool]:
    """JSON lines of lengths whose times, whole in ms and broken in s, are in this unit.

    No tool states its unit. Those that count milliseconds write whole numbers; a list of times in seconds that are all
    whole is as good as unheard of. What was taken for which unit is said with the result.
    """

    def looks(sample: Sample) -> bool:
        if sample.kind != "json lines" or not sample.has("input_length", "output_length"):
            return False
        if ids is not None and ids != sample.has("hash_ids"):
            return False
        times = [finite(record.get("timestamp")) for record in sample.records]
        whole = all(time is None or time == int(time) for time in times)
        return whole == (unit == "ms")

    return looks


def _is_servegen(sample: Sample) -> bool:
    if sample.kind == "csv":
        names = sample.names
        return len(names) == 6 and names[3] in SHAPES and all(finite(name) is not None for name in names[:3])
    return sample.kind in {"json", "json lines"} and any(map(is_dataset, sample.records))


def _is_own(kind: str) -> Callable[[Sample], bool]:
    def looks(sample: Sample) -> bool:
        own_names = {*own.OWN_COLUMNS} & {*sample.names}
        has_lengths = {"input_len", "client_input_len", "output_len"} & own_names
        is_headed = any(record.get("format") == own.HEADER_FORMAT for record in sample.records[:1])
        return sample.kind == kind and bool(has_lengths or is_headed)

    return looks


def _is_bench(backend: Callable[[Sample], bool]) -> Callable[[Sample], bool]:
    def looks(sample: Sample) -> bool:
        is_result = sample.has("input_lens") or sample.has(*TOTALS)
        return sample.kind in {"json", "json lines"} and is_result and backend(sample)

    return looks


def _is_sglang(sample: Sample) -> bool:
    marks = ("total_output_tokens_retokenized", "mean_e2e_latency_ms", "accept_length")
    backends = {str(record.get("backend", "")) for record in sample.records}
    return any(map(sample.has, marks)) or any(name.startswith("sglang") for name in backends)


FORMATS: Final[Mapping[TraceFormat, Format]] = {
    "csv": Format("simserve's own CSV", _is_own("csv"), own.read_csv, _TIMES),
    "jsonl": Format("simserve's own JSON lines", _is_own("json lines"), own.read_jsonl, _TIMES),
    "parquet": Format(
        "simserve's columns as parquet", lambda sample: sample.kind == "parquet", own.read_parquet, _TIMES
    ),
    "azure": Format(
        "Azure LLM inference traces of 2023, 2024 and 2025",
        lambda sample: sample.kind == "csv" and sample.has(*AZURE),
        read_azure,
    ),
    "burstgpt": Format(
        "BurstGPT", lambda sample: sample.kind == "csv" and sample.has(*BURSTGPT), read_burstgpt, _TIMES
    ),
    "vidur": Format(
        "Vidur's files of lengths",
        lambda sample: sample.kind == "csv" and sample.has(*[*VIDUR][:2]),
        read_vidur,
        _TIMES,
    ),
    "servegen": Format("a client of ServeGen, requests drawn", _is_servegen, read_servegen),
    "bailian": Format(
        "Qwen-Bailian traces",
        lambda sample: sample.kind == "json lines" and sample.has(*BAILIAN),
        read_bailian,
        _HASHES,
    ),
    "mooncake": Format(
        "Mooncake traces and AIPerf's (ms, blocks of 512)", _has_times_in("ms"), block_hash_reader("ms", 512), _HASHES
    ),
    "timed_trace": Format(
        "timed traces of vllm bench serve (s, blocks of 16)",
        _has_times_in("s", ids=True),
        block_hash_reader("s", 16),
        _HASHES,
    ),
    "guidellm_trace": Format(
        "traces as GuideLLM replays them (s, blocks of 512)", _has_times_in("s"), block_hash_reader("s", 512), _HASHES
    ),
    "lmcache": Format(
        "LMCache's agentic sessions",
        lambda sample: sample.kind == "json lines" and sample.has(*LMCACHE),
        read_lmcache,
        _TEXTS,
    ),
    "aiperf": Format(
        "AIPerf's profile_export.jsonl",
        lambda sample: sample.kind == "json lines" and sample.has("metadata", "metrics"),
        read_aiperf,
    ),
    "sglang_bench": Format("results of SGLang's bench_serving", _is_bench(_is_sglang), read_bench_serve, _RESULTS),
    "vllm_bench": Format("results of vllm bench serve", _is_bench(lambda _: True), read_bench_serve, _RESULTS),
    "guidellm": Format(
        "GuideLLM's benchmarks.json",
        lambda sample: sample.kind in {"json", "json lines"} and sample.has("benchmarks"),
        read_guidellm,
        _RESULTS,
    ),
    "inference_perf": Format(
        "inference-perf's per_request_lifecycle_metrics.json",
        lambda sample: sample.kind == "json" and sample.is_list and sample.has("start_time", "end_time"),
        read_inference_perf,
    ),
    "sharegpt": Format(
        "ShareGPT conversations",
        lambda sample: sample.kind in {"json", "json lines"} and any(map(sample.has, CONVERSATIONS)),
        read_sharegpt,
        (*_TEXTS, "turns"),
    ),
}

assert {*FORMATS} == {*get_args(TraceFormat)}, "a format is named in simserve.spec.names and read here"

SUMMARIES: Final[Mapping[str, tuple[str, ...]]] = {
    "profile_export.jsonl, which AIPerf writes beside it": ("request_count", "input_sequence_length"),
    "per_request_lifecycle_metrics.json of inference-perf": ("load_summary", "successes"),
}
"""Files that hold no requests, by their keys -> the one to take in their place."""


def recognised(source: Source) -> TraceFormat:
    """The format of a file by its content.

    Raises:
        ScenarioError: it is none that is known.
    """
    sample = sample_of(source)
    for name, form in FORMATS.items():
        if form.looks(sample):
            return name
    if sample.kind in {"json", "json lines"}:
        for instead, keys in SUMMARIES.items():
            if sample.has(*keys):
                raise ScenarioError(f"{source.path}: is a summary without requests; take {instead}")
    raise ScenarioError(
        f"{source.path}: is no trace that is known, but {sample.described}; known formats: {', '.join(FORMATS)}."
        " Name the columns arrival (s), input_len and output_len to make it simserve's own"
    )


def read_table(source: Source, form: TraceFormat, options: Options) -> Table:
    """The rows of a file in a format; where that cannot be, the message says which format it looks like.

    Raises:
        ScenarioError: the file has not that format, or an option is stated that says nothing of it.
    """
    stated = [field.name for field in fields(options) if field.name not in {"rows", "seed"}]
    unused = [name for name in stated if getattr(options, name) != getattr(Options(), name)]
    if unused := [name for name in unused if name not in FORMATS[form].takes]:
        raise ScenarioError(
            f"workload.trace.{unused[0]}: says nothing of {form} ({FORMATS[form].what}), which {source.path} is;"
            " take it out"
        )
    try:
        return FORMATS[form].read(source, options)
    except ScenarioError as error:
        other = _other(source)
        if other in {None, form}:
            raise
        raise ScenarioError(f"{error}; the file looks like format: {other}") from None


def _other(source: Source) -> TraceFormat | None:
    try:
        return recognised(source)
    except ScenarioError:
        return None
