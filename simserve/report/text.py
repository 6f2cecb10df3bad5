"""Numbers as a person reads them: three digits that count, units, and a dash for what does not exist."""

NONE = "–"
THIN = "\u202f"
"""A narrow space at which no line breaks."""


def number(value: float | None) -> str:
    """Three significant digits, thousands apart."""
    if value is None:
        return NONE
    if abs(value) >= 100:
        return f"{value:,.0f}".replace(",", THIN)
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def count(value: int | None) -> str:
    """A whole number, thousands apart."""
    return NONE if value is None else f"{value:,}".replace(",", THIN)


def ms(milliseconds: float | None) -> str:
    """Milliseconds with their unit; seconds from ten of them on."""
    if milliseconds is None:
        return NONE
    return f"{number(milliseconds / 1e3)}{THIN}s" if milliseconds >= 1e4 else f"{number(milliseconds)}{THIN}ms"


def limit_ms(milliseconds: float) -> str:
    """A limit as it was stated."""
    return f"{milliseconds / 1e3:g}{THIN}s" if milliseconds >= 1e3 else f"{milliseconds:g}{THIN}ms"


def percent(share: float | None) -> str:
    """A share as a percentage."""
    return NONE if share is None else f"{100 * share:.1f}{THIN}%"


def gib(size: float | None) -> str:
    """Bytes in GiB."""
    return NONE if size is None else f"{size / 2**30:.1f}{THIN}GiB"


def first_upper(text: str) -> str:
    """The same with a capital at the start of a line."""
    return text[:1].upper() + text[1:]


GROUPS = {
    "linear": "linear layers",
    "experts": "expert layers",
    "elementwise": "norms, rope, activation",
    "lm_head": "lm_head",
    "attention_decode": "attention of decodes",
    "attention_prefill": "attention of prompts",
    "communication": "all-reduce",
    "drafts": "drafter, all of it",
    "peers": "peers, GPU waiting",
    "host": "host, GPU waiting",
}
"""Groups of operators as a person calls them."""


def group_name(group: str) -> str:
    """Name of a group of `step_time_breakdown`."""
    return GROUPS.get(group, group.replace("_", " "))
