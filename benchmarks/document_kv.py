"""Time to the first token of a question about a document: computed, from the device, from disk; and load or compute.

One engine, one request at a time, every document new. Each document is computed, found on the device, and loaded from
disk with its file in the page cache (warm) and without (cold). The question's blocks have their own domain, so only the
document is found. Raw reads of as many bytes give the disk's own speed.

Then the disk is limited to multiples of the bandwidth at which loading takes as long as computing, measured just
before: loading, computing and the cost model's choice take turns.
"""

from __future__ import annotations

import contextlib
import gc
import os
import secrets
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import typer

from benchmarks.script import start
from quire.bench.bench_settings import runs
from quire.bench.plots import PlotRow, draw_rows
from quire.bench.report import Column, Report, summarise
from quire.bench.workload import fixed_lengths, make_workload, token_range
from quire.cli.options import Json, Plot, options
from quire.config import EngineConfig, format_size
from quire.core.block_keys import PUBLIC, Domain
from quire.core.decisions.costs import Costs, StepShape
from quire.engine.engine import Engine
from quire.prompt import Prompt
from quire.sampling_params import SamplingParams
from quire.settings import Settings, integers, numbers, setting
from quire.system.page_cache import drop_pages

_COMPUTED, _DEVICE, _WARM, _COLD = "computed", "device", "disk, warm", "disk, cold"
WAYS = (_COMPUTED, _DEVICE, _WARM, _COLD)
_LOAD, _COMPUTE, _CHOSEN = "load", "compute", "chosen"
_PIECE = 1 << 20  #: bytes of a raw read
#: Target of a document from disk beyond the device's time, in raw reads and in seconds.
_MOST_READS, _MOST_S = 1.5, 0.02
_MOST_RATIO = 1.05  #: target of choosing, over the better pure way
_NUM_TO_CROSS = 3  #: repetitions that measure the crossing
_NUM_TO_LEARN = 2  #: loads that teach the cost model a bandwidth


@dataclass(frozen=True)
class DocumentKvSettings(Settings):
    """Options of the document KV benchmark."""

    document_tokens: int = setting(1024, "Tokens of each document.", at_least=16)
    question_tokens: int = setting(32, "Tokens after the document.", at_least=1)
    output_len: tuple[int, ...] = setting("1,32,128", "Tokens of the answers.", read=integers, at_least=1)
    bandwidth: tuple[float, ...] = setting(
        "0.3,1,3",
        "Limits of the disk's bandwidth, as multiples of the crossing; 0 skips this part.",
        read=numbers,
        at_least=0,
    )
    runs: int = runs()


@dataclass(frozen=True)
class DocumentAnswer:
    """Timing of one request."""

    ttft_s: float
    tokens: list[int]
    cached: dict[str, int]  #: tokens by tier


@dataclass
class LengthResult:
    """Measurements of one answer length."""

    output_len: int
    answers: dict[str, list[DocumentAnswer]] = field(default_factory=lambda: {way: [] for way in WAYS})
    raw_s: dict[str, list[float]] = field(
        default_factory=lambda: {_WARM: [], _COLD: []}
    )  #: raw reads of the same bytes
    resident: list[float] = field(default_factory=list)  #: resident share of the files before cold reads

    @property
    def num_different(self) -> int:
        """Answers with other tokens than the computed one."""
        expected = [answer.tokens for answer in self.answers[_COMPUTED]]
        return sum(
            answer.tokens != tokens
            for way in WAYS[1:]
            for answer, tokens in zip(self.answers[way], expected, strict=True)
        )


@dataclass
class LimitedDisk:
    """TTFT by each way with a limited disk."""

    factor: float  #: multiple of the crossing
    crossing: float  #: bytes per second at which loading took as long as computing
    ttft_s: dict[str, list[float]] = field(default_factory=lambda: {_LOAD: [], _COMPUTE: [], _CHOSEN: []})
    loaded: list[float] = field(default_factory=list)  #: loaded share of the document when the cost model chose

    @property
    def bandwidth(self) -> float:
        return self.factor * self.crossing

    @property
    def better(self) -> str:
        return min((_LOAD, _COMPUTE), key=lambda way: statistics.median(self.ttft_s[way]))

    @property
    def ratios(self) -> list[float]:
        return [one / other for one, other in zip(self.ttft_s[_CHOSEN], self.ttft_s[self.better], strict=True)]


class FixedLoadCosts:
    """Costs with a fixed time for loading, which force one way."""

    is_link_usable = True

    def __init__(self, costs: Costs, load_s: float) -> None:
        self._costs = costs
        self._load_s = load_s

    def step(self, shape: StepShape) -> float:
        return self._costs.step(shape)

    def recompute(self, num_tokens: int, *, start: int = 0, chunk: int = 512, beside: StepShape | None = None) -> float:
        return self._costs.recompute(num_tokens, start=start, chunk=chunk, beside=beside)

    def save(self, num_bytes: int, tier: str = "host") -> float:
        return self._load_s

    def load(self, num_bytes: int, tier: str = "host") -> float:
        return self._load_s


class DocumentBench:
    """Sends questions about documents to an idle engine with a KV directory."""

    def __init__(self, engine: Engine, settings: DocumentKvSettings, directory: Path) -> None:
        self.engine = engine
        self.settings = settings
        self.directory = directory
        self._ids = token_range(engine.vocab_size)
        self._num_documents = 0
        disk: Any = engine.runner.disk
        assert disk is not None, "the engine has a KV directory"
        self.link = disk.worker
        block_size = engine.scheduler.config.block_size
        self.plain_bytes = settings.document_tokens // block_size * engine.scheduler.config.block_bytes
        self._costs = engine.costs.model

    @property
    def num_bytes(self) -> int:
        """Bytes of a document on disk."""
        return round(self.plain_bytes * self.engine.cost_model.stored_share)

    def document(self) -> list[int]:
        """Make a new document with its question."""
        self._num_documents += 1
        length = self.settings.document_tokens + self.settings.question_tokens
        load = make_workload("document", fixed_lengths(1, length, 1), seed=1, ids=self._ids)
        return load.shifted(self._num_documents, self._ids).requests[0].prompt_token_ids

    def ask(self, tokens: Sequence[int], output_len: int = 1) -> DocumentAnswer:
        """Send a question and wait until the document's KV is saved."""
        end = self.settings.document_tokens
        question = Domain(2, secrets.token_bytes(8))
        state = self.engine.add_request(
            Prompt(token_ids=tokens, domains=((0, PUBLIC), (end, question)), documents=(end,)),
            SamplingParams(temperature=0.0, max_tokens=output_len, ignore_eos=True, detokenize=False),
        )
        while self.engine.has_unfinished():
            self.engine.step()
        if state.request.error is not None:
            raise RuntimeError(f"a request failed: {state.request.error}")
        first = state.metrics.first_token_time
        assert first is not None
        found = state.request
        return DocumentAnswer(
            first - state.metrics.arrival_time, found.sequences[0].output_token_ids, dict(found.cached_tokens or {})
        )

    def ask_disk(self, tokens: Sequence[int], way: str, output_len: int = 1) -> DocumentAnswer:
        """As `ask` without the device's cache, by one way: load, compute, or the cost model's choice."""
        self.engine.reset_prefix_cache()
        loader = self.engine.scheduler.decider
        loader.costs = {_LOAD: FixedLoadCosts(self._costs, 0.0), _COMPUTE: FixedLoadCosts(self._costs, 1e9)}.get(
            way, self._costs
        )
        try:
            return self.ask(tokens, output_len)
        finally:
            loader.costs = self._costs

    def close(self) -> None:
        """Close the link and the store."""
        self.link.close()
        disk: Any = self.engine.runner.disk
        disk.store.close()
        gc.collect()

    def _files(self) -> list[Path]:
        return sorted(self.directory.glob("*/*.seg"), key=lambda path: path.stat().st_mtime)

    def read_raw(self) -> float:
        """Seconds of plain reads of a document's bytes, from the newest files."""
        buffer = memoryview(bytearray(_PIECE))
        num_left = self.num_bytes
        started = time.perf_counter()
        for path in reversed(self._files()):
            with path.open("rb") as file:
                at = max(0, os.fstat(file.fileno()).st_size - num_left)
                while num_left > 0 and (count := os.preadv(file.fileno(), [buffer[:num_left]], at)):
                    at, num_left = at + count, num_left - count
        return time.perf_counter() - started

    def measure(self, output_len: int) -> LengthResult:
        """Measure every way of getting a document's KV."""
        outcome = LengthResult(output_len)
        for _ in range(self.settings.runs):
            tokens = self.document()
            answers = outcome.answers
            answers[_COMPUTED].append(self.ask(tokens, output_len))
            answers[_DEVICE].append(self.ask(tokens, output_len))
            outcome.raw_s[_WARM].append(self.read_raw())
            answers[_WARM].append(self.ask_disk(tokens, _LOAD, output_len))
            drop_pages(self._files())
            outcome.raw_s[_COLD].append(self.read_raw())
            outcome.resident.append(drop_pages(self._files()))
            answers[_COLD].append(self.ask_disk(tokens, _LOAD, output_len))
        return outcome

    def measure_at(self, tokens: Sequence[int], factor: float) -> LimitedDisk:
        """Measure the ways for a document on disk, in turns, with the disk limited to `factor` times the crossing."""
        held = LimitedDisk(factor, self.crossing(tokens))
        self.link.bandwidth = held.bandwidth
        try:
            for _ in range(_NUM_TO_LEARN):
                self.ask_disk(tokens, _LOAD)
            ways = list(held.ttft_s)
            for turn in range(self.settings.runs):
                for i in range(len(ways)):
                    way = ways[(turn + i) % len(ways)]  # in another order each turn
                    answer = self.ask_disk(tokens, way)
                    held.ttft_s[way].append(answer.ttft_s)
                    if way == _CHOSEN:
                        held.loaded.append(answer.cached.get("disk", 0) / self.settings.document_tokens)
        finally:
            self.link.bandwidth = None
        return held

    def crossing(self, tokens: Sequence[int]) -> float:
        """Measure the bytes per second at which loading a document takes as long as computing it."""
        seconds = [
            self.ask_disk(tokens, _COMPUTE).ttft_s - self.ask(tokens).ttft_s  # the second hits the device
            for _ in range(_NUM_TO_CROSS)
        ]
        return self.num_bytes / max(1e-6, statistics.median(seconds))

    def store(self) -> list[int]:
        """Make a document and save it to disk."""
        tokens = self.document()
        self.ask(tokens)
        return tokens


@contextlib.contextmanager
def opened_bench(config: EngineConfig, settings: DocumentKvSettings) -> Iterator[DocumentBench]:
    """Open an engine over `config.kv_dir` or a temporary directory."""
    from quire.assembly import load, make_engine

    loaded = load(config)
    with contextlib.ExitStack() as stack:
        directory = Path(config.kv_dir or stack.enter_context(tempfile.TemporaryDirectory(prefix="quire-kv-")))
        engine = make_engine(replace(config, kv_dir=str(directory)), loaded)
        bench = DocumentBench(engine, settings, directory)
        stack.callback(bench.close)
        yield bench


def experiment_config(config: EngineConfig, settings: DocumentKvSettings) -> EngineConfig:
    """Defaults: float32, so tokens can be compared, and room for a few documents."""
    length = settings.document_tokens + settings.question_tokens + max(settings.output_len)
    values: dict[str, Any] = {"skip_tokenizer_init": True}
    if config.dtype == "auto":
        values["dtype"] = "float32"
    if config.max_model_len is None:
        values["max_model_len"] = length
    if config.num_kv_blocks is None and config.kv_cache_memory is None:
        values["num_kv_blocks"] = 4 * -(-length // config.block_size)
    return replace(config, **values)


COLUMNS = (
    Column("output_len", "tokens out", digits=0),
    Column("way", "the document's KV"),
    Column("ttft_s", "TTFT ms", scale=1e3, digits=1),
    Column("raw_read_s", "raw read ms", scale=1e3, digits=1),
    Column("limit_s", "target ms", scale=1e3, digits=1),
    Column("same_tokens", "same tokens"),
)


def make_report(
    config: EngineConfig,
    settings: DocumentKvSettings,
    num_bytes: int,
    outcomes: Sequence[LengthResult],
    held: Sequence[LimitedDisk],
) -> Report:
    report = Report(
        "document-kv",
        f"Documents' KV: {config.model} in {config.dtype}, {settings.document_tokens} tokens of document "
        f"({format_size(num_bytes)}), {settings.question_tokens} of question",
        COLUMNS,
        [figure for outcome in outcomes for figure in _figures(outcome)],
    )
    report.settings = {**settings.as_json(), "engine": asdict(config)}
    report.more = {"held": [_decision(each) for each in held]}
    report.notes.append(
        f"target: the device's TTFT, {_MOST_READS} times the raw read, and {_MOST_S * 1e3:.0f} ms. Cold: at most "
        f"{100 * max((share for outcome in outcomes for share in outcome.resident), default=0.0):.1f} % of the files' "
        "pages were in memory before a read."
    )
    report.notes += [_describe(each) for each in held]
    return report


def _figures(outcome: LengthResult) -> Iterator[dict[str, Any]]:
    expected = [answer.tokens for answer in outcome.answers[_COMPUTED]]
    device = statistics.median(answer.ttft_s for answer in outcome.answers[_DEVICE])
    for way, answers in outcome.answers.items():
        figure: dict[str, Any] = {
            "output_len": outcome.output_len,
            "way": way,
            "ttft_s": summarise(answer.ttft_s for answer in answers),
            "cached_tokens": answers[0].cached,
        }
        if way != _COMPUTED:
            num_same = sum(answer.tokens == tokens for answer, tokens in zip(answers, expected, strict=True))
            figure["same_tokens"] = f"{num_same} of {len(answers)}"
        if way in outcome.raw_s:
            figure["raw_read_s"] = summarise(outcome.raw_s[way])
            figure["limit_s"] = device + _MOST_READS * statistics.median(outcome.raw_s[way]) + _MOST_S
            figure["within_limit"] = statistics.median(answer.ttft_s for answer in answers) <= figure["limit_s"]
        yield figure


def _decision(held: LimitedDisk) -> dict[str, Any]:
    return {
        "factor": held.factor,
        "crossing_bandwidth": held.crossing,
        **{f"{way}_s": summarise(seconds) for way, seconds in held.ttft_s.items()},
        "better": held.better,
        "ratio": summarise(held.ratios),
        "loaded_share": summarise(held.loaded),
    }


def _describe(held: LimitedDisk) -> str:
    load, compute, chosen = (1e3 * statistics.median(held.ttft_s[way]) for way in (_LOAD, _COMPUTE, _CHOSEN))
    ratios = held.ratios
    return (
        f"A disk of {format_size(held.bandwidth)} a second ({held.factor:g} times the crossing): loaded {load:,.0f} "
        f"ms, computed {compute:,.0f} ms, as chosen {chosen:,.0f} ms with {100 * statistics.median(held.loaded):.0f} % "
        f"loaded, {statistics.median(ratios):.2f} ({min(ratios):.2f}-{max(ratios):.2f}) of the better one in the same "
        f"turn (target {_MOST_RATIO})."
    )


def draw(
    figure: Any,
    config: EngineConfig,
    settings: DocumentKvSettings,
    outcomes: Sequence[LengthResult],
    held: Sequence[LimitedDisk],
) -> None:
    """TTFT by way, and with limited disks."""
    heights = [len(WAYS)] + [3 * len(held)] * bool(held)  # rows of names
    panels = figure.subplots(len(heights), 1, squeeze=False, height_ratios=heights)[:, 0]
    figure.set_size_inches(8, 2 + 0.35 * sum(heights))
    figure.suptitle(
        f"Time to the first token, {settings.document_tokens} tokens of document: less is better\n"
        f"{config.model} in {config.dtype}",
        x=0.01,
        ha="left",
    )
    rows = []
    for way in WAYS:
        values = [1e3 * answer.ttft_s for outcome in outcomes for answer in outcome.answers[way]]
        rows.append(PlotRow(way, statistics.median(values), points=values))
    draw_rows(panels[0], rows, "TTFT, ms")
    panels[0].set_xlim(left=0)
    if held:
        rows = [
            PlotRow(
                f"{each.factor:g} × crossing: {way}",
                1e3 * statistics.median(seconds),
                points=[1e3 * second for second in seconds],
            )
            for each in held
            for way, seconds in each.ttft_s.items()
        ]
        draw_rows(panels[1], rows, "TTFT, ms, with the disk held to a bandwidth")
        panels[1].set_xlim(left=0)


@options()
def main(engine: EngineConfig, settings: DocumentKvSettings, json: Json = None, plot: Plot = None) -> None:
    """Time to the first token of a question about a document: computed, from the device, from disk; in float32."""
    config = experiment_config(engine, settings)
    with opened_bench(config, settings) as bench:
        for output_len in (1, 2):  # warm up: kernels of these shapes
            bench.ask_disk(bench.store(), _LOAD, output_len)
        outcomes = [bench.measure(output_len) for output_len in settings.output_len]
        tokens = bench.store()
        held = [bench.measure_at(tokens, factor) for factor in settings.bandwidth if factor]
    report = make_report(config, settings, bench.num_bytes, outcomes, held)
    report.publish(json, plot, lambda figure: draw(figure, config, settings, outcomes, held))
    if any(outcome.num_different for outcome in outcomes):
        raise typer.Exit(1)


if __name__ == "__main__":
    start(main)
