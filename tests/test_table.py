"""The console table: vLLM's layout to the byte, ours after it in the same style."""

from typing import Any

import pytest
from made_result import Toy, poisson, with_status
from scenario_text import scenario

from simserve.report.summary import summarize
from simserve.report.table import benchmark_table

VLLM = """\
============ Serving Benchmark Result ============
Successful requests:                     100       
Failed requests:                         0         
Request rate configured (RPS):           4.00      
Benchmark duration (s):                  25.79     
Total input tokens:                      25809     
Total generated tokens:                  4969      
Request throughput (req/s):              3.88      
Output token throughput (tok/s):         192.68    
Peak output token throughput (tok/s):    446.00    
Peak concurrent requests:                21.00     
Total token throughput (tok/s):          1193.45   
---------------Time to First Token----------------
Mean TTFT (ms):                          164.54    
Median TTFT (ms):                        139.70    
P99 TTFT (ms):                           437.83    
-----Time per Output Token (excl. 1st token)------
Mean TPOT (ms):                          20.20     
Median TPOT (ms):                        16.51     
P99 TPOT (ms):                           43.11     
---------------Inter-token Latency----------------
Mean ITL (ms):                           20.40     
Median ITL (ms):                         12.76     
P99 ITL (ms):                            125.37    
----------------End-to-end Latency----------------
Mean E2EL (ms):                          1157.83   
Median E2EL (ms):                        996.63    
P99 E2EL (ms):                           2753.64   
==================================================
"""  # noqa: W291 (vLLM pads the values)
"""What `vllm bench serve` 0.32.0 prints for the numbers below, with --percentile-metrics ttft,tpot,itl,e2el."""

MEASURED = {
    "completed": 100, "failed": 0, "max_concurrency": None, "request_rate": 4.0, "duration": 25.78906448700036,
    "total_input_tokens": 25809, "total_output_tokens": 4969, "request_throughput": 3.8776125458295536,
    "request_goodput": None, "output_throughput": 192.67856740227052, "total_token_throughput": 1193.45158935542,
    "max_output_tokens_per_s": 446.0, "max_concurrent_requests": 21,
    "mean_ttft_ms": 164.54416735003178, "median_ttft_ms": 139.70277200019154, "p99_ttft_ms": 437.83120965005327,
    "mean_tpot_ms": 20.195046163309158, "median_tpot_ms": 16.506824911542797, "p99_tpot_ms": 43.114493785299956,
    "mean_itl_ms": 20.40026460156024, "median_itl_ms": 12.763479999648553, "p99_itl_ms": 125.37426980007392,
    "mean_e2el_ms": 1157.8330508, "median_e2el_ms": 996.6252595002061, "p99_e2el_ms": 2753.6396034002064,
}  # fmt: skip


@pytest.fixture
def summary() -> dict[str, Any]:
    return summarize(poisson(150, rate=10).run(scenario=scenario("slo={ttft: 100 ms, tpot: 1 ns}")))


def test_vllm_block_is_vllms_to_the_byte(summary: dict[str, Any]) -> None:
    assert benchmark_table(summary | MEASURED, percentiles=(99,)).startswith(VLLM)


def test_optional_lines_appear_as_in_vllm(summary: dict[str, Any]) -> None:
    table = benchmark_table(summary | MEASURED | {"max_concurrency": 8, "request_rate": "inf", "request_goodput": 3.5})
    assert (
        "Failed requests:                         0         \nMaximum request concurrency:             8         \n"
        in table
    )
    assert "Request rate configured" not in table
    assert "Request goodput (req/s):                 3.50      \nOutput token throughput" in table


def test_our_block_follows_in_the_same_columns(summary: dict[str, Any]) -> None:
    ours = benchmark_table(summary).split("=" * 50 + "\n")[1].splitlines()
    assert ours[0] == "=================== Simulation ==================="
    assert "Saturation:                              stable    " in ours
    assert "Preemptions:                             0         " in ours
    assert "P95 TTFT <= 100 ms:                      met       " in ours
    assert "P95 TPOT <= 1e-06 ms:                    missed    " in ours
    assert all(len(line) <= 51 for line in ours)
    assert ours[-1] == "=" * 50
    assert "cost level datasheet" in " ".join(ours)


def test_what_does_not_exist_is_not_a_number() -> None:
    """inference-sim#926: a run that completed nothing has a table all the same."""
    result = Toy([0, 0], [10, 10], [5, 5]).run(scenario=scenario())
    with_status(result, 0, "rejected")
    with_status(result, 1, "unfinished")
    table = benchmark_table(summarize(result))
    assert "Request throughput (req/s):              0.00      " in table
    assert "Mean TTFT (ms):                          n/a       " in table
    assert "P99 ITL (ms):                            n/a       " in table
    assert "Unfinished requests:                     1         " in table
