"""Seconds of recovery on many simulated loads: `cost` over the best static policy in hindsight.

A load draws lengths, arrivals, limits, pool, and the speed of a link that stops the engine or runs beside it. Steps are
those of the CPS paper. `cost` knows the machine, has learnt it, or has learnt a link that is faster or slower.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.script import start
from quire.bench.progress import progress
from quire.bench.report import Column, Report
from quire.bench.workload import read_trace
from quire.cli.options import Json, options
from quire.config import SchedulerConfig
from quire.core.decisions.cost_model import CostModel
from quire.core.decisions.costs import EMPTY_STEP, Costs, StepShape
from quire.settings import Settings, integers, numbers, setting
from quire.simulate.hardware import HardwareProfile, cps_paper
from quire.simulate.loads import draw_short_long, speed_up
from quire.simulate.paper_policies import make_compared_policy
from quire.simulate.simulation import Arrival, SimulationFigures, simulate

STATIC = (
    "recompute",
    "swap",
    "threshold:512",
    "threshold:1024",
    "threshold:512:swap-above",
    "threshold:1024:swap-above",
)
_BLOCK = 16
_SWAP_SLOTS = 1 << 14
_KNOWN = "known"


@dataclass(frozen=True)
class LoadsSettings(Settings):
    """Options of the study."""

    seeds: int = setting(40, "Random loads, half of them beside each kind of link.", at_least=1)
    mixes: int = setting(4, "Draws of the paper's mix per pool.", at_least=0)
    num_blocks: tuple[int, ...] = setting("384,512,768", "Pools of the paper's mix and of the trace.", read=integers)
    wrong: tuple[float, ...] = setting("8,0.125", "Factors by which a learnt link is too slow.", read=numbers)
    trace: Path | None = setting(None, "A trace CSV (Azure's format) to replay as well.")
    num_requests: int = setting(2000, "Requests of the trace.", at_least=1)
    speed_up: float = setting(1.0, "Factor for the tempo of the trace.", above=0)
    first_seed: int = setting(0, "First seed of the random loads.", at_least=0)


@dataclass(frozen=True)
class Load:
    """One load on one machine."""

    kind: str
    arrivals: list[Arrival]
    hardware: HardwareProfile
    config: SchedulerConfig


class ScaledLink:
    """Costs whose transfers take `factor` times as long."""

    is_link_usable = True

    def __init__(self, costs: Costs, factor: float) -> None:
        self._costs, self._factor = costs, factor
        self.step, self.recompute = costs.step, costs.recompute

    def save(self, num_bytes: int, tier: str = "host") -> float:
        return self._factor * self._costs.save(num_bytes, tier)

    def load(self, num_bytes: int, tier: str = "host") -> float:
        return self._factor * self._costs.load(num_bytes, tier)


def draw_load(seed: int) -> Load:
    """Draw a load and its machine: 150 to 400 requests, link times of 1/8 to 8 times the paper's."""
    draw = random.Random(f"recovery, {seed}")
    num_blocks = draw.choice((192, 256, 384, 512, 768))
    longest = min(draw.choice((512, 1024, 2048, 3072)), num_blocks * _BLOCK // 2)
    rate, is_burst, is_even = draw.uniform(5, 60), draw.random() < 0.4, draw.random() < 0.5
    arrivals, now_s = [], 0.0
    for _ in range(draw.randint(150, 400)):
        total = draw.randint(64, longest) if is_even else int(min(longest, max(64, draw.lognormvariate(6.2, 0.8))))
        num_prompt = min(total - 1, max(1, round(total * draw.uniform(0.1, 0.9))))
        now_s += 0.0 if is_burst else draw.expovariate(rate)
        arrivals.append(Arrival(now_s, num_prompt, total - num_prompt))
    paper = cps_paper()
    is_synchronous = seed % 2 == 0
    hardware = replace(
        paper, costs=ScaledLink(paper.costs, 2 ** draw.uniform(-3, 3)), swap_is_synchronous=is_synchronous
    )
    config = make_config(
        hardware,
        num_blocks,
        max_num_seqs=draw.choice((32, 64, 256)),
        max_num_batched_tokens=draw.choice((512, 2048, 8192)),
        enable_prefix_caching=draw.random() < 0.5,
    )
    return Load(f"random, {'synchronous' if is_synchronous else 'asynchronous'} link", arrivals, hardware, config)


def make_config(hardware: HardwareProfile, num_blocks: int, **limits: Any) -> SchedulerConfig:
    known = {"max_num_seqs": 256, "max_num_batched_tokens": 8192, "enable_prefix_caching": False}
    return SchedulerConfig(
        num_blocks=num_blocks,
        block_size=_BLOCK,
        max_model_len=num_blocks * _BLOCK,
        num_swap_slots=_SWAP_SLOTS,
        block_bytes=_BLOCK * hardware.bytes_per_token,
        **{**known, **limits},
    )


def learnt(costs: Costs, block_bytes: int, link_factor: float = 1.0) -> CostModel:
    """A model trained on a machine whose link takes `link_factor` times as long."""
    model = CostModel()
    for count in (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096) * 4:
        for beside in (EMPTY_STEP, StepShape(16, 16, 0.0, 8000)):
            model.observe_step(shape := beside.plus_chunk(0, count), costs.step(shape))
        model.observe_step(shape := StepShape(min(count, 256), min(count, 256), 0.0, 300 * count), costs.step(shape))
    for count in (1, 2, 4, 8, 16, 32, 64, 128, 256) * 4:
        num_bytes = count * block_bytes
        model.observe_transfer("save", num_bytes, link_factor * costs.save(num_bytes))
        model.observe_transfer("load", num_bytes, link_factor * costs.load(num_bytes))
    return CostModel.from_dict(model.to_dict())


def make_loads(settings: LoadsSettings) -> Iterator[Load]:
    """All loads of the study."""
    for num_blocks in settings.num_blocks:
        for seed in range(settings.mixes):
            paper = cps_paper()
            yield Load(
                f"the paper's mix, {num_blocks} blocks",
                draw_short_long(200, seed),
                paper,
                make_config(paper, num_blocks),
            )
    if settings.trace is not None:
        found = read_trace(settings.trace).first(settings.num_requests)
        trace = [Arrival(*each) for each in zip(found.arrival_s, found.prompt, found.output, strict=True)]
        for num_blocks in settings.num_blocks:
            for is_synchronous in (True, False):
                paper = replace(cps_paper(), swap_is_synchronous=is_synchronous)
                arrivals, config = speed_up(trace, settings.speed_up), make_config(paper, num_blocks)
                yield Load(f"{settings.trace.stem} × {settings.speed_up:g}", arrivals, paper, config)
    for seed in range(settings.first_seed, settings.first_seed + settings.seeds):
        yield draw_load(seed)


def compare(load: Load, settings: LoadsSettings) -> Iterator[dict[str, Any]]:
    """Figures of `cost` with each profile, over the best static policy's; none without a preemption."""

    def play(policy: str, learner: CostModel | None = None) -> SimulationFigures:
        return simulate(load.arrivals, load.hardware, load.config, make_compared_policy(policy), learner=learner)

    static = {policy: play(policy) for policy in STATIC}
    best = min(STATIC, key=lambda policy: static[policy].recovery_s)
    least = static[best]
    if not least.recovery_s:
        return
    costs, block_bytes = load.hardware.costs, load.config.block_bytes
    profiles: dict[str, CostModel | None] = {_KNOWN: None, "learnt": learnt(costs, block_bytes)}
    if load.kind.startswith("random"):
        profiles |= {f"link × {factor:g}": learnt(costs, block_bytes, factor) for factor in settings.wrong}
    for profile, learner in profiles.items():
        found = play("cost", learner)
        assert found.ttft_s is not None
        assert least.ttft_s is not None
        yield {
            "load": load.kind,
            "profile": profile,
            "best": best,
            "preemptions": least.num_preemptions,
            "recovery": found.recovery_s / least.recovery_s,
            "ttft": found.ttft_s.mean / least.ttft_s.mean,
            "modes": found.preemptions_by_mode,
        }


COLUMNS = (
    Column("load", "loads"),
    Column("profile", "profile"),
    Column("count", "runs", digits=0),
    Column("preemptions", "preempted, median", digits=0),
    Column("recovery", "recovery s / best static, median", digits=3),
    Column("p90", "p90", digits=3),
    Column("worst", "worst", digits=3),
    Column("ttft", "mean TTFT / its, median", digits=3),
    Column("ttft_worst", "worst", digits=3),
)


def summarise(figures: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """One row per kind of load and profile."""
    rows = []
    for load, profile in dict.fromkeys((each["load"], each["profile"]) for each in figures):
        members = [each for each in figures if (each["load"], each["profile"]) == (load, profile)]
        recovery, ttft = (sorted(each[name] for each in members) for name in ("recovery", "ttft"))
        rows.append(
            {
                "load": load,
                "profile": profile,
                "count": len(members),
                "preemptions": median(each["preemptions"] for each in members),
                "recovery": median(recovery),
                "p90": recovery[int(0.9 * len(recovery))],
                "worst": recovery[-1],
                "ttft": median(ttft),
                "ttft_worst": ttft[-1],
            }
        )
    return rows


@options()
def main(settings: LoadsSettings, json: Json = None) -> None:
    """Simulate random loads, the CPS paper's mix and a trace under `cost` and all static policies."""
    loads = list(make_loads(settings))
    figures: list[dict[str, Any]] = []
    with progress(len(loads)) as show:
        for number, load in enumerate(loads, start=1):
            figures += compare(load, settings)
            show(number, "")
    report = Report("recovery", "Recovery: cost over the best static policy in hindsight", COLUMNS, summarise(figures))
    report.settings = settings.as_json()
    report.rows = report.figures
    report.figures = figures
    report.notes = [
        f"Static policies: {', '.join(STATIC)}; the best one has the fewest seconds of recovery on the same requests.",
        "Profile: known is the machine itself; learnt begins with measurements of it; link × N with transfers N times "
        "as long.",
    ]
    report.publish(json, None)


if __name__ == "__main__":
    start(main)
