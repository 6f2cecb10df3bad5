"""What a scenario may choose by name, each list of names written once.

The registries that tell what a name stands for (`simserve.cluster.routers`, `simserve.engine.policies`,
`simserve.workload.formats.registry`) take their keys from here, and are checked against it.
"""

from typing import Literal

RouterName = Literal["round_robin", "random", "least_requests", "prefix_affinity"]

SchedulerName = Literal["vllm_v1", "prefill_first", "static"]

TraceFormat = Literal[
    "csv",
    "jsonl",
    "parquet",
    "azure",
    "burstgpt",
    "vidur",
    "servegen",
    "bailian",
    "mooncake",
    "timed_trace",
    "guidellm_trace",
    "lmcache",
    "aiperf",
    "sglang_bench",
    "vllm_bench",
    "guidellm",
    "inference_perf",
    "sharegpt",
]
