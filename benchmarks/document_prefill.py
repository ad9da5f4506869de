"""Documents computed while requests wait, simulated: the same arrivals with and without, on several machines and loads.

Every row is one load: questions about documents, drawn by Zipf's law, that are nowhere at first. Rates are multiples of
what the machine holds without. There is no disk: what waits can only be computed. The Multi-Model RAG-DCache paper
sends a question every 25 ms to engines that answer one in 5 s: as good as all at once.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from benchmarks.script import start
from quire.bench.progress import progress
from quire.bench.report import Column, Report, summarise
from quire.cli.options import Json, options
from quire.config import SchedulerConfig
from quire.core.decisions.costs import EMPTY_STEP, StepShape
from quire.core.decisions.fits import PiecewiseLinear
from quire.core.scheduler import Scheduler
from quire.settings import Settings, names, setting
from quire.simulate.hardware import HardwareProfile, find_profile
from quire.simulate.loads import ask_about_documents
from quire.simulate.paper_policies import make_compared_policy
from quire.simulate.simulation import Arrival, Simulation, SimulationFigures
from quire.simulate.virtual_runner import VirtualRunner

_QUESTION = 32  #: tokens
_MOST_BESIDE = 512  #: tokens of a step with streams, as by default


@dataclass(frozen=True)
class Load:
    """Questions to one engine. `rate` is a multiple of the machine's; 0 sends them all at once."""

    name: str
    rate: float
    document_tokens: int
    output_len: int  #: mean; each answer has half to one and a half of it
    seats: int
    num_blocks: int = 20_000
    documents: int = 1000


LOADS = (
    Load("Multi-Model RAG-DCache: all at once, 256 tokens", 0.0, 256, 32, 8, documents=140),
    Load("Poisson at 0.8", 0.8, 1024, 64, 8),
    Load("Poisson at 1", 1.0, 1024, 64, 8),
    Load("Poisson at 1.2", 1.2, 1024, 64, 8),
    Load("Poisson at 1, 20 documents", 1.0, 1024, 64, 8, documents=20),
    Load("Poisson at 1, 32 seats", 1.0, 1024, 64, 32),
    Load("Poisson at 1, answers of 512", 1.0, 1024, 512, 8),
    Load("Poisson at 1, answers of 2048", 1.0, 1024, 2048, 8),
    Load("Poisson at 1, answers of 512, 4 seats, 256 tokens", 1.0, 256, 512, 4),
    Load("Poisson at 1.2, blocks for 8 requests", 1.2, 1024, 64, 64, num_blocks=600),
)


@dataclass(frozen=True)
class DocumentPrefillSettings(Settings):
    """Options of the document prefill study."""

    profiles: tuple[str, ...] = setting(
        "roofline,cpu,cps-paper", "Machines: roofline, cpu, cps-paper, or files of quire calibrate.", read=names
    )
    num_requests: int = setting(200, "Requests of each load.", at_least=2)
    seeds: int = setting(5, "Arrivals to draw for each load.", at_least=1)


class StepCosts:
    """Steps by their number of tokens, seconds per token of context that decoding attends to, and per attended pair of
    a prompt. Nothing can be loaded."""

    is_link_usable = False

    def __init__(self, points: Sequence[tuple[int, float]], context_s: float, pair_s: float = 0.0) -> None:
        self._tokens_s, self._context_s, self._pair_s = PiecewiseLinear(points, before=0.0), context_s, pair_s

    def step(self, shape: StepShape) -> float:
        if shape.num_tokens <= 0:
            return 0.0
        pairs_s = self._context_s * shape.context_decode + self._pair_s * shape.attended
        return self._tokens_s(shape.num_tokens) + pairs_s + 1e-5 * shape.num_seqs

    def recompute(self, num_tokens: int, *, start: int = 0, chunk: int = 512, beside: StepShape | None = None) -> float:
        others, seconds = beside or EMPTY_STEP, 0.0
        for at in range(0, num_tokens, max(1, chunk)):
            with_chunk = others.plus_chunk(start + at, min(chunk, num_tokens - at))
            seconds += self.step(with_chunk) - self.step(others)
        return seconds

    def save(self, num_bytes: int, tier: str = "host") -> float:
        return float(num_bytes)

    def load(self, num_bytes: int, tier: str = "host") -> float:
        return float(num_bytes)


#: 7 billion weights in 16 bits at 3.35 TB/s and 600 TFLOP/s: up to 182 tokens, a step waits for weights.
_ROOFLINE = StepCosts([(1, 5.2e-3), (182, 5.2e-3), (2048, 48.1e-3)], 4e-8)
#: random:opt-125m in bfloat16, processor time of steps of one prompt, one thread of an EPYC with AVX-512.
_CPU = StepCosts(
    [(1, 10.0e-3), (4, 10.7e-3), (16, 12.3e-3), (20, 13.4e-3), (36, 19.4e-3), (64, 30.3e-3), (256, 108.7e-3)], 3e-6
)
MACHINES = {
    "roofline": HardwareProfile("roofline", "a GPU (assumed)", "7 billion weights", _ROOFLINE, 131_072),
    "cpu": HardwareProfile("cpu", "one thread (measured)", "random:opt-125m", _CPU, 36_864),
}


def find(name: str) -> HardwareProfile:
    """The machine of that name. Raises ValueError as `find_profile`."""
    return MACHINES.get(name) or find_profile(name)


def play(profile: HardwareProfile, load: Load, arrivals: Sequence[Arrival], *, is_ahead: bool) -> SimulationFigures:
    """Run one load. `prefix_ways` gets the tokens computed ahead."""
    config = SchedulerConfig(
        num_blocks=load.num_blocks,
        max_num_seqs=load.seats,
        max_num_batched_tokens=2048,
        max_tokens_beside_streams=_MOST_BESIDE,
        block_bytes=16 * profile.bytes_per_token,
    )
    scheduler = Scheduler(config, make_compared_policy("recompute"), profile.costs)
    scheduler.documents.is_enabled = is_ahead
    figures = Simulation(scheduler, VirtualRunner(profile, config.block_bytes)).run(arrivals)
    figures.prefix_ways = {"computed ahead": scheduler.counts.ahead_tokens}
    return figures


def draw(load: Load, num_requests: int, rate: float, seed: int) -> list[Arrival]:
    """Questions at `rate` a second (Poisson), or all at once."""
    chance, now, arrivals = random.Random(seed), 0.0, list[Arrival]()
    for _ in range(num_requests):
        arrivals.append(Arrival(now, _QUESTION, max(2, round(load.output_len * chance.uniform(0.5, 1.5)))))
        now += chance.expovariate(rate) if load.rate else 0.0
    return ask_about_documents(arrivals, load.documents, load.document_tokens, seed)


def compare(profile: HardwareProfile, load: Load, settings: DocumentPrefillSettings) -> dict[str, Any]:
    """One row: ratios, with over without, over the seeds."""
    num_requests = settings.num_requests
    at_once = [each._replace(time_s=0.0) for each in draw(load, num_requests, 1.0, 0)]
    capacity = num_requests / play(profile, load, at_once, is_ahead=False).makespan_s
    pairs = []
    for seed in range(settings.seeds):
        arrivals = draw(load, num_requests, capacity * load.rate or 1.0, seed)
        pairs.append([play(profile, load, arrivals, is_ahead=is_ahead) for is_ahead in (False, True)])
    num_tokens = num_requests * load.document_tokens
    return {
        "machine": profile.name,
        "load": load.name,
        "settings": asdict(load),
        "capacity": capacity,
        "ttft_s": summarise(without.ttft_s.mean for without, _ in pairs if without.ttft_s),
        **{
            f"{name}_ratio": summarise(_value(ahead, name) / _value(without, name) for without, ahead in pairs)
            for name in ("ttft_mean", "ttft_p99", "itl_mean", "itl_p99")
        },
        "makespan_ratio": summarise(ahead.makespan_s / without.makespan_s for without, ahead in pairs),
        "share": summarise(ahead.prefix_ways["computed ahead"] / num_tokens for _, ahead in pairs),
    }


def _value(figures: SimulationFigures, name: str) -> float:
    metric, _, statistic = name.partition("_")
    return float(getattr(getattr(figures, f"{metric}_s"), statistic))


COLUMNS = (
    Column("machine", "machine"),
    Column("load", "load"),
    Column("ttft_s", "mean TTFT ms", scale=1e3, digits=0),
    Column("ttft_mean_ratio", "with, over that"),
    Column("ttft_p99_ratio", "P99 TTFT"),
    Column("itl_mean_ratio", "mean ITL"),
    Column("itl_p99_ratio", "P99 ITL"),
    Column("makespan_ratio", "makespan"),
    Column("share", "computed ahead", scale=100, digits=0, unit=" %"),
)


@options()
def main(settings: DocumentPrefillSettings, json: Json = None) -> None:
    """Documents computed while requests wait: the same arrivals with and without, on a virtual clock."""
    report = Report("document-prefill", f"{settings.num_requests} questions about documents that are nowhere", COLUMNS)
    cases = [(find(name), load) for name in settings.profiles for load in LOADS]
    with progress(len(cases)) as show:
        for number, (profile, load) in enumerate(cases, start=1):
            report.figures.append(compare(replace(profile, has_disk=False), load, settings))
            show(number, load.name)
    report.settings = settings.as_json()
    report.notes.append(f"Medians over {settings.seeds} seeds, with their range. Below 1 is better.")
    report.publish(json)


if __name__ == "__main__":
    start(main)
