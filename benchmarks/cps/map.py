"""For which loads, links and crossings does choosing by cost beat both static policies?

Hypothetical machines whose two modes cost the same at one length: recomputing takes a fixed time and the CPS paper's
time per token, copying (both ways) a fixed time and a multiple of that time per token. On a slow link (above 1) swaps
are cheaper below the crossing, on a fast one above it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import product
from typing import Any

from benchmarks.cps.runs import VLLM, Run, play
from benchmarks.parallel_runs import run_all
from benchmarks.script import start
from quire.bench.progress import progress
from quire.bench.report import Column, Report
from quire.cli.options import Json, Plot, options
from quire.settings import Settings, integers, names, numbers, setting
from quire.simulate.hardware import HardwareProfile, cps_paper
from quire.simulate.simulate_settings import CHAT, SHORT_LONG
from quire.simulate.simulation import SimulationFigures
from quire.simulate.table_costs import DecodeCosts, TableCosts
from quire.simulate.token_times import Interval, interval

STATIC = ("recompute", "swap")
ENGINES = (VLLM, "quire")
STATISTICS = ("mean", "p90", "p99")
NUM_BLOCKS = 512  #: the paper's pool
_FIXED_S = 4.3e-3  #: smallest fixed time of recomputing, as in the paper's table
_TOKEN_S = (22.73e-3 - 8.30e-3) / (2048 - 512)  #: of recomputing, from the paper's table
_ENDS = (512, 8192)  #: tokens; costs are straight lines


@dataclass(frozen=True)
class Load:
    """Lengths and arrivals of the CPS paper's mix."""

    name: str
    lengths: str
    rate: float | None = None  #: requests per second; None: all at once


#: `chat-queue` has the paper's mean TTFT (`benchmarks.cps.fit`).
LOADS = {each.name: each for each in (Load("even", SHORT_LONG), Load("chat", CHAT), Load("chat-queue", CHAT, 3.66))}


@dataclass(frozen=True)
class Cell:
    """One place of the map."""

    engine: str
    load: Load
    link: float  #: seconds per copied token, both ways, relative to recomputing it
    crossing: int  #: tokens


@dataclass(frozen=True)
class MapSettings(Settings):
    """Options of the map."""

    engines: tuple[str, ...] = setting(",".join(ENGINES), "Disciplines.", read=names, metavar="ENGINE[,ENGINE...]")
    loads: tuple[str, ...] = setting(",".join(LOADS), "Loads.", read=names, metavar="LOAD[,LOAD...]")
    links: tuple[float, ...] = setting(
        "0.5,3", "Time per copied token, relative to a recomputed one; not 1.", read=numbers, above=0
    )
    crossings: tuple[int, ...] = setting("256,512,1024", "Lengths in tokens.", read=integers, at_least=16)
    seeds: int = setting(20, "Draws per load.", at_least=2)
    processes: int = setting(2, "Processes.", at_least=1)

    def __post_init__(self) -> None:
        super().__post_init__()
        if unknown := {*self.engines} - {*ENGINES} | {*self.loads} - {*LOADS}:
            raise ValueError(f"{', '.join(unknown)}: no such engine or load; there are {', '.join((*ENGINES, *LOADS))}")
        if 1.0 in self.links:
            raise ValueError("links=1: two parallel lines do not cross; leave it out")


def make_machine(cell: Cell) -> HardwareProfile:
    """A machine with this link and crossing. Old copies stop the steps, ours run beside them."""
    gap_s = cell.crossing * _TOKEN_S * (cell.link - 1)
    computing_s = max(_FIXED_S, gap_s)
    copying = [(n, (computing_s - gap_s + n * _TOKEN_S * cell.link) / 2) for n in _ENDS]
    paper = cps_paper()
    assert isinstance(paper.costs, TableCosts)
    decode: DecodeCosts = paper.costs.decode
    recompute = [(n, computing_s + n * _TOKEN_S) for n in _ENDS]
    return HardwareProfile(
        name=f"link × {cell.link:g}, crossing at {cell.crossing}",
        hardware="hypothetical",
        model=paper.model,
        costs=TableCosts(copying, copying, recompute, paper.bytes_per_token, decode),
        bytes_per_token=paper.bytes_per_token,
        swap_is_synchronous=cell.engine == VLLM,
        limits=paper.limits,
    )


def change(runs: Sequence[SimulationFigures], base: Sequence[SimulationFigures], statistic: str) -> Interval:
    """Change of a TPOT against `base` on the same loads: geometric mean of the ratios less 1, with 95 % bounds."""

    def log_of(run: SimulationFigures) -> float:
        assert run.tpot_s is not None
        return math.log(getattr(run.tpot_s, statistic))

    found = interval([log_of(run) - log_of(other) for run, other in zip(runs, base, strict=True)])
    assert found.low is not None
    assert found.high is not None
    return Interval(math.expm1(found.mean), math.expm1(found.low), math.expm1(found.high))


def figure_of(cell: Cell, runs: dict[str, list[SimulationFigures]]) -> dict[str, Any]:
    """Figures of one cell: `cost` against the better static policy, by each statistic of TPOT."""
    figure: dict[str, Any] = {
        "engine": cell.engine, "load": cell.load.name, "link": cell.link, "crossing": cell.crossing
    }  # fmt: skip
    for statistic in STATISTICS:
        changes = {policy: change(runs["cost"], runs[policy], statistic) for policy in STATIC}
        better = max(STATIC, key=lambda policy: changes[policy].mean)
        figure[statistic] = asdict(changes[better])
        figure[f"{statistic}_better"] = better
        figure[f"{statistic}_beats_both"] = all((each.high or 0.0) < 0 for each in changes.values())
        figure[f"{statistic}_changes"] = {policy: asdict(each) for policy, each in changes.items()}
    for policy, found in runs.items():
        figure[f"{policy}_recovery_share"] = sum(r.recovery_s for r in found) / sum(r.makespan_s for r in found)
        figure[f"{policy}_preemptions"] = sum(r.num_preemptions for r in found) / len(found)
    modes = [run.preemptions_by_mode for run in runs["cost"]]
    names = sorted({name for each in modes for name in each})
    figure["modes"] = {name: sum(each.get(name, 0) for each in modes) / len(modes) for name in names}
    return figure


COLUMNS = (
    Column("engine", "engine"),
    Column("load", "load"),
    Column("link", "link ×"),
    Column("crossing", "crossing", digits=0),
    Column("mean", "mean TPOT", scale=100, digits=1, unit=" %", is_change=True),
    Column("p90", "P90 TPOT", scale=100, digits=1, unit=" %", is_change=True),
    Column("p99", "P99 TPOT", scale=100, digits=1, unit=" %", is_change=True),
    Column("p99_better", "against"),
    Column("swap_recovery_share", "swap: recovery", scale=100, digits=1, unit=" %"),
    Column("recompute_recovery_share", "recompute", scale=100, digits=1, unit=" %"),
    Column("cost_recovery_share", "cost", scale=100, digits=1, unit=" %"),
)


@options()
def main(settings: MapSettings, json: Json = None, plot: Plot = None) -> None:
    """Map where choosing by cost beats both static policies, on the old discipline and on Quire's."""
    loads = [LOADS[name] for name in settings.loads]
    cells = [Cell(*each) for each in product(settings.engines, loads, settings.links, settings.crossings)]
    policies = (*STATIC, "cost")
    runs = [
        Run(make_machine(cell), cell.engine, policy, NUM_BLOCKS, cell.load.rate, seed, cell.load.lengths)
        for cell in cells
        for policy in policies
        for seed in range(settings.seeds)
    ]
    with progress(len(runs)) as show:
        found = iter(run_all(play, runs, settings.processes, lambda count: show(count, "")))
    report = Report("cps-map", f"cost against the better static policy, {settings.seeds} loads", COLUMNS)
    report.settings = settings.as_json()
    for cell in cells:
        by_policy = {policy: [next(found) for _ in range(settings.seeds)] for policy in policies}
        report.figures.append(figure_of(cell, by_policy))
    report.rows = report.figures
    report.publish(json, plot, lambda figure: draw(figure, report.figures, settings))


def draw(figure: Any, figures: Sequence[dict[str, Any]], settings: MapSettings) -> None:
    """A panel per engine and load, a square per link and crossing; bold where `cost` beats both."""
    figure.suptitle("P99 TPOT of cost against the better static policy, %: blue is better; bold: surely")
    panels = figure.subplots(len(settings.engines), len(settings.loads), sharex=True, sharey=True, squeeze=False)
    for (row, engine), (column, load) in product(enumerate(settings.engines), enumerate(settings.loads)):
        axes = panels[row][column]
        of_panel = [each for each in figures if (each["engine"], each["load"]) == (engine, load)]
        by_place = {(each["link"], each["crossing"]): each for each in of_panel}
        grid = [[100 * by_place[link, at]["p99"]["mean"] for at in settings.crossings] for link in settings.links]
        axes.imshow(grid, cmap="RdBu_r", vmin=-40, vmax=40, origin="lower", aspect="auto")
        for y, link in enumerate(settings.links):
            for x, crossing in enumerate(settings.crossings):
                weight = "bold" if by_place[link, crossing]["p99_beats_both"] else "normal"
                axes.text(x, y, f"{grid[y][x]:+.0f}", ha="center", va="center", fontweight=weight)
        axes.set_xticks(range(len(settings.crossings)), [str(each) for each in settings.crossings])
        axes.set_yticks(range(len(settings.links)), [f"{each:g}" for each in settings.links])
        axes.set_title(f"{engine}, {load}")
        if row == len(settings.engines) - 1:
            axes.set_xlabel("crossing, tokens")
        if column == 0:
            axes.set_ylabel("link ×")


if __name__ == "__main__":
    start(main)
