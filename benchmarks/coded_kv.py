"""A document's KV from disk with coded exponents beside plain: bytes, time to the first token by bandwidth, tokens.

Two engines over one model keep the same document, one coded and one plain, and load it in turns from a disk of each
bandwidth, then from the files without their pages (cold). A slow disk is emulated below the store, in its reads of
files in the page cache, so decoding overlaps with reading exactly as far as the store lets it. What each engine's cost
model predicts for the load stands beside it.
"""

from __future__ import annotations

import contextlib
import os
import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import typer

from benchmarks.document_kv import DocumentBench, DocumentKvSettings, experiment_config
from benchmarks.script import start
from quire.bench.bench_settings import runs
from quire.bench.report import Column, Report, summarise
from quire.cli.options import Json, options
from quire.config import EngineConfig, format_size
from quire.settings import Settings, numbers, setting
from quire.system.page_cache import drop_pages

_MODES = ("plain", "coded")
_COLD = -1.0  #: in place of a bandwidth
_NUM_TO_LEARN = 6  #: loads that teach the cost models a bandwidth


@dataclass(frozen=True)
class CodedKvSettings(Settings):
    """Options of the benchmark of coded KV."""

    document_tokens: int = setting(1024, "Tokens of the document.", at_least=16)
    question_tokens: int = setting(32, "Tokens after the document.", at_least=1)
    output_len: int = setting(16, "Tokens of each answer, to compare.", at_least=1)
    bandwidth: tuple[float, ...] = setting(
        "50,125,250,500,0", "Bandwidths of the disk, in MB/s; 0 for no limit.", read=numbers, at_least=0
    )
    runs: int = runs()


@dataclass
class Loads:
    """Loads of the document at one bandwidth."""

    mb_per_s: float  #: 0 for the page cache, `_COLD` for files without pages
    ttft_s: dict[str, list[float]] = field(default_factory=lambda: {mode: [] for mode in _MODES})
    predicted_s: dict[str, float] = field(default_factory=dict)
    cpu_s: dict[str, list[float]] = field(default_factory=lambda: {mode: [] for mode in _MODES})  #: of all threads


class SlowDisk:
    """Reads of this process at a bandwidth, one after the other. Bytes that were asked for ahead are not read again."""

    def __init__(self) -> None:
        self.bytes_per_s: float | None = None
        self._free_at = 0.0
        self._ahead: dict[int, float] = {}  #: offset of bytes that are read ahead -> when they are there
        self._preadv, self._fadvise = os.preadv, os.posix_fadvise

    def _read(self, num_bytes: int) -> float:
        assert self.bytes_per_s is not None
        self._free_at = max(time.perf_counter(), self._free_at) + num_bytes / self.bytes_per_s
        return self._free_at

    def preadv(self, fd: int, buffers: Sequence[memoryview], at: int) -> int:
        num_bytes = self._preadv(fd, buffers, at)
        if self.bytes_per_s is not None:
            ahead = [each for each in self._ahead if at <= each < at + num_bytes]
            there_at = max([self._ahead.pop(each) for each in ahead] or [self._read(num_bytes)])
            time.sleep(max(0.0, there_at - time.perf_counter()))
        return num_bytes

    def fadvise(self, fd: int, at: int, num_bytes: int, advice: int) -> None:
        self._fadvise(fd, at, num_bytes, advice)
        if self.bytes_per_s is not None and advice == os.POSIX_FADV_WILLNEED:
            self._ahead[at] = self._read(num_bytes)

    @contextlib.contextmanager
    def in_place(self) -> Iterator[None]:
        os.preadv, os.posix_fadvise = self.preadv, self.fadvise  # type: ignore[assignment]
        try:
            yield
        finally:
            os.preadv, os.posix_fadvise = self._preadv, self._fadvise


class CodedKvBench:
    """Both engines, each with the document on its disk."""

    def __init__(self, benches: dict[str, DocumentBench], disk: SlowDisk, settings: CodedKvSettings) -> None:
        self._disk = disk
        self.benches = benches
        self._settings = settings
        self.tokens = benches[_MODES[0]].document()
        self.computed = [bench.ask(self.tokens, settings.output_len).tokens for bench in benches.values()]
        self.num_different = sum(tokens != self.computed[0] for tokens in self.computed)

    def measure(self, mb_per_s: float) -> Loads:
        found = Loads(mb_per_s)
        self._disk.bytes_per_s = mb_per_s * 1e6 if mb_per_s > 0 else None
        for mode, bench in self.benches.items():
            for _ in range(_NUM_TO_LEARN):
                self._load(bench, is_cold=mb_per_s == _COLD)
            found.predicted_s[mode] = bench.engine.cost_model.load(bench.plain_bytes, "disk")
        for turn in range(self._settings.runs):
            for mode in _MODES if turn % 2 else _MODES[::-1]:
                began = time.process_time()
                found.ttft_s[mode].append(self._load(self.benches[mode], is_cold=mb_per_s == _COLD))
                found.cpu_s[mode].append(time.process_time() - began)
        return found

    def _load(self, bench: DocumentBench, *, is_cold: bool) -> float:
        if is_cold:
            drop_pages(sorted(bench.directory.glob("*/*.seg")))
        answer = bench.ask_disk(self.tokens, "load", self._settings.output_len)
        self.num_different += answer.tokens != self.computed[0]
        assert answer.cached == {"disk": self._settings.document_tokens}, answer.cached
        return answer.ttft_s


def _bytes_on_disk(bench: DocumentBench) -> int:
    return sum(path.stat().st_size for path in bench.directory.glob("*/*.seg"))


COLUMNS = (
    Column("disk", "disk"),
    Column("mode", "records"),
    Column("ttft_s", "TTFT ms", scale=1e3, digits=1),
    Column("ratio", "of plain", digits=2),
    Column("predicted_s", "predicted load ms", scale=1e3, digits=1),
    Column("cpu_s", "CPU ms", scale=1e3, digits=1),
)


def figures(loads: Loads) -> list[dict[str, Any]]:
    name = {0.0: "page cache", _COLD: "cold"}.get(loads.mb_per_s, f"{loads.mb_per_s:g} MB/s")
    ratios = [one / other for one, other in zip(loads.ttft_s["coded"], loads.ttft_s["plain"], strict=True)]
    return [
        {
            "disk": name,
            "mode": mode,
            "ttft_s": summarise(loads.ttft_s[mode]),
            "ratio": statistics.median(ratios) if mode == "coded" else 1.0,
            "predicted_s": loads.predicted_s[mode],
            "cpu_s": statistics.median(loads.cpu_s[mode]),
        }
        for mode in _MODES
    ]


@options()
def main(engine: EngineConfig, settings: CodedKvSettings, json: Json = None) -> None:
    """A document's KV from disk, coded beside plain: bytes on disk, time to the first token, equal tokens."""
    from quire.assembly import load, make_engine

    of_document = DocumentKvSettings(
        document_tokens=settings.document_tokens,
        question_tokens=settings.question_tokens,
        output_len=(settings.output_len,),
    )
    config = experiment_config(replace(engine, dtype="bfloat16") if engine.dtype == "auto" else engine, of_document)
    loaded, disk = load(config), SlowDisk()
    with contextlib.ExitStack() as stack:
        stack.enter_context(disk.in_place())
        benches: dict[str, DocumentBench] = {}
        for mode in _MODES:
            directory = stack.enter_context(TemporaryDirectory(prefix="quire-kv-", dir=config.kv_dir))
            changed = replace(config, kv_dir=directory, kv_dir_coding="on" if mode == "coded" else "off")
            benches[mode] = DocumentBench(make_engine(changed, loaded), of_document, Path(directory))
            stack.callback(benches[mode].close)
        bench = CodedKvBench(benches, disk, settings)
        sizes = {mode: _bytes_on_disk(each) for mode, each in benches.items()}
        measured = [bench.measure(mb_per_s) for mb_per_s in (*settings.bandwidth, _COLD)]
        decoder = benches["coded"].engine.cost_model.decode_s_per_byte
    report = Report(
        "coded-kv",
        f"KV on disk, coded and plain: {config.model} in {config.dtype}, {settings.document_tokens} tokens",
        COLUMNS,
        [figure for loads in measured for figure in figures(loads)],
    )
    report.settings = {**settings.as_json(), "engine": asdict(config)}
    share = sizes["coded"] / sizes["plain"]
    report.more = {"bytes": sizes, "different": bench.num_different, "decode_s_per_saved_byte": decoder}
    report.notes.append(
        f"On disk: {format_size(sizes['coded'])} coded, {format_size(sizes['plain'])} plain ({share:.3f}). Decoding: "
        f"{1e-9 / decoder / (1 - share):.2f} GB/s of plain bytes in the last loads. Answers with other tokens: "
        f"{bench.num_different}."
    )
    report.publish(json)
    if bench.num_different:
        raise typer.Exit(1)


if __name__ == "__main__":
    start(main)
