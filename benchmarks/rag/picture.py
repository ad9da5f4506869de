"""Picture of the RAG benchmark: latencies of each way, and changes by KV on disk."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from benchmarks.rag.figures import COLD, WARM
from quire.bench.plots import COLOURS, PlotRow, draw_rows
from quire.bench.report import Report


def draw(figure: Any, report: Report) -> None:
    """A row of panels per load: latency, and the changes of latency and throughput."""
    loads = list(dict.fromkeys(_kind_of_load(each, report.figures) for each in report.figures))
    figure.set_size_inches(11, 1.2 + 0.28 * len(report.figures) + 0.5 * len(loads))
    panels = figure.subplots(len(loads), 3, squeeze=False)
    figure.suptitle(f"How much sooner do answers come with documents' KV on disk?\n{report.title}", x=0.01, ha="left")
    for line, load in zip(panels, loads, strict=True):
        mine = [each for each in report.figures if _kind_of_load(each, report.figures) == load]
        rows = [_row(each, "latency_s", f"{each['policy']}: {each['kv']}") for each in mine]
        draw_rows(line[0], rows, "mean latency, s: less is better")
        line[0].set_title(f"queries {load}")
        line[0].set_xlim(left=0)
        changed = [each for each in mine if each["kv"] in (COLD, WARM) and "latency_change" in each]
        _draw_changes(line[1], changed, "latency", "latency over off, %: less is better")
        _draw_changes(line[2], changed, "queries", "queries a second over off, %: more")
        line[2].tick_params(labelleft=False)


def _draw_changes(axes: Any, figures: Sequence[dict[str, Any]], name: str, xlabel: str) -> None:
    rows = [PlotRow(f"{each['policy']}: {each['kv']}", 100 * each[f"{name}_change"]) for each in figures]
    draw_rows(axes, rows, xlabel, is_change=True)
    for place, each in zip(range(len(figures), 0, -1), figures, strict=True):
        published = each.get(f"paper_{name}_change")
        if published is not None:
            axes.plot(100 * published, place, "D", ms=6, color=COLOURS[1], mfc="none", label="the paper's")


def _kind_of_load(figure: dict[str, Any], figures: Sequence[dict[str, Any]]) -> str:
    first = next(each["load"] for each in figures if each["policy"] == figure["policy"])
    return str(first) if figure["load"] == first else "at a rate that is held"


def _row(figure: dict[str, Any], key: str, name: str) -> PlotRow:
    value = figure[key]
    return PlotRow(name, value["median"], value["min"], value["max"])
