"""One look for every picture: a palette that the colour-blind can tell apart, intervals, legends beside the data.

A picture answers a question, and its title says which direction is better. What is compared has a row a name, with its
single values where they are few, so that nobody takes three runs for a distribution.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from quire.bench.files import check_writable, writing

#: Okabe and Ito's palette, https://jfly.uni-koeln.de/color/, without its yellow, which is faint on white.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
FORMATS = (".pdf", ".png", ".svg")
FEW = 10  #: up to so many values are shown one by one
ENOUGH = 5  #: from so many values on, an interval of their mean says more than they do

_LOOK: Any = {
    "axes.prop_cycle": f"cycler(color={list(COLOURS)})",
    "axes.axisbelow": True,
    "axes.grid": True,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlelocation": "left",
    "axes.titlesize": "medium",
    "figure.titlesize": "medium",
    "font.size": 9,
    "grid.color": "0.92",
    "legend.frameon": False,
    "legend.fontsize": "small",
}


@dataclass(frozen=True)
class Row:
    """What is compared with others: its middle, and what that is worth."""

    name: str
    middle: float
    low: float | None = None  #: of the interval; None where there is none
    high: float | None = None
    points: Sequence[float] = ()  #: the single values


def check_plot(path: Path) -> None:
    """Notice before a long measurement that its picture cannot be drawn.

    Raises:
        ValueError: why not.
    """
    if path.suffix not in FORMATS:
        raise ValueError(f"cannot draw {path}: its name says no known format; end it in {', '.join(FORMATS)}")
    if importlib.util.find_spec("matplotlib") is None:
        raise ValueError("--plot needs matplotlib: pip install 'quire[plot]'")
    check_writable(path)


def save_plot(path: Path, draw: Callable[[Any], None]) -> None:
    """Let `draw` fill a matplotlib figure in the look of all, and save it as the file's ending says.

    Lines and bars with labels get one legend, beside all panels.

    Raises:
        ValueError: it cannot be written, or `check_plot` would have said why not.
    """
    check_plot(path)
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context(_LOOK):
        figure = Figure(figsize=(8, 4.5), layout="constrained")
        draw(figure)
        named: dict[str, Any] = {}
        for axes in figure.axes:
            handles, labels = axes.get_legend_handles_labels()
            named |= zip(labels, handles, strict=True)
        if named:
            figure.legend(named.values(), named, loc="outside lower center", ncols=min(4, len(named)))
        with writing(path, "wb") as file:
            figure.savefig(file, dpi=150, format=path.suffix[1:])


def draw_rows(axes: Any, rows: Sequence[Row], xlabel: str, *, is_change: bool = False) -> None:
    """A row a name, the first on top: single values small, the middle large, its interval as a line.

    Args:
        is_change: 0 is no difference, and has a line.
    """
    places = range(len(rows), 0, -1)
    for place, row in zip(places, rows, strict=True):
        if row.low is not None and row.high is not None:
            axes.plot([row.low, row.high], [place, place], color=COLOURS[0], lw=2, solid_capstyle="butt")
        if len(row.points) <= FEW:
            axes.plot(row.points, [place + 0.18] * len(row.points), "o", ms=3, color=COLOURS[0], alpha=0.5, mew=0)
        axes.plot(row.middle, place, "o", ms=6, color=COLOURS[0])
    if is_change:
        axes.axvline(0, color="0.4", lw=1)
    axes.set_yticks(places, [row.name for row in rows])
    axes.set_ylim(0.4, len(rows) + 0.6)
    axes.grid(axis="y", visible=False)
    axes.set_xlabel(xlabel)
