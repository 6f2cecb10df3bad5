"""The naive prediction: a decode step reads all weights and the KV cache of its batch at the nominal bandwidth."""

from typing import Any

from simserve.spec.arrivals import ClosedLoop, Constant, Gamma, Poisson
from simserve.spec.scenario import Scenario

_ROUNDS = 50


def roofline_tpot(scenario: Scenario) -> float:
    """Seconds per output token: bytes / (ranks x nominal HBM bandwidth).

    The batch is the number of users of a closed loop; under open arrivals it is rate x output length x TPOT (Little's
    law), at most `max_num_seqs`.
    """
    model, cluster, workload = scenario.model, scenario.cluster, scenario.workload
    bandwidth = cluster.tensor_parallel * cluster.gpu.hbm_bandwidth
    inputs, outputs = _mean(workload.input), _mean(workload.output)
    context = inputs + outputs / 2
    seats = scenario.engine.max_num_seqs
    weights = model.weight_bytes

    def step(batch: float) -> float:
        touched = 1.0
        if model.is_moe:
            left_out = (1 - model.experts_per_token / model.num_experts) ** batch
            share = 1 - (model.num_active_parameters / model.num_parameters)
            touched = 1 - share * left_out
        return (weights * touched + batch * context * model.kv_bytes_per_token) / bandwidth

    match workload.arrivals:
        case ClosedLoop(users=users):
            return step(min(users / cluster.replicas, seats))
        case Poisson(rate=rate) | Constant(rate=rate) | Gamma(rate=rate):
            time = step(1)
            for _ in range(_ROUNDS):
                time = step(min(seats, max(1.0, rate / cluster.replicas * outputs * time)))
            return time
    return step(min(seats, workload.num_requests or seats))


def _mean(length: Any) -> float:
    """Mean of a length distribution; 1 where a trace gives the lengths."""
    if hasattr(length, "value"):
        return float(length.value)
    if hasattr(length, "mean"):
        return float(length.mean)
    if hasattr(length, "min"):
        return (float(length.min) + float(length.max)) / 2
    return 1.0
