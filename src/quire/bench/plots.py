"""Common style of all plots: colour-blind-safe palette, intervals, one legend; up to ten single values beside a
mean."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from quire.bench.files import check_writable, writing

#: Okabe and Ito's palette, https://jfly.uni-koeln.de/color/, without yellow, which is faint on white.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
FORMATS = (".pdf", ".png", ".svg")
FEW = 10  #: most values that are drawn one by one
ENOUGH = 5  #: fewest values for an interval of their mean

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
class PlotRow:
    """One named value with its interval and its single measurements."""

    name: str
    middle: float
    low: float | None = None  #: bounds of the interval, if there is one
    high: float | None = None
    points: Sequence[float] = ()


def check_plot(path: Path) -> None:
    """Raise ValueError if the picture's format is unknown, matplotlib is missing, or the file cannot be written."""
    if path.suffix not in FORMATS:
        raise ValueError(f"cannot draw {path}: its name has no known format; end it in {', '.join(FORMATS)}")
    if importlib.util.find_spec("matplotlib") is None:
        raise ValueError("--plot needs matplotlib: pip install 'quire-llm[plot]'")
    check_writable(path)


def save_plot(path: Path, draw: Callable[[Any], None]) -> None:
    """Let `draw` fill a figure, add one legend for all panels, and save it. Raises ValueError as `check_plot` does."""
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


def draw_rows(axes: Any, rows: Sequence[PlotRow], xlabel: str, *, is_change: bool = False) -> None:
    """Draw rows downwards: single values small, the middle large, its interval a line; with `is_change` a line at 0."""
    positions = range(len(rows), 0, -1)
    for y, row in zip(positions, rows, strict=True):
        if row.low is not None and row.high is not None:
            axes.plot([row.low, row.high], [y, y], color=COLOURS[0], lw=2, solid_capstyle="butt")
        if len(row.points) <= FEW:
            axes.plot(row.points, [y + 0.18] * len(row.points), "o", ms=3, color=COLOURS[0], alpha=0.5, mew=0)
        axes.plot(row.middle, y, "o", ms=6, color=COLOURS[0])
    if is_change:
        axes.axvline(0, color="0.4", lw=1)
    axes.set_yticks(positions, [row.name for row in rows])
    axes.set_ylim(0.4, len(rows) + 0.6)
    axes.grid(axis="y", visible=False)
    axes.set_xlabel(xlabel)
