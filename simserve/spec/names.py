"""What a scenario may choose by name, each list of names written once.

The registries that tell what a name stands for (`simserve.cluster.routers`, `simserve.engine.policies`,
`simserve.workload.trace_formats`) take their keys from here, and are checked against it.
"""

from typing import Literal

RouterName = Literal["round_robin", "random", "least_requests", "prefix_affinity"]

SchedulerName = Literal["vllm_v1", "prefill_first", "static"]

TraceFormat = Literal["azure", "csv", "jsonl", "vllm_bench"]
