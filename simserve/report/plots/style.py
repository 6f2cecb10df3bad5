"""How every picture looks, and how it becomes a file: the same bytes for the same run."""

import functools
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

P = ParamSpec("P")

INK = "#2b3038"
FAINT = "#6b7480"
GRID = "#dde1e6"
BLUE, RED, GREEN, PURPLE, YELLOW, CYAN, GREY = (
    "#4477aa", "#ee6677", "#228833", "#aa3377", "#ccbb44", "#66ccee", "#bbbbbb",
)  # fmt: skip
CYCLE = (BLUE, RED, GREEN, PURPLE, YELLOW, CYAN)
"""Paul Tol's bright scheme (https://personal.sron.nl/~pault/): for the colour-blind too, on white and on black."""

STYLE: Any = {
    "font.size": 9,
    "axes.titlesize": 10,
    "axes.titlelocation": "left",
    "axes.titleweight": "bold",
    "axes.labelcolor": INK,
    "axes.edgecolor": FAINT,
    "axes.linewidth": 0.8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": GRID,
    "grid.linewidth": 0.7,
    "text.color": INK,
    "xtick.color": FAINT,
    "ytick.color": FAINT,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "legend.frameon": False,
    "legend.fontsize": 8,
    "lines.linewidth": 1.6,
    "figure.constrained_layout.use": True,
    "svg.hashsalt": "simserve",
    "svg.fonttype": "path",
}


@contextmanager
def _own_style() -> Iterator[None]:
    """This style and nothing of the reader's own settings, for a while."""
    import matplotlib as mpl

    with mpl.rc_context():
        mpl.rcdefaults()
        mpl.rcParams.update(STYLE)
        yield


def styled(draw: "Callable[P, Figure]") -> "Callable[P, Figure]":
    """A plot function that draws in this style, whatever the reader's own settings are."""

    @functools.wraps(draw)
    def drawn(*args: P.args, **kwargs: P.kwargs) -> "Figure":
        with _own_style():
            return draw(*args, **kwargs)

    return drawn


def figure(width: float = 7.2, height: float = 4.0) -> "Figure":
    """An empty figure (inches) that no global state knows of."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height))


def plain_log_axis(axis: Any) -> None:
    """Numbers such as 20 and 500 on a logarithmic axis, and not powers of ten."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0), numticks=12))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_formatter(NullFormatter())


def legend_below(drawn: "Figure", handles: "Sequence[Artist]") -> None:
    """One legend for all panels, below them, in as many columns as fit."""
    labels = [str(handle.get_label()) for handle in handles]
    columns = max(1, min(len(labels), 95 // (max(map(len, labels), default=0) + 7)))
    drawn.legend(handles=list(handles), loc="outside lower center", ncols=columns)


def nothing_to_show(axes: "Axes", text: str) -> None:
    """Say why a panel is empty."""
    axes.set_axis_off()
    axes.text(0.5, 0.5, text, ha="center", va="center", color=FAINT, transform=axes.transAxes)


def save_figure(drawn: "Figure", stem: Path) -> tuple[Path, Path]:
    """Write STEM.svg and STEM.png."""
    svg, png = (stem.with_name(f"{stem.name}.{suffix}") for suffix in ("svg", "png"))
    with _own_style():
        drawn.draw_without_rendering()
        drawn.set_layout_engine("none")  # laid out once is enough for both files
        drawn.savefig(svg, metadata={"Date": None})
        drawn.savefig(png, dpi=150, metadata={"Software": None})
    return svg, png


def inline_svg(svg: str, name: str, description: str) -> str:
    """A saved picture as an element of a page, without a background and in the page's `--ink`, `--faint` and `--grid`.

    Identifiers carry `name`, so that several pictures live on one page.
    """
    text = svg[svg.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(r"\bid=\"", f'id="{name}-', text)
    text = text.replace('href="#', f'href="#{name}-').replace("url(#", f"url(#{name}-")
    for colour, page_colour in (
        ("#ffffff", "none"),
        (INK, "var(--ink)"),
        (FAINT, "var(--faint)"),
        (GRID, "var(--grid)"),
    ):
        text = text.replace(colour, page_colour)
    head = re.sub(r' (width|height)="[^"]*"', "", text[: text.index(">")])
    label = f'<svg role="img" aria-label="{description}"'
    return (head.replace("<svg", label) + text[text.index(">") :]).strip()
