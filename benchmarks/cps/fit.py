"""Which load and machine give the CPS paper's own TTFT and TPOT on the discipline of vLLM 0.2.4?

For each pool, the rate of arrivals is fitted to the mean TTFT of the paper's policy, and the assumed decode steps to
its mean TPOT. Its P99 TPOT, the third published figure, says which pool fits.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from statistics import fmean

from benchmarks.cps.runs import VLLM, Run, play
from benchmarks.parallel_runs import Note, run_all
from benchmarks.script import start
from quire.bench.progress import progress
from quire.bench.report import Column, Report
from quire.cli.options import Json, options
from quire.settings import Settings, integers, setting
from quire.simulate.hardware import cps_paper
from quire.simulate.simulate_settings import CHAT, SHORT_LONG
from quire.simulate.study import PAPERS_FIGURES

POLICY = "threshold:1024"
_RATES = (0.1, 20.0)  #: requests per second
_FIRST_SCALE = 6.0  #: of the decode steps


@dataclass(frozen=True)
class FitSettings(Settings):
    """Options of the fit."""

    pools: tuple[int, ...] = setting(
        "512,1024,2048", "KV blocks to try.", read=integers, metavar="BLOCKS[,BLOCKS...]", at_least=130
    )
    lengths: str = setting(CHAT, "Lengths.", choices=(SHORT_LONG, CHAT), metavar=f"{SHORT_LONG}|{CHAT}")
    seeds: int = setting(10, "Draws per point.", at_least=1)
    processes: int = setting(2, "Processes.", at_least=1)


@dataclass(frozen=True)
class Point:
    """One pool with fitted rate and decode steps, and its figures in seconds: means over the seeds."""

    num_blocks: int
    decode_scale: float
    rate: float | None
    ttft_mean_s: float
    tpot_mean_s: float
    tpot_p99_s: float
    preemptions: float

    @property
    def p99_error(self) -> float:
        """Relative distance from the paper's P99 TPOT."""
        return self.tpot_p99_s / PAPERS_FIGURES["tpot_p99_s"] - 1


@dataclass(frozen=True)
class Loads:
    """Draws of the mix for one pool."""

    num_blocks: int
    lengths: str
    num_seeds: int


def measure(loads: Loads, decode_scale: float, rate: float | None) -> Point:
    """Simulate the paper's policy on each load."""
    machine, num_blocks = cps_paper(decode_scale), loads.num_blocks
    runs = [
        play(Run(machine, VLLM, POLICY, num_blocks, rate, seed, loads.lengths), lambda count: None)
        for seed in range(loads.num_seeds)
    ]
    ttft, tpot = ([each for run in runs if (each := getattr(run, name))] for name in ("ttft_s", "tpot_s"))
    means = (fmean(each.mean for each in ttft), fmean(each.mean for each in tpot), fmean(each.p99 for each in tpot))
    return Point(num_blocks, decode_scale, rate, *means, fmean(run.num_preemptions for run in runs))


def fit_rate(loads: Loads, decode_scale: float, rates: tuple[float, float], num_halvings: int) -> Point:
    """The point between two rates whose TTFT is nearest to the paper's (by bisection). With other decode steps than the
    assumed ones, TTFT counts in TPOTs: a slower machine with slower arrivals looks much the same."""
    low, high = rates
    points = list[Point]()

    def excess(point: Point) -> float:
        unit = 1.0 if decode_scale == 1.0 else point.tpot_mean_s / PAPERS_FIGURES["tpot_mean_s"]
        return math.log(point.ttft_mean_s / PAPERS_FIGURES["ttft_mean_s"] / unit)

    for _ in range(num_halvings):
        rate = math.sqrt(low * high)
        points.append(measure(loads, decode_scale, rate))
        low, high = (low, rate) if excess(points[-1]) > 0 else (rate, high)
    return min(points, key=lambda point: abs(excess(point)))


def fit(loads: Loads) -> Point:
    """The point with the paper's mean TTFT and TPOT: a coarse search, then a fine one around it."""
    point = fit_rate(loads, _FIRST_SCALE, _RATES, 8)
    for num_halvings in (4, 4):
        assert point.rate is not None
        slower = PAPERS_FIGURES["tpot_mean_s"] / point.tpot_mean_s
        scale, rate = round(point.decode_scale * slower, 2), point.rate / slower
        point = fit_rate(loads, scale, (rate / 1.2, rate * 1.2), num_halvings)
    return point


def _solve(task: tuple[str, Loads], note: Note) -> Point:
    kind, loads = task
    if kind == "fitted":
        point = fit(loads)
    elif kind == "assumed":
        point = fit_rate(loads, 1.0, _RATES, 8)
    else:
        point = measure(loads, 1.0, None)
    note(1)
    return point


COLUMNS = (
    Column("kind", "decode steps"),
    Column("num_blocks", "blocks", digits=0),
    Column("decode_scale", "decode ×"),
    Column("rate", "requests/s"),
    Column("ttft_mean_s", "mean TTFT ms", scale=1e3, digits=0),
    Column("tpot_mean_s", "mean TPOT ms", scale=1e3),
    Column("tpot_p99_s", "P99 TPOT ms", scale=1e3),
    Column("preemptions", "preempted", digits=0),
)


@options()
def main(settings: FitSettings, json: Json = None) -> None:
    """Fit rate, pool and decode steps to the CPS paper's own TTFT and TPOT."""
    kinds = ("fitted", "assumed", "all at once")
    loads = [Loads(pool, settings.lengths, settings.seeds) for pool in settings.pools]
    tasks = [(kind, each) for kind in kinds for each in loads]
    with progress(len(tasks)) as show:
        points = run_all(_solve, tasks, settings.processes, lambda count: show(count, ""))
    report = Report("cps-fit", f"{POLICY} on {VLLM}, lengths {settings.lengths}, {settings.seeds} draws", COLUMNS)
    report.settings = settings.as_json()
    report.figures = [{"kind": kind, **asdict(point)} for (kind, _), point in zip(tasks, points, strict=True)]
    report.rows = [*report.figures, {"kind": "(the paper)", "num_blocks": 512, **PAPERS_FIGURES}]
    best = min(points[: len(settings.pools)], key=lambda point: abs(point.p99_error))
    report.notes = [
        f"Nearest to the paper's P99 TPOT with its mean TTFT and TPOT: --num-blocks {best.num_blocks} --rate "
        f"{best.rate:.4g} --decode-scale {best.decode_scale:g}.",
    ]
    report.publish(json)


if __name__ == "__main__":
    start(main)
