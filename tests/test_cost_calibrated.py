"""The calibrated step cost: equal to its formula, rising with everything, and only for the model that was measured."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simserve.cost import build_step_cost, cost_level
from simserve.cost.calibrated import CalibratedStepCost
from simserve.simulation import simulate
from simserve.spec import resources
from simserve.spec.calibrated import CalibratedSpec
from simserve.spec.errors import ScenarioError
from simserve.spec.gpus import find_gpu
from simserve.spec.load import load_scenario, parse_scenario
from simserve.spec.scenario import Scenario
from simserve.spec.ticks import to_seconds

SPEC = find_gpu("cpu-calibrated-example").calibrated
assert SPEC is not None
COST = CalibratedStepCost(SPEC)
chunk = st.tuples(st.integers(2, 600), st.integers(0, 2000))
batch = st.tuples(st.lists(chunk, max_size=4), st.integers(1, 64), st.integers(1, 50_000))


def quickstart(*changes: str) -> Scenario:
    return load_scenario(resources.folder("scenarios") / "quickstart-cpu.yaml", changes)


@given(batch)
def test_more_of_anything_never_takes_less(step: tuple[list[tuple[int, int]], int, int]) -> None:
    chunks, decodes, context = step
    base = COST.ticks(chunks, decodes, context, 0)
    larger = [(chunks, decodes + 1, context), (chunks, decodes, context + 1), ([*chunks, (7, 0)], decodes, context)]
    larger += [([(new + 1, history), *chunks[1:]], decodes, context) for new, history in chunks[:1]]
    larger += [([(new, history + 1), *chunks[1:]], decodes, context) for new, history in chunks[:1]]
    for more in larger:
        assert np.all(np.array(COST.ticks(*more, 0)) >= base)
    assert base[0] + base[1] == base[2]


@given(st.integers(1, 300), st.integers(1, 100_000))
def test_a_step_without_chunks_is_the_decode_step(num_decodes: int, context: int) -> None:
    assert COST.step([], num_decodes, context, num_decodes) == COST.decode(num_decodes).at(context)
    one = COST.step([(1, 41)], num_decodes, context, num_decodes)
    assert one == COST.step([], num_decodes + 1, context + 42, num_decodes), "a chunk of one token is a decode"


def test_a_mixed_step_is_the_formula() -> None:
    assert SPEC is not None
    each, host = SPEC.coefficients, SPEC.host
    tokens = float(np.interp(4 + 96, sorted(SPEC.tokens), [SPEC.tokens[count] for count in sorted(SPEC.tokens)]))
    expected = tokens + host.per_step + 5 * host.per_sequence + 4 * each.per_decode + 1000 * each.per_context_token
    expected += each.with_chunks + each.per_chunk + 106 * each.per_chunk_kv_token + 96 * 106 * each.per_chunk_pair
    step = COST.step([(96, 10)], 4, 1000, 5)
    assert float(to_seconds(step.latency)) == pytest.approx(expected, rel=1e-8)


def test_graphs_pad_decodes_and_can_be_switched_off() -> None:
    assert SPEC is not None
    graphs = SPEC.model_copy(update={"graph_sizes": (4, 8), "graph_tokens": {4: 0.001, 8: 0.002}})
    cost = CalibratedStepCost(graphs)
    assert [cost.decode(count).padded for count in (1, 4, 5, 8, 9)] == [4, 4, 8, 8, 0]
    assert cost.decode(9) == COST.decode(9)
    assert cost.decode(4).at(1).gpu < COST.decode(4).at(1).gpu
    assert CalibratedStepCost(graphs, graphs=False).decode(4) == COST.decode(4)


def test_auto_takes_the_calibration_of_this_model_and_no_other() -> None:
    assert cost_level(quickstart("cost.level=auto")) == "calibrated"
    assert isinstance(build_step_cost(quickstart()), CalibratedStepCost)
    assert cost_level(quickstart("cost.level=auto", "model=llama-3.2-1b", "engine.num_gpu_blocks=200")) == "datasheet"
    for change in ("model=llama-3.2-1b", "engine.block_size=32"):
        with pytest.raises(ScenarioError, match="was calibrated for tiny-llama in bf16 on one GPU, blocks of 16"):
            cost_level(quickstart(change))


def test_steps_beyond_the_domain_are_counted() -> None:
    few = "workload.num_requests=60"
    assert simulate(quickstart(few)).meta["extrapolated_steps"] == 0
    wide = simulate(quickstart(few, "workload.arrivals={process: all_at_once}", "engine.max_num_seqs=50"))
    log = wide.steps
    beyond = log["decodes"] > 32
    assert wide.meta["extrapolated_steps"] >= log["steps"][beyond].sum() > 0
    one = {name: np.array([value]) for name, value in {"prefill_tokens": 0, "decodes": 10, "steps": 5}.items()}
    assert COST.extrapolated_steps(one | {"context_tokens": np.array([32_768 - 15])}) == 3


def test_skipping_equal_steps_changes_nothing() -> None:
    few = "workload.num_requests=80"
    fast, slow = simulate(quickstart(few)), simulate(quickstart(few, "run.resolution=steps"))
    for name, column in fast.requests.items():
        assert np.array_equal(column, slow.requests[name]), name


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"tokens": {1: 2.0, 2: 1.0}}, "more tokens take less time"),
        ({"graph_sizes": [4]}, "needs graph_tokens"),
        ({"coefficients": {"per_decode": -1.0}}, "greater than or equal to 0"),
    ],
)
def test_numbers_that_no_fit_gives_are_refused(change: dict[str, object], words: str) -> None:
    assert SPEC is not None
    with pytest.raises(ValueError, match=words):
        CalibratedSpec.model_validate(SPEC.model_dump() | change)


def test_the_resolved_scenario_keeps_the_calibration() -> None:
    scenario = quickstart()
    assert parse_scenario(scenario.to_yaml()) == scenario
