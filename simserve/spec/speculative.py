"""Speculative decoding: who proposes drafts, how many, and how many of them are right."""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

from pydantic import field_validator, model_validator
from pydantic_core import PydanticCustomError

from simserve.spec.catalogue import resolve_model
from simserve.spec.errors import ScenarioError
from simserve.spec.model import ModelSpec
from simserve.spec.quantities import PositiveCount, Seconds, Share, parse_count
from simserve.spec.strict import Strict

if TYPE_CHECKING:
    from simserve.spec.cluster import ClusterSpec
    from simserve.spec.engine import EngineSpec
    from simserve.spec.run import CostSpec, RunSpec

LOOKUP_PER_TOKEN = 1.3e-9
"""Seconds for each token of text in which an n-gram is looked for: 5.3 us for 4,000 tokens and 18 us for 16,000 on one
core of an AMD EPYC, measured with vLLM 0.32's own function (v1/spec_decode/ngram_proposer.py)."""


class SpeculativeSpec(Strict):
    """vLLM's `speculative_config`, and how good the drafts are, which no simulator can know.

    Defaults are vLLM 0.32's. Drafters run with the tensor parallelism of the model they serve.
    """

    NOT_MODELLED: ClassVar = {
        "prompt_lookup_min": "which n-grams match (state match_rate and acceptance)",
        "prompt_lookup_max": "which n-grams match (state match_rate and acceptance)",
        "synthetic_acceptance_rates": "acceptance up to each draft (state acceptance, of each given those before)",
        "synthetic_acceptance_length": "an acceptance length (state acceptance, of each draft given those before)",
        "parallel_drafting": "drafts proposed in one pass",
        "num_speculative_tokens_per_batch_size": "a number of drafts that follows the batch",
        "draft_tensor_parallel_size": "a drafter on fewer GPUs than its model",
        "disable_eagle_block_drop": "keeping the last cached block for an EAGLE drafter",
        "method=eagle3": "EAGLE-3 by name (use eagle with its draft_vocab_size)",
        "method=suffix": "suffix decoding",
        "method=medusa": "Medusa heads",
    }

    method: Literal["ngram", "draft_model", "eagle", "mtp"]
    """`ngram` copies what followed the last tokens earlier in the text; `draft_model` is a small model of its own;
    `eagle` one dense layer of the model's shape over its hidden states, `mtp` one of its own layers."""
    num_speculative_tokens: PositiveCount
    """Drafts that a request gets verified in a step."""
    acceptance: tuple[Share, ...]
    """Probability of each draft to be accepted given that all before it were; one number holds for all of them."""
    match_rate: Share = 1.0
    """How often an n-gram look-up finds something to propose."""
    lookup_time_per_token: Seconds = LOOKUP_PER_TOKEN
    """CPU time of an n-gram look-up for each token of the text so far. The default was measured."""
    draft_model: ModelSpec | None = None
    """Name or configuration of the small model; vLLM's `model`."""
    draft_vocab_size: PositiveCount | None = None
    """Tokens that an EAGLE drafter can propose, with an lm_head of its own: 32,000 in EAGLE-3 heads of Llama 3. Null:
    it shares that of its model."""
    enforce_eager: bool | None = None
    """Whether the drafter runs without CUDA graphs. Null: a draft model does, for which vLLM 0.32 captures none; the
    others as their model."""

    @classmethod
    def explain_unknown(cls, key: str) -> str:
        """As for any section; vLLM's own name of the small model is told ours."""
        return "is called draft_model here" if key == "model" else super().explain_unknown(key)

    @field_validator("draft_model", mode="before")
    @classmethod
    def _find_model(cls, value: Any) -> Any:
        try:
            return None if value is None else resolve_model(value)
        except ScenarioError as error:
            raise PydanticCustomError("unresolved", "{reason}", {"reason": str(error)}) from None

    @model_validator(mode="before")
    @classmethod
    def _one_for_all(cls, data: Any) -> Any:
        """One acceptance for all drafts."""
        if not isinstance(data, Mapping):
            return data
        acceptance = data.get("acceptance")
        count = min(max(_num_drafts(data), 1), _MOST_DRAFTS)
        return {**data, "acceptance": (acceptance,) * count} if isinstance(acceptance, int | float | str) else data

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        count = self.num_speculative_tokens
        if len(self.acceptance) != count:
            _refuse(
                "acceptance", f"{len(self.acceptance)} probabilities for {count} drafts; state one, or one for each"
            )
        if (self.method == "draft_model") != (self.draft_model is not None):
            _refuse("draft_model", "goes with method draft_model, and with no other")
        if self.method != "ngram" and (self.match_rate, self.lookup_time_per_token) != (1.0, LOOKUP_PER_TOKEN):
            _refuse("match_rate", "would be ignored: only n-grams are looked up")
        if self.method != "eagle" and self.draft_vocab_size is not None:
            _refuse("draft_vocab_size", "would be ignored: it is that of an EAGLE drafter")
        if self.method == "ngram" and self.enforce_eager is not None:
            _refuse("enforce_eager", "would be ignored: n-grams are looked up on the CPU")
        return self

    @property
    def query_len(self) -> int:
        """Tokens of a request in a step that verifies all its drafts."""
        return 1 + self.num_speculative_tokens

    @property
    def has_model(self) -> bool:
        """Whether drafts come from the GPU, with weights and KV of their own."""
        return self.method != "ngram"

    @property
    def is_eager(self) -> bool:
        """Whether the drafter has no CUDA graphs whatever its model has."""
        return self.method == "draft_model" if self.enforce_eager is None else self.enforce_eager


_MOST_DRAFTS = 1024
"""A single acceptance is not repeated more often: more drafts than that are a slip of the pen."""


def _refuse(key: str, what: str) -> None:
    raise PydanticCustomError("speculative", "{what}", {"what": what, "key": key})


def fill_speculative(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Defaults of the engine that differ under speculation: n-gram look-ups wait for their tokens (vLLM 0.32,
    config/vllm.py).
    """
    speculative = settings.get("speculative")
    is_ngram = isinstance(speculative, Mapping) and speculative.get("method") == "ngram"
    return {"async_scheduling": False} if is_ngram else {}


def query_len_of(settings: Mapping[str, Any]) -> int:
    """Tokens of a decode in a step, of an engine section as it is written; 1 without speculation."""
    speculative = settings.get("speculative")
    count = _num_drafts(speculative) if isinstance(speculative, Mapping) else 0
    return 1 + count if 0 < count <= _MOST_DRAFTS else 1


def _num_drafts(section: Mapping[str, Any]) -> int:
    """As it is written; 0 where the field's own validation is going to refuse it."""
    with suppress(ValueError):
        return parse_count(section.get("num_speculative_tokens"))
    return 0


def speculative_problems(
    model: ModelSpec, cluster: "ClusterSpec", engine: "EngineSpec", cost: "CostSpec", run: "RunSpec"
) -> Iterator[tuple[str, str]]:
    """Key path of every setting that contradicts speculation, or is not modelled with it, and what to do about it."""
    spec = engine.speculative
    if spec is None:
        return
    yield from _draft_problems(model, cluster, spec)
    if spec.method == "ngram" and engine.async_scheduling:
        yield "engine.async_scheduling", "n-gram look-ups wait for the tokens of the step before; leave it out"
    for key, value, only in (
        ("engine.scheduler", engine.scheduler, "vllm_v1"),
        ("engine.kv_allocation", engine.kv_allocation, "paged"),
        ("engine.preemption", engine.preemption, "recompute"),
        ("engine.host_sync", engine.host_sync, "none"),
    ):
        if value != only:
            yield key, f"{value} is not modelled with engine.speculative yet; use {only}"
    if run.resolution == "kernels":
        yield "run.resolution", "kernels is not modelled with engine.speculative yet; use runs or steps"
    if cost.level == "calibrated":
        yield "cost.level", "no calibration holds steps that verify drafts; use auto, kernels or datasheet"


def _draft_problems(model: ModelSpec, cluster: "ClusterSpec", spec: SpeculativeSpec) -> Iterator[tuple[str, str]]:
    draft = spec.draft_model
    others = model.other_layers | ({} if draft is None else draft.other_layers)
    if spec.has_model and others:
        kinds = " and ".join(others)
        yield "engine.speculative.method", f"KV of a drafter beside {kinds} layers is not modelled yet; use ngram"
    if draft is None:
        return
    key = "engine.speculative.draft_model"
    if draft.vocab_size != model.vocab_size:
        why = f"{draft.name} has {draft.vocab_size} tokens, {model.name} {model.vocab_size}"
        yield key, f"{why}: a draft must come from the same vocabulary"
    if draft.num_heads % cluster.tensor_parallel:
        yield (
            key,
            f"the {draft.num_heads} attention heads of {draft.name} cannot be cut into {cluster.tensor_parallel} parts",
        )
