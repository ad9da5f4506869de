"""Report of a benchmark: a table, JSON and a picture of the same figures.

A measured quantity is `{"median", "min", "max"}` over the repetitions; a computed one is a plain number. All benchmarks
use the names `wall_s`, `out_tok_s`, `total_tok_s`, `ttft_s`, `tpot_s`, `peak_rss_mib`.
"""

from __future__ import annotations

import importlib.metadata
import platform
import resource
import statistics
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from quire.bench.files import write_json
from quire.system.machine import cpu_name, memory_gib, num_usable_cores

if TYPE_CHECKING:
    from rich.table import Table

SCHEMA = 1
_WIDE = 120  #: columns of a wide terminal, and of output that goes to a file


def summarise(values: Iterable[float]) -> dict[str, float] | None:
    """Median, minimum and maximum; None without values."""
    known = list(values)
    if not known:
        return None
    return {"median": statistics.median(known), "min": min(known), "max": max(known)}


def peak_rss_mib() -> int:
    """Peak resident memory of this process."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


@dataclass(frozen=True)
class Repetition:
    """One pass over a workload. Times count from its submission."""

    wall_s: float
    num_prompt_tokens: int
    num_output_tokens: int  #: generated, possibly fewer than requested
    ttft_s: list[float] = field(default_factory=list)  #: per request
    tpot_s: list[float] = field(default_factory=list)  #: per request with more than one token
    peak_rss_mib: int = field(default_factory=peak_rss_mib)


def timing_figures(repetitions: Sequence[Repetition]) -> dict[str, Any]:
    """Summarise repetitions. TTFT and TPOT are means over the requests of each."""
    total = [r.num_prompt_tokens + r.num_output_tokens for r in repetitions]
    return {
        "in": repetitions[0].num_prompt_tokens,
        "out_got": repetitions[-1].num_output_tokens,
        "wall_s": summarise(r.wall_s for r in repetitions),
        "out_tok_s": summarise(r.num_output_tokens / r.wall_s for r in repetitions),
        "total_tok_s": summarise(count / r.wall_s for count, r in zip(total, repetitions, strict=True)),
        "ttft_s": summarise(statistics.mean(r.ttft_s) for r in repetitions if r.ttft_s),
        "tpot_s": summarise(statistics.mean(r.tpot_s) for r in repetitions if r.tpot_s),
        "peak_rss_mib": summarise(r.peak_rss_mib for r in repetitions),
    }


@dataclass(frozen=True)
class Column:
    key: str  #: of a figure; a dot separates nested keys
    heading: str
    scale: float = 1.0
    digits: int = 2
    unit: str = ""  #: suffix of each value, such as " %"
    is_change: bool = False  #: show the sign

    def cell(self, figure: Mapping[str, Any]) -> str:
        """Format a value, a median over its range, or a mean with its bounds."""
        value: Any = figure
        for part in self.key.split("."):
            value = value.get(part) if isinstance(value, dict) else None
        if value is None:
            return "–"
        if isinstance(value, dict) and "low" in value:
            return self._with_bounds(value)
        if isinstance(value, dict):
            low, high = (self._number(value[name]) for name in ("min", "max"))
            median = self._number(value["median"])
            return f"{median}{self.unit}" if low == high else f"{median}{self.unit}\n{low}–{high}"
        return f"{self._number(value)}{self.unit}" if isinstance(value, int | float) else str(value)

    def _number(self, value: float) -> str:
        return f"{value * self.scale:{'+' if self.is_change else ''},.{self.digits}f}"

    def _with_bounds(self, value: dict[str, float | None]) -> str:
        mean, low, high = value["mean"], value["low"], value["high"]
        assert mean is not None
        if low is None or high is None:
            return f"{self._number(mean)}{self.unit}"
        if self.is_change:
            return f"{self._number(mean)}{self.unit} [{self._number(low)}, {self._number(high)}]"
        return f"{self._number(mean)} ± {self._number(high - mean)}{self.unit}"


TIMING_COLUMNS = (
    Column("wall_s", "wall s"),
    Column("out_tok_s", "out tok/s", digits=1),
    Column("total_tok_s", "in+out tok/s", digits=0),
    Column("ttft_s", "TTFT ms", scale=1e3, digits=0),
    Column("tpot_s", "TPOT ms", scale=1e3, digits=1),
    Column("peak_rss_mib", "peak MiB", digits=0),
)


@dataclass
class Report:
    """All output of one benchmark."""

    benchmark: str
    title: str
    columns: Sequence[Column]
    figures: list[dict[str, Any]] = field(default_factory=list)
    rows: Sequence[Mapping[str, Any]] = ()  #: rows of the table; by default the figures
    notes: list[str] = field(default_factory=list)  #: sentences under the table
    settings: dict[str, Any] = field(default_factory=dict)  #: options of the run
    more: dict[str, Any] = field(default_factory=dict)  #: further JSON fields

    def as_json(self) -> dict[str, Any]:
        return {
            "schema": SCHEMA,
            "benchmark": self.benchmark,
            "title": self.title,
            "machine": describe_machine(),
            "settings": self.settings,
            "notes": self.notes,
            "figures": self.figures,
            **self.more,
        }

    def show(self, console: Any = None) -> None:
        """Print the table and its notes, by default to stdout. A table that is too wide is turned; no figure is cut."""
        from rich.console import Console

        console = console or Console()
        tables = (self._table(), self._turned_table())
        unlimited = console.options.update(max_width=1000)
        widths = [console.measure(table, options=unlimited).maximum for table in tables]
        narrowest = 0 if widths[0] <= max(console.width, _WIDE) or widths[0] <= widths[1] else 1
        console.width = max(console.width, widths[narrowest])
        console.print(self.title, style="bold", highlight=False, markup=False, soft_wrap=True)
        console.print(tables[narrowest], crop=False)
        for note in self.notes:
            console.print(note, highlight=False, markup=False, soft_wrap=True)

    def _cells(self) -> list[tuple[Column, list[str]]]:
        """The columns with a value, and their cells."""
        rows = self.rows or self.figures
        cells = [(column, [column.cell(figure) for figure in rows]) for column in self.columns]
        return [(column, own) for column, own in cells if set(own) - {"", "–"} or not rows]

    def _table(self) -> Table:
        from rich import box
        from rich.table import Table

        table, rows = Table(box=box.SIMPLE_HEAD), self.rows or self.figures
        cells = self._cells()
        for column, _ in cells:
            is_text = any(isinstance(figure.get(column.key), str) for figure in rows)
            table.add_column(column.heading, justify="left" if is_text else "right", no_wrap=True)
        for row in zip(*(own for _, own in cells), strict=True):
            table.add_row(*row)
        return table

    def _turned_table(self) -> Table:
        from rich import box
        from rich.table import Table

        table = Table(box=box.SIMPLE_HEAD, show_header=False)
        for column, own in self._cells():
            table.add_row(column.heading, *(cell.replace(", ", "\n") for cell in own))
        return table

    def publish(
        self, json_path: Path | None, plot_path: Path | None = None, draw: Callable[[Any], None] = lambda figure: None
    ) -> None:
        """Print the table, write the JSON file and the picture that `draw` draws. ValueError if a file fails."""
        self.show()
        try:
            if json_path is not None:
                write_json(self.as_json(), json_path)
        finally:
            if plot_path is not None:
                from quire.bench.plots import save_plot

                save_plot(plot_path, draw)


def describe_machine() -> dict[str, Any]:
    """Machine and versions, for absolute figures."""
    import quire

    machine: dict[str, Any] = {
        "cpu": cpu_name(),
        "cores": num_usable_cores(),
        "memory_gib": round(memory_gib(), 1),
        "gpu": None,
        "python": platform.python_version(),
        "torch": importlib.metadata.version("torch") if find_spec("torch") else None,
        "quire": quire.__version__,
    }
    torch = sys.modules.get("torch")  # without a model there is no GPU to report
    if torch is not None and torch.cuda.is_available():
        machine["gpu"] = torch.cuda.get_device_name(0)
    return machine
