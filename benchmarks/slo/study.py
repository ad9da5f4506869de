"""Routing by forecasts against fixed policies, on a virtual clock.

Two models on a machine each serve one stream of requests at a rising rate. Every policy gets the same requests. Reports
requests within their SLO, the models that served them, and the errors of the forecasts.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from statistics import fmean, median
from typing import Any

from benchmarks.slo.fleet import Route, Served, VirtualEngine, simulate_fleet
from benchmarks.slowed_costs import slowed
from quire.bench.bench_settings import parse_goodput, refuse_repeats
from quire.bench.progress import progress
from quire.bench.report import Column, Report
from quire.config import SchedulerConfig
from quire.core.decisions.cost_model import CostModel
from quire.forecast import Forecast
from quire.routing import SLO, Router, RoutingConfig
from quire.settings import Settings, names, numbers, setting
from quire.simulate.hardware import HardwareProfile, find_profile
from quire.simulate.simulation import Arrival

RANKS = {"large": 2, "small": 1}
_BLOCK_SIZE = 16
_NUM_TO_FILL = 300  #: requests that show how many a second a machine serves
#: Of prompts and answers: median, spread of the logarithm, least, most. Assumed: chat with short questions.
_PROMPTS = (300, 0.8, 16, 4096)
_ANSWERS = (100, 0.8, 4, 1024)

COLUMNS = (
    Column("policy", "policy"),
    Column("kept", "keep the SLO", scale=100, digits=1, unit=" %"),
    Column("rank", "mean rank", digits=3),
    Column("rank_in_time", "rank in time", digits=3),
    Column("ttft_p50_s", "TTFT p50 s"),
    Column("ttft_p90_s", "p90 s"),
    Column("tpot_p50_s", "TPOT p50 ms", scale=1e3, digits=1),
    Column("ttft_error_s", "forecast's TTFT off by ms", scale=1e3, digits=0),
    Column("ttft_error", "or", scale=100, digits=1, unit=" %"),
    Column("tpot_error", "TPOT by", scale=100, digits=1, unit=" %"),
)


@dataclass(frozen=True)
class SloSettings(Settings):
    """Options of the SLO routing benchmark."""

    policies: tuple[str, ...] = setting(
        "slo,large,small,round-robin,mix",
        "Routing policies: slo, large, small, round-robin, mix:SHARE (a random share to the large model; by default as "
        "many as slo sent).",
        read=names,
        metavar="POLICY[,POLICY...]",
    )
    slo: Mapping[str, float] = setting(
        "ttft:1000,tpot:50", "SLO of the requests, in ms.", read=parse_goodput, metavar="LIMITS"
    )
    profile: str = setting(
        "cps-paper", "The small model's machine, or a file of quire calibrate.", metavar="cps-paper|FILE"
    )
    factor: float = setting(4.0, "Cost of the large model's steps, relative to the small one's.", above=0)
    loads: tuple[float, ...] = setting(
        "0.2,0.4,0.6,0.8,1,1.2,1.4,1.6,1.8,2",
        "Request rates one after the other, as shares of what both can serve.",
        read=numbers,
        above=0,
    )
    num_requests: int = setting(300, "Requests at each rate.", at_least=1)
    seed: int = setting(0, "Seed of arrivals and lengths.", name="load_seed")

    def __post_init__(self) -> None:
        super().__post_init__()
        refuse_repeats(self, "policies")
        if "mix" in self.policies and "slo" not in self.policies[: self.policies.index("mix")]:
            raise ValueError("mix sends as many requests to the large model as slo did; name slo first, or mix:SHARE")
        if "e2el" in self.slo:
            raise ValueError("an SLO for routing is of ttft and tpot; the length of an answer is not known beforehand")


def run(settings: SloSettings, json_path: Path | None = None, plot_path: Path | None = None) -> None:
    """Simulate every policy on the same requests, and publish. Raises ValueError for unknown policies or profiles."""
    small = find_profile(settings.profile)
    machines = {"large": slowed(small, settings.factor), "small": small}
    config = _limits(small)
    slo = SLO(settings.slo.get("ttft"), settings.slo.get("tpot"))
    served: dict[str, list[Served]] = {}
    routes = [(policy, make_route(policy, slo, served)) for policy in settings.policies]
    of_small = measure_capacity(small, config)
    rates = {"large": of_small / settings.factor, "small": of_small}
    arrivals = draw_rising(settings.loads, sum(rates.values()), settings.num_requests, settings.seed)
    with progress(len(routes)) as show:
        for number, (policy, route) in enumerate(routes, start=1):
            engines = {name: VirtualEngine(machine, config, CostModel()) for name, machine in machines.items()}
            served[policy] = simulate_fleet(arrivals, engines, route)
            show(number, policy)
    report = Report("slo", _title(settings, len(arrivals)), COLUMNS)
    report.settings = settings.as_json()
    report.figures = [_figures(policy, served[policy], slo, settings) for policy in settings.policies]
    report.notes = [
        f"One machine serves {rates['large']:.1f} requests a second with the large model, another one "
        f"{rates['small']:.1f} with the small one: a load of 1 is both. {settings.num_requests} requests at each load.",
        f"Prompts of {_PROMPTS[0]} tokens and answers of {_ANSWERS[0]} in the median, both spread log-normally "
        f"(assumed). Steps: {small.name}, the large model's {settings.factor:g} times as long.",
        "Rank: large 2, small 1. In time: that of the requests that keep the SLO; the others count 0. The forecast's "
        "errors are medians over requests; its engines' cost models learn from their steps.",
    ]
    report.more = {"capacity": rates}
    report.publish(json_path, plot_path, lambda figure: draw(figure, report.figures))
    _by_load(report.figures, settings).show()


def _limits(profile: HardwareProfile) -> SchedulerConfig:
    return SchedulerConfig(
        num_blocks=8192, block_size=_BLOCK_SIZE, max_model_len=8192, block_bytes=profile.bytes_per_token * _BLOCK_SIZE
    )


def draw_lengths(rng: random.Random) -> tuple[int, int]:
    """Tokens of a prompt and of its answer."""
    drawn = [
        min(most, max(least, round(rng.lognormvariate(math.log(middle), spread))))
        for middle, spread, least, most in (_PROMPTS, _ANSWERS)
    ]
    return drawn[0], drawn[1]


def measure_capacity(machine: HardwareProfile, config: SchedulerConfig) -> float:
    """Requests per second of a saturated engine, from the first tokens of the second half of a long queue."""
    rng = random.Random("capacity")
    queue = [Arrival(0.0, *draw_lengths(rng)) for _ in range(_NUM_TO_FILL)]
    served = simulate_fleet(queue, {"alone": VirtualEngine(machine, config)}, lambda arrival, forecasts: "alone")
    first = sorted(each.ttft_s for each in served)
    return (len(first) - len(first) // 2) / (first[-1] - first[len(first) // 2 - 1])


def draw_rising(loads: Sequence[float], capacity: float, num_requests: int, seed: int) -> list[Arrival]:
    """Draw Poisson arrivals at one rate after the other.

    Args:
        loads: rates as shares of `capacity`.
        capacity: requests per second.
        num_requests: requests at each rate.
        seed: seed of gaps and lengths.
    """
    rng = random.Random(seed)
    now, arrivals = 0.0, []
    for load in loads:
        for _ in range(num_requests):
            now += rng.expovariate(load * capacity)
            arrivals.append(Arrival(now, *draw_lengths(rng)))
    return arrivals


def make_route(policy: str, slo: SLO, served: Mapping[str, Sequence[Served]]) -> Route:
    """The routing function of a policy.

    Args:
        policy: its name.
        slo: limits of the requests.
        served: results of earlier policies by name; `mix` needs `slo` among them.

    Raises:
        ValueError: the policy is unknown.
    """
    name, _, share = policy.partition(":")
    if policy in RANKS:
        return lambda arrival, forecasts: policy
    if policy == "round-robin":
        turns = cycle(RANKS)
        return lambda arrival, forecasts: next(turns)
    if policy == "slo":
        router = Router(RoutingConfig("slo", {each: each for each in RANKS}, slo=slo))
        return lambda arrival, forecasts: _ask(router, arrival, forecasts)
    if name == "mix":
        try:
            number = float(share) if share else None
        except ValueError:
            number = -1.0
        if number is None or 0 <= number <= 1:
            return _by_lot(lambda: number if number is not None else _share_of_large(served["slo"]))
    raise ValueError(f"policies={policy!r} is none of slo, large, small, round-robin, mix, mix:SHARE")


def _ask(router: Router, arrival: Arrival, forecasts: Mapping[str, Forecast]) -> str:
    return router.route("", num_tokens=arrival.num_prompt_tokens, forecasts=forecasts).model


def _by_lot(share: Callable[[], float]) -> Route:
    def draws() -> Iterator[str]:
        rng, of_large = random.Random("lot"), share()
        while True:
            yield "large" if rng.random() < of_large else "small"

    lots = draws()
    return lambda arrival, forecasts: next(lots)


def _share_of_large(served: Sequence[Served]) -> float:
    return fmean(each.engine == "large" for each in served)


def _figures(policy: str, served: Sequence[Served], slo: SLO, settings: SloSettings) -> dict[str, Any]:
    size = settings.num_requests
    stages = [served[at * size : (at + 1) * size] for at in range(len(settings.loads))]
    by_load = [{"load": load, **summarise(stage, slo)} for load, stage in zip(settings.loads, stages, strict=True)]
    return {"policy": policy, **summarise(served, slo), "by_load": by_load}


def summarise(served: Sequence[Served], slo: SLO) -> dict[str, float]:
    """Figures of served requests and of their forecasts."""
    ttft_s = sorted(each.ttft_s for each in served)
    gone_on = [each for each in served if each.tpot_s]
    return {
        "kept": fmean(keeps(each, slo) for each in served),
        "rank": fmean(RANKS[each.engine] for each in served),
        "rank_in_time": fmean(RANKS[each.engine] * keeps(each, slo) for each in served),
        "ttft_p50_s": median(ttft_s),
        "ttft_p90_s": ttft_s[len(ttft_s) * 9 // 10],
        "tpot_p50_s": median(each.tpot_s for each in gone_on),
        "ttft_error_s": median(abs(each.predicted.ttft_s - each.ttft_s) for each in served),
        "ttft_error": median(abs(each.predicted.ttft_s / each.ttft_s - 1) for each in served),
        "ttft_bias": median(each.predicted.ttft_s / each.ttft_s - 1 for each in served),
        "tpot_error": median(abs(each.predicted.tpot_s / each.tpot_s - 1) for each in gone_on),
    }


def keeps(served: Served, slo: SLO) -> bool:
    return slo.is_kept(served.ttft_s, served.tpot_s)


def _title(settings: SloSettings, num_requests: int) -> str:
    limits = ", ".join(f"{name.upper()} {limit * 1e3:g} ms" for name, limit in settings.slo.items())
    return f"{num_requests:,} requests, loads of {settings.loads[0]:g} to {settings.loads[-1]:g}, SLO: {limits}"


def _by_load(figures: Sequence[Mapping[str, Any]], settings: SloSettings) -> Report:
    columns = [Column("policy", "policy"), *(Column(f"at {n}", f"{load:g}") for n, load in enumerate(settings.loads))]

    def row(name: str, figure: Mapping[str, Any], cell: str) -> dict[str, str]:
        cells = {f"at {number}": cell.format(**each) for number, each in enumerate(figure["by_load"])}
        return {"policy": name, **cells}

    rows = [row(figure["policy"], figure, "{kept:.0%} {rank:.2f}") for figure in figures]
    rows += [row("slo: TTFT off by", each, "{ttft_error:.0%}") for each in figures if each["policy"] == "slo"]
    return Report("slo", "By load: the share that keeps the SLO, and the mean rank", columns, rows=rows)


def draw(figure: Any, figures: Sequence[Mapping[str, Any]]) -> None:
    """Both shares over the load, a line per policy."""
    figure.suptitle("Requests that keep their SLO, and the models that answer: higher is better")
    panels = (("kept", "share that keeps the SLO"), ("rank", "mean rank (large 2, small 1)"))
    for axes, (name, label) in zip(figure.subplots(1, len(panels)), panels, strict=True):
        for each in figures:
            loads = [stage["load"] for stage in each["by_load"]]
            axes.plot(loads, [stage[name] for stage in each["by_load"]], marker=".", label=each["policy"])
        axes.set_xlabel("load, of what both can serve")
        axes.set_ylabel(label)
