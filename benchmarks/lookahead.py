"""What it is worth to load documents for requests that wait for their turn: the same arrivals, with and without.

All documents are on disk and none on the device when a run begins. Requests come at the rate that the engine just holds
without lookahead, as measured first, so that they queue for a seat; the disk is held to a multiple of the bandwidth at
which loading a document takes as long as computing it. Runs take turns, and a ratio is of two runs next to each other.
"""

from __future__ import annotations

import math
import secrets
import statistics
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import typer

from benchmarks.document_kv import Bench, DocumentKvSettings, opened_bench
from benchmarks.document_kv import experiment_config as document_config
from benchmarks.script import start
from quire.bench.plots import PlotRow, draw_rows
from quire.bench.report import Column, Report, summarise
from quire.bench.workload import poisson_arrivals
from quire.cli.options import Json, Plot, options
from quire.config import EngineConfig, format_size
from quire.core.block_keys import PUBLIC, Domain
from quire.engine.request_state import RequestState
from quire.prompt import Prompt
from quire.sampling_params import SamplingParams
from quire.settings import Settings, setting

_MOST_TTFT, _MOST_TPOT = 0.9, 1.05  #: of those without lookahead: what is asked for
_NUM_WARM_UP = 2  #: documents, asked about before anything is timed
_NUM_TO_LEARN = 3  #: documents that are loaded for the cost model to learn how fast the disk is now


@dataclass(frozen=True)
class LookaheadSettings(Settings):
    """`quire bench lookahead`."""

    num_requests: int = setting(16, "Requests, each about a document of its own.", at_least=4)
    document_tokens: int = setting(256, "Tokens of each document.", at_least=16)
    question_tokens: int = setting(16, "Tokens after the document.", at_least=1)
    output_len: int = setting(16, "Tokens of each answer.", at_least=2)
    seats: int = setting(4, "Requests that run at once (max_num_seqs).", at_least=1)
    load: float = setting(1.0, "Requests a second, by what the engine holds without lookahead.", above=0)
    bandwidth: float = setting(
        3.0, "The disk held to so many times the bandwidth at which loading and computing take as long.", above=0
    )
    seed: int = setting(0, "Of the arrivals.", name="load_seed")
    runs: int = setting(3, "Pairs of runs, with and without.", at_least=1)

    @property
    def of_documents(self) -> DocumentKvSettings:
        """Those of the documents that are asked about."""
        lengths = {name: getattr(self, name) for name in ("document_tokens", "question_tokens")}
        return DocumentKvSettings(output_len=(self.output_len,), **lengths)


@dataclass(frozen=True)
class Played:
    """One run, measured."""

    ttft_s: list[float]  #: from when a request was due
    tpot_s: list[float]
    wall_s: float
    cached: Counter[str]  #: tokens by tier
    tokens: list[list[int]]


class LookaheadBench:
    """Asks one engine about documents that it has on disk.

    Args:
        bench: of its documents.
        settings: of the benchmark.
    """

    def __init__(self, bench: Bench, settings: LookaheadSettings) -> None:
        self.bench = bench
        self.settings = settings
        self.documents: list[list[int]] = []
        self.crossing = 0.0  #: bytes a second

    def prepare(self) -> None:
        """Have the documents on disk, and hold the disk."""
        bench = self.bench
        for _ in range(_NUM_WARM_UP):
            bench.ask_disk(bench.store(), "load", 2)
        self.documents = [bench.store() for _ in range(self.settings.num_requests)]
        self.crossing = bench.crossing(self.documents[0])
        bench.link.bandwidth = self.settings.bandwidth * self.crossing
        for tokens in self.documents[:_NUM_TO_LEARN]:  # how fast it is now, the cost model learns
            bench.ask_disk(tokens, "load")

    def play(self, due_s: Sequence[float], *, is_ahead: bool) -> Played:
        """All documents once, each request when it is due."""
        engine, settings = self.bench.engine, self.settings
        engine.reset_prefix_cache()
        engine.scheduler.lookahead.is_enabled = is_ahead
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
                time.sleep(max(0.0, due_s[len(states)] - now))
        return _measured(states, engine.clock() - started)

    def _prompt(self, tokens: Sequence[int]) -> Prompt:
        end = self.settings.document_tokens
        question = Domain(2, secrets.token_bytes(8))
        return Prompt(token_ids=tokens, domains=((0, PUBLIC), (end, question)), documents=(end,))


def _measured(states: Sequence[RequestState], wall_s: float) -> Played:
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
    return Played(ttft_s, tpot_s, wall_s, cached, tokens)


# -- the command -------------------------------------------------------------------------------------------------------


def run(
    config: EngineConfig,
    settings: LookaheadSettings,
    json_path: Path | None = None,
    plot_path: Path | None = None,
) -> bool:
    """`quire bench lookahead`. Without `kv_dir` a temporary directory is used.

    Returns:
        Whether all runs gave the same tokens.
    """
    config = experiment_config(config, settings)
    with opened_bench(config, settings.of_documents) as documents:
        bench = LookaheadBench(documents, settings)
        bench.prepare()
        at_once = bench.play([0.0] * settings.num_requests, is_ahead=False)
        rate = settings.load * settings.num_requests / at_once.wall_s
        due_s = poisson_arrivals(settings.num_requests, rate, settings.seed)
        pairs: list[dict[bool, Played]] = []
        for at in range(settings.runs):
            order = (False, True) if at % 2 == 0 else (True, False)
            pairs.append({is_ahead: bench.play(due_s, is_ahead=is_ahead) for is_ahead in order})
    num_different = _count_different(at_once, [played for pair in pairs for played in pair.values()])
    report = make_report(config, settings, bench, rate, pairs)
    report.more["num_different"] = num_different
    report.notes.append(f"{num_different or 'No'} answers were other than in the first run, where all came at once.")
    report.publish(json_path, plot_path, lambda figure: draw(figure, report.title, pairs))
    return not num_different


def _count_different(first: Played, others: Sequence[Played]) -> int:
    """Answers whose tokens are not those of the first run."""
    return sum(
        tokens != expected for played in others for tokens, expected in zip(played.tokens, first.tokens, strict=True)
    )


def experiment_config(config: EngineConfig, settings: LookaheadSettings) -> EngineConfig:
    """Few seats, and a pool in which as many requests as have one can be prepared beside them."""
    config = document_config(config, settings.of_documents)
    if config.kv_cache_memory is None:
        length = settings.document_tokens + settings.question_tokens + settings.output_len
        config = replace(config, num_kv_blocks=3 * settings.seats * math.ceil(length / config.block_size))
    return replace(config, max_num_seqs=settings.seats)


# -- what it comes to --------------------------------------------------------------------------------------------------

COLUMNS = (
    Column("lookahead", "lookahead"),
    Column("ttft_s", "mean TTFT ms", scale=1e3, digits=0),
    Column("ttft_max_s", "longest ms", scale=1e3, digits=0),
    Column("tpot_s", "mean TPOT ms", scale=1e3, digits=1),
    Column("wall_s", "wall s"),
    Column("from_disk", "of documents from disk", scale=100, digits=0, unit=" %"),
)


def make_report(
    config: EngineConfig,
    settings: LookaheadSettings,
    bench: LookaheadBench,
    rate: float,
    pairs: Sequence[dict[bool, Played]],
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
    ratios = {name: summarise(_ratio(pair, name) for pair in pairs) for name in ("ttft_s", "tpot_s")}
    report.more = {
        "ratios": ratios,
        "ratios_of_pairs": [{name: _ratio(pair, name) for name in ratios} for pair in pairs],
        "request_rate": rate,
        "bandwidth": bandwidth,
        "crossing_bandwidth": bench.crossing,
    }
    report.notes.append(
        f"A disk of {format_size(bandwidth)} a second ({settings.bandwidth:g} times the crossing), {rate:.2f} requests "
        f"a second ({settings.load:g} times what the engine holds without lookahead)."
    )
    for name, label, most in (("ttft_s", "TTFT", _MOST_TTFT), ("tpot_s", "TPOT", _MOST_TPOT)):
        ratio = ratios[name]
        if ratio is not None:
            report.notes.append(
                f"Mean {label} with lookahead over that without, in {len(pairs)} pairs of runs: {ratio['median']:.2f} "
                f"({ratio['min']:.2f} to {ratio['max']:.2f}); at most {most} is asked for."
            )
    return report


def _ratio(pair: dict[bool, Played], name: str) -> float:
    """Of the mean with lookahead over that without."""
    with_it, without = (statistics.mean(getattr(pair[is_ahead], name)) for is_ahead in (True, False))
    return with_it / without


def _figure(settings: LookaheadSettings, is_ahead: bool, runs: Sequence[Played]) -> dict[str, Any]:
    whole = settings.num_requests * settings.document_tokens
    return {
        "lookahead": "on" if is_ahead else "off",
        "ttft_s": summarise(statistics.mean(run.ttft_s) for run in runs),
        "ttft_max_s": summarise(max(run.ttft_s) for run in runs),
        "tpot_s": summarise(statistics.mean(run.tpot_s) for run in runs if run.tpot_s),
        "wall_s": summarise(run.wall_s for run in runs),
        "from_disk": summarise(run.cached["disk"] / whole for run in runs),
    }


def draw(figure: Any, title: str, pairs: Sequence[dict[bool, Played]]) -> None:
    """Every request's TTFT, without and with."""
    panel = figure.subplots(1, 1)
    figure.suptitle(f"Time to the first token, each request: less is better\n{title}", x=0.01, ha="left")
    rows = []
    for is_ahead in (False, True):
        values = [seconds for pair in pairs for seconds in pair[is_ahead].ttft_s]
        rows.append(PlotRow(f"lookahead {'on' if is_ahead else 'off'}", statistics.mean(values), points=values))
    draw_rows(panel, rows, "TTFT, s (the mean, and each one)")
    panel.set_xlim(left=0)


@options()
def main(engine: EngineConfig, settings: LookaheadSettings, json: Json = None, plot: Plot = None) -> None:
    """Documents loaded for waiting requests: the same arrivals with and without lookahead; in float32."""
    if not run(engine, settings, json, plot):
        raise typer.Exit(1)  # the notes say why


if __name__ == "__main__":
    start(main)
