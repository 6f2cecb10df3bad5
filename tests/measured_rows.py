"""Made-up rows in the schema of the tables of measured runs."""

import csv
from collections.abc import Mapping
from pathlib import Path

COLUMNS = (
    *("id", "tier", "source", "gpu", "n_gpus", "model", "weight_dtype", "kv_dtype", "engine", "engine_version"),
    *("tp", "pp", "dp", "ep", "max_num_seqs", "max_num_batched_tokens", "max_model_len", "gpu_mem_util"),
    *("kv_cache_blocks_16tok", "chunked_prefill", "prefix_caching", "spec_decode", "arrival_process"),
    *("request_rate_rps", "max_concurrency", "n_requests", "duration_s", "isl_mean_tok", "isl_spec", "osl_mean_tok"),
    *("osl_spec", "ttft_mean_ms", "ttft_p99_ms", "tpot_mean_ms", "e2e_mean_ms", "output_tput_tok_s", "notes"),
)

OPEN_LOOP = {
    "id": "made-up-s0",
    "tier": "A",
    "source": "nobody",
    "gpu": "H100-SXM-80GB",
    "model": "meta-llama/Llama-3.1-8B-Instruct",
    "weight_dtype": "fp16",
    "kv_dtype": "auto",
    "engine": "vllm",
    "engine_version": "0.15.1",
    "tp": "1",
    "max_num_seqs": "128",
    "max_num_batched_tokens": "2048",
    "max_model_len": "4096",
    "gpu_mem_util": "0.9",
    "prefix_caching": "on",
    "arrival_process": "constant",
    "request_rate_rps": "8",
    "n_requests": "200",
    "isl_mean_tok": "547",
    "isl_spec": "shared_prefix sys=100 x9 prompts x5 users + question=447",
    "osl_mean_tok": "24",
    "osl_spec": "fixed, ignore_eos",
    "ttft_mean_ms": "25",
    "ttft_p99_ms": "40",
    "tpot_mean_ms": "7.5",
    "e2e_mean_ms": "200",
}

CLOSED_LOOP = {
    "id": "made-up-c8",
    "tier": "B",
    "source": "InferenceMAX",
    "gpu": "B200-SXM-180GB",
    "model": "openai/gpt-oss-120b",
    "weight_dtype": "fp4",
    "kv_dtype": "fp8",
    "engine": "vllm",
    "engine_version": "0.13.0",
    "tp": "1",
    "max_num_seqs": "512",
    "prefix_caching": "off",
    "arrival_process": "closed-loop",
    "max_concurrency": "8",
    "isl_mean_tok": "115",
    "isl_spec": "uniform[0.8*128,128]",
    "osl_mean_tok": "58",
    "osl_spec": "uniform[0.8*64,64] ignore_eos",
    "tpot_mean_ms": "4",
    "output_tput_tok_s": "1500",
}


def write_rows(path: Path, *rows: Mapping[str, str]) -> Path:
    """A table of these rows."""
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, restval="")
        writer.writeheader()
        writer.writerows(rows)
    return path
