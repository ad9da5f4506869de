"""Gain from preparing the documents of waiting requests: the same arrivals with and without, in turns.

All documents start on disk, and lookahead loads them; with `--computed` they are nowhere, and are computed in steps
that decode. Requests arrive at the rate that the engine just holds without, so they queue; the disk is limited to a
multiple of the bandwidth at which loading a document takes as long as computing it.
"""

from __future__ import annotations

import math
import secrets
import statistics
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import typer

from benchmarks.document_kv import DocumentBench, DocumentKvSettings, opened_bench
from benchmarks.document_kv import experiment_config as document_config
from benchmarks.script import start
from quire.bench.plots import PlotRow, draw_rows
from quire.bench.report import Column, Report, summarise
from quire.bench.workload import poisson_arrivals
from quire.calibration.calibrate import quick_profile
from quire.cli.options import Json, Plot, options
from quire.config import EngineConfig, format_size
from quire.core.block_keys import PUBLIC, Domain
from quire.core.decisions.cost_model import CostModel
from quire.engine.request_state import RequestState
from quire.outputs import Stats
from quire.prompt import Prompt
from quire.sampling_params import SamplingParams
from quire.settings import Settings, setting

#: Targets, over those without.
_TARGETS = (("ttft_s", "Mean TTFT", 0.9), ("tpot_s", "Mean TPOT", 1.05), ("itl_p99_s", "P99 ITL", 1.05))
_NUM_WARM_UP = 2
_NUM_TO_LEARN = 3  #: loads that teach the cost model the disk's bandwidth


@dataclass(frozen=True)
class LookaheadSettings(Settings):
    """Options of the lookahead benchmark."""

    num_requests: int = setting(16, "Requests, each with its own document.", at_least=4)
    document_tokens: int = setting(256, "Tokens of each document.", at_least=16)
    question_tokens: int = setting(16, "Tokens after the document.", at_least=1)
    output_len: int = setting(16, "Tokens of each answer.", at_least=2)
    seats: int = setting(4, "Requests that run at once (max_num_seqs).", at_least=1)
    load: float = setting(1.0, "Request rate, as a multiple of what the engine holds without lookahead.", above=0)
    bandwidth: float = setting(3.0, "Limit of the disk's bandwidth, as a multiple of the crossing.", above=0)
    seed: int = setting(0, "Seed of the arrivals.", name="load_seed")
    runs: int = setting(3, "Pairs of runs, with and without.", at_least=1)
    computed: bool = setting(False, "Documents are nowhere: compute them ahead instead of loading them.")
    processor_time: bool = setting(False, "Count the process's time on the processor, where others use it too.")

    @property
    def of_documents(self) -> DocumentKvSettings:
        lengths = {name: getattr(self, name) for name in ("document_tokens", "question_tokens")}
        return DocumentKvSettings(output_len=(self.output_len,), **lengths)


class ProcessorClock:
    """Seconds that this process has used, and those in which it had nothing to do."""

    def __init__(self) -> None:
        self._idle_s = 0.0

    def __call__(self) -> float:
        return time.process_time() + self._idle_s

    def skip(self, seconds: float) -> None:
        self._idle_s += seconds


@dataclass(frozen=True)
class LookaheadRun:
    """Measurements of one run."""

    ttft_s: list[float]  #: from the due time
    tpot_s: list[float]
    itl_s: list[float]
    wall_s: float
    cached: Counter[str]  #: tokens by tier
    num_computed: int  #: tokens computed ahead
    tokens: list[list[int]]

    @property
    def itl_p99_s(self) -> list[float]:
        return [float(np.percentile(self.itl_s, 99))]


class LookaheadBench:
    """Sends questions about documents on disk to one engine."""

    def __init__(self, bench: DocumentBench, settings: LookaheadSettings) -> None:
        self.bench = bench
        self.settings = settings
        self.documents: list[list[int]] = []
        self.crossing = 0.0  #: bytes a second

    def prepare(self) -> None:
        """Save the documents to disk, and limit the disk."""
        bench = self.bench
        if self.settings.processor_time:
            bench.engine.clock = ProcessorClock()
            measured = CostModel()
            quick_profile(bench.engine, measured)
            bench.engine.cost_model.take_over(measured.to_dict())
        if self.settings.computed:
            self.documents = [bench.document() for _ in range(self.settings.num_requests)]
            for _ in range(_NUM_WARM_UP):
                bench.ask(bench.document(), 2)
            return
        for _ in range(_NUM_WARM_UP):
            bench.ask_disk(bench.store(), "load", 2)
        self.documents = [bench.store() for _ in range(self.settings.num_requests)]
        self.crossing = bench.crossing(self.documents[0])
        bench.link.bandwidth = self.settings.bandwidth * self.crossing
        for tokens in self.documents[:_NUM_TO_LEARN]:
            bench.ask_disk(tokens, "load")

    def play(self, due_s: Sequence[float], *, is_ahead: bool) -> LookaheadRun:
        """Send each request at its due time."""
        engine, settings = self.bench.engine, self.settings
        engine.reset_prefix_cache()
        scheduler = engine.scheduler
        if settings.computed:
            engine.delete_documents([(self._prompt(tokens), 0) for tokens in self.documents])
            engine.step()  # learns it
            scheduler.documents.is_enabled = is_ahead
        else:
            scheduler.lookahead.is_enabled = is_ahead
        num_before, itl_s = scheduler.counts.ahead_tokens, list[float]()

        def record(stats: Stats) -> None:
            itl_s.extend(stats.token_gaps)

        engine.on_stats.append(record)
        params = SamplingParams(temperature=0.0, max_tokens=settings.output_len, ignore_eos=True, detokenize=False)
        states: list[RequestState] = []
        started = engine.clock()
        while len(states) < len(due_s) or engine.has_unfinished():
            now = engine.clock() - started
            while len(states) < len(due_s) and due_s[len(states)] <= now:
                accepted = engine.input_processor.accept(self._prompt(self.documents[len(states)]), params)
                states.append(engine.add(accepted, arrival_time=started + due_s[len(states)]))
            if engine.has_unfinished():
                engine.step()
            elif len(states) < len(due_s):
                idle_s = max(0.0, due_s[len(states)] - now)
                if isinstance(engine.clock, ProcessorClock):
                    engine.clock.skip(idle_s)
                else:
                    time.sleep(idle_s)
        engine.on_stats.remove(record)
        num_computed = scheduler.counts.ahead_tokens - num_before
        return _measured(states, itl_s, engine.clock() - started, num_computed)

    def _prompt(self, tokens: Sequence[int]) -> Prompt:
        end = self.settings.document_tokens
        question = Domain(2, secrets.token_bytes(8))
        return Prompt(token_ids=tokens, domains=((0, PUBLIC), (end, question)), documents=(end,))


def _measured(states: Sequence[RequestState], itl_s: list[float], wall_s: float, num_computed: int) -> LookaheadRun:
    ttft_s, tpot_s, cached, tokens = [], [], Counter[str](), []
    for state in states:
        request, metrics = state.request, state.metrics
        if request.error is not None:
            raise RuntimeError(f"a request failed: {request.error}")
        assert metrics.first_token_time is not None
        assert metrics.last_token_time is not None
        ids = request.sequences[0].output_token_ids
        ttft_s.append(metrics.first_token_time - metrics.arrival_time)
        if len(ids) > 1:
            tpot_s.append((metrics.last_token_time - metrics.first_token_time) / (len(ids) - 1))
        cached.update(request.cached_tokens or {})
        tokens.append(ids)
    return LookaheadRun(ttft_s, tpot_s, itl_s, wall_s, cached, num_computed, tokens)


def experiment_config(config: EngineConfig, settings: LookaheadSettings) -> EngineConfig:
    """Few seats, and a pool with room to prepare as many requests beside them."""
    config = document_config(config, settings.of_documents)
    if config.kv_cache_memory is None:
        length = settings.document_tokens + settings.question_tokens + settings.output_len
        config = replace(config, num_kv_blocks=3 * settings.seats * math.ceil(length / config.block_size))
    return replace(config, max_num_seqs=settings.seats)


COLUMNS = (
    Column("lookahead", "lookahead"),
    Column("ttft_s", "mean TTFT ms", scale=1e3, digits=0),
    Column("ttft_max_s", "longest ms", scale=1e3, digits=0),
    Column("tpot_s", "mean TPOT ms", scale=1e3, digits=1),
    Column("itl_p99_s", "P99 ITL ms", scale=1e3, digits=1),
    Column("wall_s", "wall s"),
    Column("from_disk", "of documents from disk", scale=100, digits=0, unit=" %"),
    Column("computed_ahead", "computed ahead", scale=100, digits=0, unit=" %"),
)


def make_report(
    config: EngineConfig,
    settings: LookaheadSettings,
    bench: LookaheadBench,
    rate: float,
    pairs: Sequence[dict[bool, LookaheadRun]],
) -> Report:
    num_bytes, bandwidth = bench.bench.num_bytes, settings.bandwidth * bench.crossing
    report = Report(
        "lookahead",
        f"Lookahead: {config.model} in {config.dtype}, {settings.num_requests} documents of "
        f"{settings.document_tokens} tokens ({format_size(num_bytes)}), {settings.seats} seats",
        COLUMNS,
        [_figure(settings, is_ahead, [pair[is_ahead] for pair in pairs]) for is_ahead in (False, True)],
    )
    report.settings = {**settings.as_json(), "engine": asdict(config)}
    ratios = {name: summarise(_ratio(pair, name) for pair in pairs) for name, _, _ in _TARGETS}
    report.more = {
        "ratios": ratios,
        "ratios_of_pairs": [{name: _ratio(pair, name) for name in ratios} for pair in pairs],
        "request_rate": rate,
        "bandwidth": bandwidth,
        "crossing_bandwidth": bench.crossing,
    }
    disk = f"A disk of {format_size(bandwidth)} a second ({settings.bandwidth:g} times the crossing)"
    report.notes.append(
        f"{'Documents are nowhere' if settings.computed else disk}, {rate:.2f} requests a second ({settings.load:g} "
        "times what the engine holds without lookahead)."
    )
    if settings.processor_time:
        report.notes.append("All times are of the processor, which other work shared.")
    for name, label, most in _TARGETS:
        ratio = ratios[name]
        if ratio is not None:
            report.notes.append(
                f"{label} with lookahead over that without, in {len(pairs)} pairs of runs: {ratio['median']:.2f} "
                f"({ratio['min']:.2f} to {ratio['max']:.2f}); target {most}."
            )
    return report


def _ratio(pair: dict[bool, LookaheadRun], name: str) -> float:
    with_it, without = (statistics.mean(getattr(pair[is_ahead], name)) for is_ahead in (True, False))
    return with_it / without


def _figure(settings: LookaheadSettings, is_ahead: bool, runs: Sequence[LookaheadRun]) -> dict[str, Any]:
    whole = settings.num_requests * settings.document_tokens
    return {
        "lookahead": "on" if is_ahead else "off",
        "ttft_s": summarise(statistics.mean(run.ttft_s) for run in runs),
        "ttft_max_s": summarise(max(run.ttft_s) for run in runs),
        "tpot_s": summarise(statistics.mean(run.tpot_s) for run in runs if run.tpot_s),
        "wall_s": summarise(run.wall_s for run in runs),
        "itl_p99_s": summarise(run.itl_p99_s[0] for run in runs),
        "from_disk": summarise(run.cached["disk"] / whole for run in runs),
        "computed_ahead": summarise(run.num_computed / whole for run in runs),
    }


def draw(figure: Any, title: str, pairs: Sequence[dict[bool, LookaheadRun]]) -> None:
    """Mean TTFT of every run, without and with lookahead."""
    panel = figure.subplots(1, 1)
    figure.suptitle(f"Time to the first token, with and without lookahead: less is better\n{title}", x=0.01, ha="left")
    rows = []
    for is_ahead in (False, True):
        values = [statistics.mean(pair[is_ahead].ttft_s) for pair in pairs]
        rows.append(PlotRow(f"lookahead {'on' if is_ahead else 'off'}", statistics.mean(values), points=values))
    draw_rows(panel, rows, "mean TTFT, s (small: each run)")
    panel.set_xlim(left=0)


@options()
def main(engine: EngineConfig, settings: LookaheadSettings, json: Json = None, plot: Plot = None) -> None:
    """Documents loaded or computed for waiting requests: the same arrivals with and without; in float32."""
    config = experiment_config(engine, settings)
    with opened_bench(config, settings.of_documents) as documents:
        bench = LookaheadBench(documents, settings)
        bench.prepare()
        at_once = bench.play([0.0] * settings.num_requests, is_ahead=False)
        rate = settings.load * settings.num_requests / at_once.wall_s
        due_s = poisson_arrivals(settings.num_requests, rate, settings.seed)
        pairs: list[dict[bool, LookaheadRun]] = []
        for at in range(settings.runs):
            order = (False, True) if at % 2 == 0 else (True, False)
            pairs.append({is_ahead: bench.play(due_s, is_ahead=is_ahead) for is_ahead in order})
    num_different = sum(
        tokens != expected
        for pair in pairs
        for played in pair.values()
        for tokens, expected in zip(played.tokens, at_once.tokens, strict=True)
    )
    report = make_report(config, settings, bench, rate, pairs)
    report.more["num_different"] = num_different
    report.notes.append(
        f"{num_different or 'No'} answers differed from the first run, in which all requests came at once."
    )
    report.publish(json, plot, lambda figure: draw(figure, report.title, pairs))
    if num_different:
        raise typer.Exit(1)


if __name__ == "__main__":
    start(main)
