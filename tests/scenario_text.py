"""Scenarios for tests that need one beside records made by hand."""

from simserve.spec.load import parse_scenario
from simserve.spec.scenario import Scenario

TEXT = """
name: toy
model: llama-3.1-8b
workload:
  arrivals: {process: poisson, rate: 8}
  input: 512
  output: 128
  num_requests: 100
cluster: {gpu: h100-sxm-80gb, price_per_gpu_hour: $2.5}
"""


def scenario(*overrides: str) -> Scenario:
    """The toy question with some keys changed."""
    return parse_scenario(TEXT, overrides)
