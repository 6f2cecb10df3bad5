"""Lengths of texts in tokens, by a tokenizer that the user names or by a ratio that the user states."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from simserve.spec.errors import ScenarioError
from simserve.workload.formats.source import Source
from simserve.workload.formats.table import Options

Count = Callable[[str], int]


def counter(source: Source, options: Options) -> tuple[Count, str]:
    """A function that counts the tokens of a text, at least one, and a sentence on how.

    Raises:
        ScenarioError: neither a tokenizer nor a ratio is stated, or both are, or the tokenizer cannot be had.
    """
    ratio, name = options.characters_per_token, options.tokenizer
    if (ratio is None) == (name is None):
        raise ScenarioError(
            f"{source.path}: holds texts, whose tokens must be counted: state one of workload.trace.tokenizer (a"
            " tokenizer.json) and workload.trace.characters_per_token (about 4 for English)"
        )
    if name is not None:
        return _by_tokenizer(name), f"Lengths are those of the tokenizer {name}, without a chat template."
    assert ratio is not None
    return (
        lambda text: max(1, round(len(text) / ratio)),
        f"Lengths are guessed from characters, {ratio:g} to a token: real ones differ by text and tokenizer.",
    )


def _by_tokenizer(name: str) -> Count:
    try:
        import tokenizers
    except ImportError:
        raise ScenarioError(
            f"workload.trace.tokenizer: {name}: needs the package `tokenizers` (pip install tokenizers); or state"
            " workload.trace.characters_per_token"
        ) from None
    try:
        found: Any = (
            tokenizers.Tokenizer.from_file(name) if Path(name).exists() else tokenizers.Tokenizer.from_pretrained(name)
        )
    except Exception as error:  # the library's own errors have no common base
        raise ScenarioError(f"workload.trace.tokenizer: {name}: cannot be used: {error}") from None
    return lambda text: max(1, len(found.encode(text).ids))


def text_of(content: Any) -> str:
    """Text of a message, whether it is one string or a list of parts."""
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else []
    texts = [part.get("text") if isinstance(part, dict) else part for part in parts]
    return "".join(text for text in texts if isinstance(text, str))
