"""How long a sequence may be: `max_model_len` as vLLM derives it from positions and their scaling."""

from collections.abc import Iterator

from simserve.spec.hugging_face.keys import Keys

_UNSCALED = {"default", "su", "longrope", "llama3", "mrope", "proportional"}
"""Kinds of rotary embeddings whose stated positions are scaled already."""


_LENGTHS = (
    *("max_position_embeddings", "n_positions", "max_seq_len", "seq_length"),
    *("max_sequence_length", "max_seq_length", "seq_len"),
)


def stated_length(keys: Keys, default: int | None = None) -> int:
    """Positions that the file states: the least of all keys that do, or `model_max_length` where that is there (vLLM
    0.33, model_arch_config_convertor.py, derive_max_model_len_and_key); `default` is the class's.
    """
    stated = [keys.count(name) for name in _LENGTHS if name in keys]
    if "model_max_length" in keys:
        return keys.count("model_max_length")
    return min(stated) if stated else keys.count("max_position_embeddings", default=default)


def max_model_len(keys: Keys, positions: int) -> int:
    """Longest sequence for a model that states `positions` (vLLM 0.32, config/model.py, _get_and_verify_max_len): times
    the factor of its rotary embeddings, from the original positions where that is YaRN.
    """
    longest = float(positions)
    factor = 1.0
    for scaling in _scalings(keys):
        kind = scaling.text("rope_type", "type", default="default")
        scale = scaling.factor("factor", default=1.0)
        original = scaling.count("original_max_position_embeddings", default=positions, null=positions)
        if kind in _UNSCALED:
            continue
        factor = scale
        if kind == "yarn":
            longest = original
    if keys.text("model_type", default="").startswith("gemma3"):
        return positions  # the class states them scaled
    return max(1, round(longest * factor))


def _scalings(keys: Keys) -> Iterator[Keys]:
    """Sections that say how positions are scaled: one for all layers, or one for each kind of layer."""
    for name in ("rope_scaling", "rope_parameters"):
        section = keys.section(name)
        if section is None:
            continue
        kinds = [key for key, value in section.raw().items() if isinstance(value, dict)]
        for each in [section.section(kind) for kind in kinds] or [section]:
            if each is not None:
                each.know(*_KNOWN)
                yield each
        if kinds:
            section.know(*_KNOWN)


_KNOWN = (
    *("rope_theta", "beta_fast", "beta_slow", "mscale", "mscale_all_dim", "attention_factor", "truncate"),
    *("low_freq_factor", "high_freq_factor", "short_factor", "long_factor", "mrope_section", "mrope_interleaved"),
    *("partial_rotary_factor", "extrapolation_factor", "attn_factor", "llama_4_scaling_beta", "finetuned"),
    *("short_mscale", "long_mscale", "alpha", "max_position_embeddings", "apply_yarn_scaling", "interleaved"),
)
"""Keys of such a section that change no length."""


def long_rope_warnings(keys: Keys) -> tuple[str, ...]:
    """What is said of a file with LongRoPE: unless told of more, vLLM serves the positions before it (0.33,
    config/model.py, _get_and_verify_max_len).
    """
    original = keys.whole("original_max_position_embeddings", default=0, null=0)
    kinds = {scaling.text("rope_type", "type", default="default") for scaling in _scalings(keys)}
    if not original or not kinds & {"longrope", "su"}:
        return ()
    return (f"vLLM serves {original} positions, those before LongRoPE, unless max_model_len says more",)
