"""The frame of the page of a run: its style, for light and dark, and the blocks it is built of."""

from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from string import Template


def table(heads: Sequence[str], rows: Sequence[Sequence[str]], headless: bool = False) -> str:
    """A table of texts; the first column names the row."""
    head = "" if headless else f"<thead><tr>{''.join(f'<th>{escape(text)}</th>' for text in heads)}</tr></thead>"
    body = "".join(
        f"<tr><th>{escape(first)}</th>{''.join(f'<td{_look(text)}>{escape(text)}</td>' for text in rest)}</tr>"
        for first, *rest in rows
    )
    kind = ' class="facts"' if headless else ""
    return f'<div class="wide"><table{kind}>{head}<tbody>{body}</tbody></table></div>'


def _look(text: str) -> str:
    return {"met": ' class="good"', "missed": ' class="bad"'}.get(text, "")


def numbers(values: Mapping[str, str]) -> str:
    """Small figures in a row."""
    return "".join(f"<div><b>{escape(value)}</b><span>{escape(name)}</span></div>" for name, value in values.items())


def figure_block(picture: str, caption: str) -> str:
    """A picture with its caption."""
    return f"<figure>{picture}<figcaption>{escape(caption)}</figcaption></figure>"


def page(parts: Mapping[str, str]) -> str:
    """The whole page from its parts, the names in page.html."""
    template = Path(__file__).with_name("page.html").read_text(encoding="utf-8")
    return Template(template).substitute(parts)
