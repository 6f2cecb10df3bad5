"""From the parsed JSON of a configuration to a `ModelSpec`."""

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from simserve.spec.complaints import describe
from simserve.spec.document import Document, Place
from simserve.spec.dtypes import canonical_dtype
from simserve.spec.errors import ScenarioError
from simserve.spec.hugging_face.family import Decoder, Family, Wrapper
from simserve.spec.hugging_face.harmless import HARMLESS
from simserve.spec.hugging_face.keys import Keys
from simserve.spec.hugging_face.positions import max_model_len
from simserve.spec.hugging_face.quantization.nameless import nameless
from simserve.spec.hugging_face.quantization.rules import FormatRules
from simserve.spec.hugging_face.quantization.section import format_rules
from simserve.spec.hugging_face.registry import family_named, family_of, wrapper_of
from simserve.spec.hugging_face.second_look import size_warnings
from simserve.spec.hugging_face.towers.read import read_towers
from simserve.spec.layers.layer import LayerSpec
from simserve.spec.layers.weights import WeightFormat
from simserve.spec.model import ModelSpec
from simserve.spec.quantities import shown


def model_from_config(
    config: Mapping[str, Any],
    name: str,
    *,
    beside: Mapping[str, Any] | None = None,
    assume: str | None = None,
    ignore: Sequence[str] = (),
    weight_dtype: str | None = None,
) -> ModelSpec:
    """Model of a Hugging Face configuration, which is the parsed JSON.

    `beside`: content of `hf_quant_config.json` in the same folder; `assume`: family whose keys these are, on the user's
    word; `ignore`: keys that the user says change nothing; `weight_dtype`: format of the weights as the user states it,
    in place of what the checkpoint says.

    Raises:
        ScenarioError: a key is missing, makes no sense or is not known; or the family is not known.
    """
    whole = Keys(config, name)
    wrapper = wrapper_of(config)
    sections = _sections(whole, wrapper)
    text = sections[-1]
    family = _family(text, wrapper, name, assume)
    decoder = family.read(text)
    towers, towers_left_out = read_towers(whole, wrapper.towers if wrapper else (), decoder.hidden_size)
    tied, tied_warnings = _tied(sections, wrapper, decoder)
    activation = _activation_dtype(whole, text)
    rules = format_rules(whole, text, beside, replaced=weight_dtype is not None)
    layers = _in_formats(decoder, rules, whole)
    fields = _of_decoder(decoder) | {
        "name": name,
        "source": str(config.get("_source", "")),
        "tie_word_embeddings": tied,
        "max_position_embeddings": max_model_len(text, decoder.max_positions),
        "layers": tuple(layers),
        "activation_dtype": activation,
        "kv_dtype": rules.kv_dtype or activation,
        "lm_head": rules.weights("lm_head"),
        "towers": tuple(towers),
    }
    _refuse_unread(sections, family, wrapper, ignore)
    try:
        model = ModelSpec.model_validate(fields)
    except ValidationError as error:
        raise ScenarioError(describe(error, Document(fields, {(): Place(f"model {name}")}))) from None
    if weight_dtype is not None:
        model = model.in_format(weight_dtype)
    own_word = [] if assume is None else [f"read as {family.name} on the user's word (assume: {assume})"]
    format_warnings = [*rules.warnings, *nameless(rules.lists, _names(decoder))]
    warnings = [*own_word, *decoder.warnings, *tied_warnings, *format_warnings, *size_warnings(name, model)]
    ignored = [f"{key} of its configuration, on the user's word" for key in ignore]
    left_out = [*decoder.left_out, *towers_left_out, *ignored]
    return model.model_copy(update={"left_out": tuple(left_out), "warnings": tuple(warnings)})


def _of_decoder(decoder: Decoder) -> dict[str, Any]:
    """Fields of a model that are those of its decoder as they are."""
    names = ("hidden_size", "vocab_size", "extra_parameters", "learned_positions", "last_norm", "drafting_layers")
    return {name: getattr(decoder, name) for name in names}


def _sections(whole: Keys, wrapper: Wrapper | None) -> list[Keys]:
    """The sections that lead to the keys of the language model, those last: the ones that its wrapper names, or the top
    alone.
    """
    found = [whole]
    for name in ("text_config",) if wrapper is None else wrapper.text:
        section = found[-1].section(name)
        if section is None:
            break
        found.append(section)
    if wrapper is not None:
        kind = found[-1].raw().get("model_type") or wrapper.family
        found[-1] = found[-1].with_defaults(wrapper.defaults.get(kind, {}) if isinstance(kind, str) else {})
    return found


def _family(text: Keys, wrapper: Wrapper | None, name: str, assume: str | None) -> Family:
    if assume is not None:
        return family_named(assume)
    raw = text.raw()
    if wrapper is not None and wrapper.family:
        own = (None, *wrapper.model_types, *wrapper.text_types)
        if raw.get("model_type") in own:
            return family_named(wrapper.family)
    return family_of(raw, name)


def _tied(sections: Sequence[Keys], wrapper: Wrapper | None, decoder: Decoder) -> tuple[bool, list[str]]:
    """Whether the head is the embedding, and what is doubtful in that: the decoder's own key decides, then those of the
    sections around it.
    """
    around = [
        each.flag("tie_word_embeddings", default=False) for each in sections[:-1] if "tie_word_embeddings" in each
    ]
    if "tie_word_embeddings" in sections[-1]:
        differs = any(each != decoder.tied for each in around)
        said = f"tie_word_embeddings is {str(decoder.tied).lower()} with the language model and not so around it"
        return decoder.tied, [f"{said}: the former is taken"] if differs else []
    if around:
        return around[-1], []
    if wrapper is not None and wrapper.class_ties and not decoder.tied:
        said = f"nothing says tie_word_embeddings, and the class of {wrapper.name} takes true"
        return False, [f"{said}: a head of its own is counted, as published checkpoints have one"]
    return decoder.tied, []


def _activation_dtype(whole: Keys, text: Keys) -> str:
    stated = text.text("dtype", "torch_dtype", default="") or whole.text("dtype", "torch_dtype", default="")
    whole.know("dtype", "torch_dtype")
    dtype = str(canonical_dtype(stated or "bf16"))
    if dtype not in {"bf16", "fp16", "fp32"}:
        raise whole.error("dtype", f"activation_dtype: expected one of bf16, fp16, fp32, got {shown(stated)}")
    # vLLM serves a checkpoint in fp32 as bf16 unless told otherwise (config/model.py, dtype auto).
    return "bf16" if dtype == "fp32" else dtype


def _names(decoder: Decoder) -> list[str]:
    """Whole names of all modules of the decoder, as the checkpoint has them."""
    blocks = [
        (index, name, block)
        for index, layer in enumerate(decoder.layers)
        for name, block in (("attention", layer.attention), ("mlp", layer.mlp))
        if block is not None
    ]
    return [
        decoder.modules.name(index, name, matrix)
        for index, name, block in blocks
        for matrix in block.bare_matrices(decoder.hidden_size)
    ]


def _in_formats(decoder: Decoder, rules: FormatRules, keys: Keys) -> list[LayerSpec]:
    """The layers with each GEMM in the format that the checkpoint has for its modules."""
    if rules.is_plain:
        return list(decoder.layers)
    return [_layer_in_formats(decoder, rules, keys, index, layer) for index, layer in enumerate(decoder.layers)]


def _layer_in_formats(decoder: Decoder, rules: FormatRules, keys: Keys, index: int, layer: LayerSpec) -> LayerSpec:
    changed = {}
    for block in ("attention", "mlp"):
        one = getattr(layer, block)
        if one is None:
            continue

        def format_of(matrix: Any, block: str = block) -> WeightFormat | None:
            return rules.weights(decoder.modules.name(index, block, matrix))

        try:
            changed[block] = one.in_formats(format_of, decoder.hidden_size)
        except ValueError as error:
            raise keys.error("quantization_config", f"layer {index}: {error}") from None
    return layer.model_copy(update=changed)


def _refuse_unread(sections: Sequence[Keys], family: Family, wrapper: Wrapper | None, ignore: Sequence[str]) -> None:
    whole, text = sections[0], sections[-1]
    text.know(*HARMLESS, *family.harmless)
    for each in sections[:-1]:
        each.know(*HARMLESS)
        # What a wrapper repeats of its decoder changes nothing if it says the same.
        each.know(*(key for key, value in each.raw().items() if text.raw().get(key) == value))
    for each in sections[:-1] or sections:
        each.know(*(wrapper.harmless if wrapper else ()))
    for each in sections:
        each.expect("is_encoder_decoder", False, why="is not known: models of this family are decoders")
        each.expect("add_cross_attention", False, why="is attention to an encoder, which is not modelled")
        each.expect("cross_attention_hidden_size", why="is of attention to an encoder, which is not modelled")
        each.expect("pruned_heads", {}, why="takes heads out, which is not modelled")
        each.know("tf_legacy_loss")
    whole.ignore(*ignore)
    unread = list(whole.unread())
    if not unread:
        return
    places = ", ".join(dict.fromkeys(f"{key}: {_short(value)}" for _, key, value in unread[:4]))
    more = f" and {len(unread) - 4} more" if len(unread) > 4 else ""
    said = ", ".join(dict.fromkeys(key for _, key, _ in unread))
    raise ScenarioError(
        f"model {whole.model}: {unread[0][0]}: {places}{more}: not known for the family {family.name}, so what it "
        f"changes is not guessed; if you know that it changes nothing, say so beside `config:` (ignore: [{said}])"
    )


def _short(value: object) -> str:
    text = shown(value)
    return text if len(text) <= 40 else f"{text[:37]}..."
