"""What a configuration is refused for: not a decoder, or of a family that nobody has described here."""

from collections.abc import Mapping
from typing import Any

from simserve.spec.errors import ScenarioError
from simserve.spec.quantities import shown

_ENCODERS = frozenset(
    [
        "albert",
        "bert",
        "big_bird",
        "camembert",
        "clip",
        "deberta",
        "deberta-v2",
        "dinov2",
        "distilbert",
        "electra",
        "esm",
        "gte",
        "hubert",
        "longformer",
        "modernbert",
        "mpnet",
        "new",
        "nomic_bert",
        "roberta",
        "siglip",
        "vit",
        "wav2vec2",
        "xlm-roberta",
        "xlm-roberta-xl",
    ]
)
_ENCODER_DECODERS = frozenset(
    ["bart", "led", "m2m_100", "marian", "mbart", "mt5", "pegasus", "t5", "t5gemma", "umt5", "whisper"]
)

_ASSUME = "say so beside `config:` (`assume: llama`), which every result repeats"


def refuse(config: Mapping[str, Any], model: str) -> ScenarioError:
    """The error for a configuration of no known family: its true reason, and what to do."""
    kind, names = config.get("model_type"), config.get("architectures")
    if "_class_name" in config or "_diffusers_version" in config:
        what = shown(config.get("_class_name", "a pipeline"))
        return _error(model, f"{what} is a diffusion model: it does not generate token by token")
    if isinstance(kind, str) and kind in _ENCODERS:
        return _error(model, f"model_type {kind} is an encoder: it has no KV cache and generates no tokens")
    if (isinstance(kind, str) and kind in _ENCODER_DECODERS) or config.get("is_encoder_decoder") is True:
        what = f"model_type {shown(kind)} is an encoder with a decoder"
        return _error(model, f"{what}: its cross-attention is not modelled, decoders alone are")
    if kind is None and not names:
        what = "neither model_type nor architectures says of what family it is"
        return _error(model, f"{what}; add model_type, or if you know one that it is like, {_ASSUME}")
    said = f"model_type {shown(kind)}"
    if isinstance(names, list) and names:
        said += f", architectures {', '.join(map(str, names))}"
    return _error(
        model,
        f"no family is known by {said}, so what its keys mean is not guessed; if it has layers and keys of a known "
        f"family, {_ASSUME}",
    )


def _error(model: str, what: str) -> ScenarioError:
    return ScenarioError(f"model {model}: config.json: {what}")
