"""The list of all families and wrappers: a further one is a file of its own and a line here."""

from collections.abc import Mapping
from typing import Any, TypeVar

from simserve.spec.errors import ScenarioError
from simserve.spec.hugging_face.families import (
    afmoe,
    bailing,
    cohere,
    deepseek_v4,
    exaone,
    falcon,
    fused,
    gemma,
    gemma3n,
    gemma4,
    gpt_oss,
    kimi_linear,
    latent_attention,
    learned_positions,
    lfm2,
    like_llama,
    llama,
    llama4,
    mamba,
    mamba_hybrid,
    mimo,
    minimax,
    mixtures,
    more_mixtures,
    nemotron_h,
    nemotron_nas,
    olmo,
    qwen,
    qwen_hybrid,
    recurrent_gemma,
    sparse_latent,
    step3,
    without_gate,
    zamba2,
)
from simserve.spec.hugging_face.family import Family, Wrapper
from simserve.spec.hugging_face.refused import refuse
from simserve.spec.hugging_face.wrappers import WRAPPERS
from simserve.spec.strict import nearest

Known = TypeVar("Known", Family, Wrapper)

FAMILIES: tuple[Family, ...] = (
    *llama.FAMILIES,
    *qwen.FAMILIES,
    *mixtures.FAMILIES,
    *more_mixtures.FAMILIES,
    *latent_attention.FAMILIES,
    *nemotron_h.FAMILIES,
    *nemotron_nas.FAMILIES,
    *qwen_hybrid.FAMILIES,
    *sparse_latent.FAMILIES,
    *deepseek_v4.FAMILIES,
    *kimi_linear.FAMILIES,
    *minimax.FAMILIES,
    *mamba.FAMILIES,
    *mamba_hybrid.FAMILIES,
    *lfm2.FAMILIES,
    *recurrent_gemma.FAMILIES,
    *gemma4.FAMILIES,
    *gpt_oss.FAMILIES,
    *llama4.FAMILIES,
    *mimo.FAMILIES,
    *step3.FAMILIES,
    *gemma.FAMILIES,
    *gemma3n.FAMILIES,
    *cohere.FAMILIES,
    *olmo.FAMILIES,
    *exaone.FAMILIES,
    *afmoe.FAMILIES,
    *learned_positions.FAMILIES,
    *falcon.FAMILIES,
    *without_gate.FAMILIES,
    *like_llama.FAMILIES,
    *fused.FAMILIES,
    *zamba2.FAMILIES,
    *bailing.FAMILIES,
)

FAMILY_NAMES = tuple(sorted(family.name for family in FAMILIES))


def family_named(name: str) -> Family:
    """The family of a name.

    Raises:
        ScenarioError: there is none.
    """
    found = next((family for family in FAMILIES if family.name == name), None)
    if found is None:
        near = nearest(name, FAMILY_NAMES)
        hint = f"; did you mean {near!r}?" if near else f"; known: {', '.join(FAMILY_NAMES)}"
        raise ScenarioError(f"assume: no family {name!r}{hint}")
    return found


def wrapper_of(config: Mapping[str, Any]) -> Wrapper | None:
    """The wrapper that a configuration is of, by its architecture, or by its `model_type`; None where it is none."""
    return _by_architecture(config, WRAPPERS) or _by_type(config, WRAPPERS)


def family_of(config: Mapping[str, Any], model: str) -> Family:
    """The family of a configuration. Its architecture decides where both are known: some files have a `model_type` of
    another family.

    Raises:
        ScenarioError: an encoder, a diffusion model, or a family that is not in the table.
    """
    found = _by_architecture(config, FAMILIES) or _by_type(config, FAMILIES)
    if found is None:
        raise refuse(config, model)
    return found


def _architectures(config: Mapping[str, Any]) -> list[str]:
    names = config.get("architectures")
    return [name for name in names if isinstance(name, str)] if isinstance(names, list) else []


def _by_architecture(config: Mapping[str, Any], known: tuple[Known, ...]) -> Known | None:
    names = _architectures(config)
    return next((each for each in known if any(name in each.architectures for name in names)), None)


def _by_type(config: Mapping[str, Any], known: tuple[Known, ...]) -> Known | None:
    name = config.get("model_type")
    return next((each for each in known if name in each.model_types), None)
