"""Time to the first token of a conversation's next turn after its model was unloaded or its server restarted: its KV
from disk, or computed.

Each round has a new conversation and four servers, one after the other: without KV on disk; with it, where the model is
then unloaded, so that the next turn also waits for its weights; and that one again with a next turn, first with the
files dropped from memory, then from the page cache.
"""

from __future__ import annotations

import json as json_module
import os
import random
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.script import start
from quire.bench.bench_settings import runs
from quire.bench.report import Column, Report, summarise
from quire.cli.options import Json, options
from quire.settings import Settings, setting
from quire.system.page_cache import drop_pages

_TIMEOUT_S = 900
_COLUMNS = (
    Column("way", "server"),
    Column("ttft_s", "TTFT s", digits=2),
    Column("ratio", "of a full prefill", digits=3),
    Column("cached", "tokens from disk", digits=0),
)
_PLAIN, _KEPT, _UNLOADED = "no KV on disk", "KV kept on disk", "unloaded, with its loading"
_COLD, _WARM = "restarted, disk", "restarted, page cache"


@dataclass(frozen=True)
class KeptPromptsSettings(Settings):
    """Options of the benchmark."""

    model: str = setting("random:qwen2.5-0.5b", "The model.")
    history_tokens: int = setting(8000, "Tokens of the conversation.", at_least=16)
    turn_tokens: int = setting(100, "Tokens of the next turn.", at_least=1)
    runs: int = runs()


@contextmanager
def served(settings: KeptPromptsSettings, cache: str, *more: str) -> Iterator[str]:
    """Start `quire serve` over a cache directory, and yield its address."""
    length = settings.history_tokens + settings.turn_tokens + 64
    command = [sys.executable, "-m", "quire", "serve", "--model", f"m={settings.model}", "--port", "0"]
    command += ["--max-model-len", str(length), "--hang-timeout", str(_TIMEOUT_S), *more]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("QUIRE_")}
    environment["XDG_CACHE_HOME"] = cache
    with tempfile.TemporaryFile("w+") as log:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True, env=environment)
        assert process.stdout is not None
        try:
            found = re.search(r"at (http://\S+)", process.stdout.readline())
            if found is None:
                log.seek(0)
                raise RuntimeError(f"the server ended: {log.read()[-500:]}")
            yield found[1]
        finally:
            process.send_signal(signal.SIGTERM)
            process.communicate(timeout=_TIMEOUT_S)


def ask(url: str, prompt: list[int]) -> tuple[float, int]:
    """Return the seconds until the first token, which is also the last, and the number of cached tokens."""
    body = {"model": "m", "prompt": prompt, "max_tokens": 1, "temperature": 0, "ignore_eos": True}
    started = time.perf_counter()
    usage = post(f"{url}/v1/completions", body)["usage"]
    return time.perf_counter() - started, (usage.get("prompt_tokens_details") or {}).get("cached_tokens", 0)


def post(url: str, body: dict[str, Any]) -> Any:
    request = urllib.request.Request(url, json_module.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=_TIMEOUT_S) as answer:
        return json_module.load(answer)


def measure(settings: KeptPromptsSettings, cache: str) -> list[dict[str, Any]]:
    """Measure all servers with new conversations."""
    seconds: dict[str, list[float]] = {way: [] for way in (_PLAIN, _KEPT, _UNLOADED, _COLD, _WARM)}
    ratios: dict[str, list[float]] = {way: [] for way in seconds}
    cached: dict[str, list[int]] = {way: [] for way in seconds}
    draw = random.Random(1)
    for _ in range(settings.runs):
        history, *turns = (
            [draw.randrange(1000, 9000) for _ in range(size)]
            for size in (settings.history_tokens, *[settings.turn_tokens] * 3)
        )
        for way, more, prompt in (
            (_PLAIN, ["--no-keep-kv"], history),
            (_KEPT, [], history),
            (_COLD, [], history + turns[0]),
            (_WARM, [], history + turns[1]),
        ):
            if way == _COLD:
                drop_pages(sorted(Path(cache).glob("quire/kv/*/*.seg")))
            with served(settings, cache, *more) as url:
                ask(url, [7] * 64)  # warm up
                answers = {way: ask(url, prompt)}
                if way == _KEPT:
                    post(f"{url}/v1/models/unload", {"model": "m"})
                    answers[_UNLOADED] = ask(url, history + turns[2])
            for each, (ttft_s, num_cached) in answers.items():
                print(f"{each}: {ttft_s:.2f} s, {num_cached} tokens found", file=sys.stderr)
                seconds[each].append(ttft_s)
                ratios[each].append(ttft_s / seconds[_PLAIN][-1])
                cached[each].append(num_cached)
    return [
        {
            "way": way,
            "ttft_s": summarise(seconds[way]),
            "ratio": summarise(ratios[way]),
            "cached": statistics.median(cached[way]),
        }
        for way in seconds
    ]


@options()
def main(settings: KeptPromptsSettings, json: Json = None) -> None:
    """Time to the first token after an unload or a restart: the conversation's KV from disk, or computed."""
    with tempfile.TemporaryDirectory(prefix="quire-kept-") as cache:
        rows = measure(settings, cache)
    title = f"{settings.model}, {settings.history_tokens} tokens of history, {settings.turn_tokens} of the next turn"
    report = Report("kept-prompts", title, _COLUMNS, rows)
    report.settings = settings.as_json()
    report.publish(json)


if __name__ == "__main__":
    start(main)
