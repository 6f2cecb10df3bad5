"""The keys of speculative decoding: what they mean, and what is refused in which words."""

import pytest
from scenario_text import scenario
from test_speculation import speculating

from simserve.simulation import simulate
from simserve.spec.errors import ScenarioError
from simserve.spec.load import parse_scenario


def complaint(*overrides: str) -> str:
    with pytest.raises(ScenarioError) as error:
        simulate(scenario(*overrides))
    return str(error.value)


def small(model: str) -> str:
    """An override that asks for this draft model."""
    return f"engine.speculative={{method: draft_model, draft_model: {model}, num_speculative_tokens: 1, acceptance: 1}}"


def test_one_acceptance_holds_for_every_draft() -> None:
    one, each = (scenario(speculating(acceptance=value)).engine.speculative for value in ("70 %", [0.7, 0.7, 0.7]))
    assert one == each
    assert one is not None
    assert one.acceptance == (0.7, 0.7, 0.7)


def test_drafters_run_ahead_as_vllm_lets_them() -> None:
    """All but n-gram look-ups, which wait for their tokens, are asynchronous; draft models have no graphs."""
    methods = ("ngram", "draft_model", "eagle", "mtp")
    engines = {method: scenario(speculating(method)).engine for method in methods}
    assert {method: engine.async_scheduling for method, engine in engines.items()} == {
        "ngram": False,
        "draft_model": True,
        "eagle": True,
        "mtp": True,
    }
    eager = [method for method, engine in engines.items() if engine.speculative and engine.speculative.is_eager]
    assert eager == ["draft_model"]


@pytest.mark.parametrize("method", ["ngram", "draft_model", "eagle", "mtp"])
def test_a_resolved_scenario_asks_the_same_again(method: str) -> None:
    question = scenario(speculating(method))
    assert parse_scenario(question.to_yaml()) == question


@pytest.mark.parametrize(
    ("overrides", "key", "words"),
    [
        (
            [speculating(acceptance=[0.7, 0.6])],
            "acceptance",
            "2 probabilities for 3 drafts; state one, or one for each",
        ),
        ([speculating(acceptance=1.2)], "acceptance", "must be at most 1"),
        (["engine.speculative={method: eagle, num_speculative_tokens: 3}"], "acceptance", "is needed and not given"),
        ([speculating(count=0)], "num_speculative_tokens", "must be at least 1"),
        ([speculating("medusa")], "method", "Medusa heads is not modelled yet"),
        ([speculating("draft_model", model="llama-3.2-1b")], "model", "is called draft_model here"),
        ([speculating("eagle", synthetic_acceptance_length=2.5)], "acceptance_length", "state acceptance"),
        ([speculating("eagle", num_tokens=3)], "num_tokens", "did you mean 'num_speculative_tokens'?"),
        ([speculating("ngram", prompt_lookup_max=4)], "prompt_lookup_max", "state match_rate and acceptance"),
        ([speculating("eagle", draft_model="llama-3.2-1b")], "draft_model", "goes with method draft_model"),
        ([speculating("eagle", match_rate=0.5)], "match_rate", "only n-grams are looked up"),
        ([speculating("mtp", draft_vocab_size=32000)], "draft_vocab_size", "that of an EAGLE drafter"),
        ([speculating("ngram", enforce_eager="true")], "enforce_eager", "on the CPU"),
        ([small("lama-3.2-1b")], "draft_model", "did you mean 'llama-3.2-1b'?"),
        ([small("qwen3-0.6b")], "engine.speculative.draft_model", "a draft must come from the same vocabulary"),
        ([speculating("ngram"), "engine.async_scheduling=true"], "engine.async_scheduling", "wait for the tokens"),
        ([speculating(), "run.resolution=kernels"], "run.resolution", "use runs or steps"),
        ([speculating(), "cost.level=calibrated"], "cost.level", "use auto, kernels or datasheet"),
        ([speculating(), "engine.scheduler=prefill_first"], "engine.scheduler", "use vllm_v1"),
        ([speculating(), "engine.kv_allocation=contiguous"], "engine.kv_allocation", "use paged"),
        ([speculating(), "model=gpt-oss-20b"], "engine.speculative.method", "use ngram"),
    ],
)
def test_what_cannot_be_is_one_error_with_place_and_remedy(overrides: list[str], key: str, words: str) -> None:
    said = complaint(*overrides)
    assert key in said
    assert words in said
