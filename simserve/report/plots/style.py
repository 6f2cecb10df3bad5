"""How every picture looks, and how it becomes a file: the same bytes for the same run."""

import functools
import io
import re
from collections.abc import Callable, Sequence
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


def styled(draw: "Callable[P, Figure]") -> "Callable[P, Figure]":
    """A plot function that draws in this style, whatever the reader's own settings are."""

    @functools.wraps(draw)
    def drawn(*args: P.args, **kwargs: P.kwargs) -> "Figure":
        import matplotlib as mpl

        with mpl.rc_context():
            mpl.rcdefaults()
            mpl.rcParams.update(STYLE)
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


def save_figure(drawn: "Figure", stem: Path) -> list[Path]:
    """Write STEM.svg and STEM.png."""
    paths = [stem.with_name(f"{stem.name}.{suffix}") for suffix in ("svg", "png")]
    for path in paths:
        path.write_bytes(_image(drawn, path.suffix[1:]))
    return paths


def _image(drawn: "Figure", kind: str, **options: Any) -> bytes:
    import matplotlib as mpl

    buffer = io.BytesIO()
    metadata: dict[str, Any] = {"Date": None} if kind == "svg" else {"Software": None}
    with mpl.rc_context(STYLE):
        drawn.savefig(buffer, format=kind, dpi=150, metadata=metadata, **options)
    return buffer.getvalue()


def inline_svg(drawn: "Figure", name: str, description: str) -> str:
    """The picture as an element of a page, whose colours `--ink`, `--faint` and `--grid` it takes.

    Identifiers carry `name`, so that several pictures live on one page.
    """
    text = _image(drawn, "svg", transparent=True).decode()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(r'\bid="', f'id="{name}-', text)
    text = re.sub(r'href="#', f'href="#{name}-', text)
    text = text.replace("url(#", f"url(#{name}-")
    for colour, variable in ((INK, "--ink"), (FAINT, "--faint"), (GRID, "--grid")):
        text = text.replace(colour, f"var({variable})")
    head = f'<svg role="img" aria-label="{description}"'
    text = re.sub(r'(<svg[^>]*?) width="[^"]*"', r"\1", text, count=1)
    text = re.sub(r'(<svg[^>]*?) height="[^"]*"', r"\1", text, count=1)
    return text.replace("<svg", head, 1).strip()
