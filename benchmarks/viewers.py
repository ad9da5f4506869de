"""Processor time of a server per viewer of its live page (GET /v1/live), idle and while it answers.

Windows with and without viewers take turns. The server's own process is measured (`process_cpu_seconds_total`); the
engine's views, which all viewers share, take half a percent of its time at most.
"""

from __future__ import annotations

import re
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import httpx

from benchmarks.http_cost import serve
from benchmarks.script import start
from quire.bench.bench_settings import runs
from quire.bench.report import Column, Report, summarise
from quire.cli.options import Json, options
from quire.config import EngineConfig
from quire.settings import Settings, setting

_PROMPT = "Tell me a story about a fox. " * 8


@dataclass(frozen=True)
class ViewerSettings(Settings):
    """Options of the benchmark."""

    viewers: int = setting(10, "Viewers at once.", at_least=1)
    streams: int = setting(8, "Answers at once of the busy server.", at_least=1)
    window: float = setting(6.0, "Seconds of each window.", above=0)
    runs: int = runs(5)


def run(config: EngineConfig, settings: ViewerSettings, json: Path | None) -> None:
    report = Report(
        "viewers",
        f"{settings.viewers} viewers of {config.model}",
        (
            Column("case", "server"),
            Column("share", "% of a core a viewer", scale=100, digits=2),
            Column("events", "snapshots a second", digits=2),
            Column("bytes", "KB a second", scale=1e-3, digits=1),
        ),
        figures=measure_viewers(config, settings),
        notes=[f"{settings.runs} pairs of windows of {settings.window:g} s; busy: {settings.streams} answers at once."],
        settings={**asdict(config), **settings.as_json()},
    )
    report.publish(json)


def measure_viewers(config: EngineConfig, settings: ViewerSettings) -> list[dict[str, Any]]:
    """Measure an idle and a busy server. A viewer's figures are means over the viewers of a window."""
    figures = []
    with serve(config, 1 << 20, ["--engine-process"]) as target:
        url = target.endpoint.base_url.removesuffix("/v1")
        for case in ("idle", "busy"):
            with ExitStack() as stack:
                for _ in range(settings.streams if case == "busy" else 0):
                    stack.enter_context(_answering(url))
                pairs = [_measure_pair(url, settings) for _ in range(settings.runs)]
            figures.append({"case": case, **{name: summarise(each[name] for each in pairs) for name in pairs[0]}})
    return figures


def _measure_pair(url: str, settings: ViewerSettings) -> dict[str, float]:
    without_s = _cpu_s(url, settings.window)
    with ExitStack() as stack:
        counts = [stack.enter_context(_watching(url)) for _ in range(settings.viewers)]
        before, began = sum(counts, Counter[str]()), time.monotonic()
        with_s = _cpu_s(url, settings.window)
        seen, took_s = sum(counts, Counter[str]()) - before, time.monotonic() - began
    share = (with_s - without_s) / settings.viewers / settings.window
    return {"share": share, **{name: seen[name] / settings.viewers / took_s for name in ("events", "bytes")}}


def _cpu_s(url: str, seconds: float) -> float:
    """Processor seconds of the server during a window."""

    def read() -> float:
        found = re.search(r"^process_cpu_seconds_total (\S+)$", httpx.get(f"{url}/metrics").text, re.MULTILINE)
        assert found is not None
        return float(found[1])

    before = read()
    time.sleep(seconds)
    return read() - before


@contextmanager
def _watching(url: str) -> Iterator[Counter[str]]:
    """Read the stream in a thread; yields the numbers of events and bytes so far."""
    count = Counter[str]()
    with httpx.Client(timeout=60) as client, client.stream("GET", f"{url}/v1/live") as answer:
        answer.raise_for_status()
        is_over = threading.Event()

        def read() -> None:
            for data in answer.iter_raw():
                count["events"] += data.count(b"data: {")
                count["bytes"] += len(data)
                if is_over.is_set():
                    return

        reading = threading.Thread(target=read)
        reading.start()
        yield count
        is_over.set()
        reading.join()


@contextmanager
def _answering(url: str) -> Iterator[None]:
    """Ask for one answer after another."""
    is_over = threading.Event()
    body = {"model": "measured", "prompt": _PROMPT, "max_tokens": 200, "ignore_eos": True}

    def ask() -> None:
        while not is_over.is_set():
            httpx.post(f"{url}/v1/completions", json=body, timeout=600).raise_for_status()

    asking = threading.Thread(target=ask)
    asking.start()
    try:
        yield
    finally:
        is_over.set()
        asking.join()


@options(default_model="quire-mini")
def main(engine: EngineConfig, settings: ViewerSettings, json: Json = None) -> None:
    """Processor time of a server per viewer of its live page."""
    run(engine, settings, json)


if __name__ == "__main__":
    start(main)
