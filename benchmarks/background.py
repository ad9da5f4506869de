"""Cost of a background batch for live streams: inter-token latency and time to the first token.

Windows with and without a batch take turns on one server. A window's live requests come one after another, with a pause
between two, in which the batch runs.
"""

from __future__ import annotations

import json as json_module
import time
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import httpx

from benchmarks.http_cost import serve
from benchmarks.script import start
from benchmarks.stream_client import StreamClient
from quire.bench.bench_settings import runs
from quire.bench.report import Column, Report, summarise
from quire.cli.options import Json, options
from quire.config import EngineConfig
from quire.settings import Settings, setting

_PROMPT = "Tell me a story about a fox. "
_PATH = "/v1/completions"


@dataclass(frozen=True)
class BackgroundSettings(Settings):
    """Options of the benchmark."""

    requests: int = setting(6, "Live requests of each window.", at_least=1)
    input_len: int = setting(100, "Bytes of each prompt.", at_least=1)
    output_len: int = setting(64, "Tokens of each answer.", at_least=2)
    batch_output_len: int = setting(8, "Tokens of each answer of the batch.", at_least=1)
    pause: float = setting(2.0, "Seconds between two live requests.", at_least=0)
    runs: int = runs(5)


def run(config: EngineConfig, settings: BackgroundSettings, json: Path | None) -> None:
    report = Report(
        "background",
        f"Live streams of {config.model} beside a batch",
        (
            Column("case", "server"),
            Column("itl_p50_s", "median ITL, ms", scale=1e3, digits=1),
            Column("itl_p99_s", "p99 ITL, ms", scale=1e3, digits=1),
            Column("itl_p99_ratio", "p99 ratio", digits=2),
            Column("ttft_s", "median TTFT, ms", scale=1e3, digits=0),
            Column("lines", "batch lines a window", digits=0),
        ),
        figures=measure_background(config, settings),
        notes=[f"{settings.runs} pairs of windows of {settings.requests} live requests."],
        settings={**asdict(config), **settings.as_json()},
    )
    report.publish(json)


def measure_background(config: EngineConfig, settings: BackgroundSettings) -> list[dict[str, Any]]:
    """Measure windows without and with a batch."""
    found: dict[str, list[dict[str, float]]] = {"alone": [], "with a batch": []}
    with (
        TemporaryDirectory() as directory,
        serve(config, 8 << 20, ["--engine-process", "--batch-dir", directory]) as target,
    ):
        server = httpx.Client(base_url=target.endpoint.base_url.removesuffix("/v1"), timeout=600)
        _live_window(target.url, settings, -1)
        for number in range(settings.runs):
            alone = _live_window(target.url, settings, 2 * number)
            batch = _begin_batch(server, settings, number)
            beside = _live_window(target.url, settings, 2 * number + 1)
            beside["lines"] = float(server.post(f"/v1/batches/{batch}/cancel").json()["request_counts"]["completed"])
            while server.get(f"/v1/batches/{batch}").json()["status"] != "cancelled":
                time.sleep(0.05)
            found["alone"].append({**alone, "itl_p99_ratio": 1.0, "lines": 0.0})
            found["with a batch"].append({**beside, "itl_p99_ratio": beside["itl_p99_s"] / alone["itl_p99_s"]})
    return [
        {"case": case, **{name: summarise(each[name] for each in windows) for name in windows[0]}}
        for case, windows in found.items()
    ]


def _body(settings: BackgroundSettings, number: int) -> dict[str, Any]:
    prompt = (f"{number}: " + _PROMPT * settings.input_len)[: settings.input_len]
    return {"model": "measured", "prompt": prompt, "max_tokens": settings.output_len, "ignore_eos": True}


def _begin_batch(server: httpx.Client, settings: BackgroundSettings, number: int) -> str:
    """Begin a batch that is longer than a window, and wait for its first answer. Returns its id."""
    bodies = [_body(settings, 1_000_000 * (number + 1) + at) for at in range(2000)]
    bodies = [body | {"max_tokens": settings.batch_output_len} for body in bodies]
    lines = [{"custom_id": str(at), "url": _PATH, "body": body} for at, body in enumerate(bodies)]
    content = "".join(json_module.dumps(line) + "\n" for line in lines).encode()
    file = server.post("/v1/files", data={"purpose": "batch"}, files={"file": content}).json()
    batch = str(server.post("/v1/batches", json={"input_file_id": file["id"], "endpoint": _PATH}).json()["id"])
    while not server.get(f"/v1/batches/{batch}").json()["request_counts"]["completed"]:
        time.sleep(0.05)
    return batch


def _live_window(url: str, settings: BackgroundSettings, number: int) -> dict[str, float]:
    gaps: list[float] = []
    ttfts: list[float] = []
    for at in range(settings.requests):
        time.sleep(settings.pause)
        client = StreamClient(url)
        body = {**_body(settings, 1000 * (number + 2) + at), "stream": True, "return_token_ids": True}
        began = time.monotonic()
        stream = client.open(json_module.dumps(body).encode())
        client.read(lambda: stream.is_ended)  # noqa: B023
        client.close()
        times = stream.token_s()
        ttfts.append(times[0] - began)
        gaps += [after - before for before, after in pairwise(times)]
    gaps.sort()
    return {
        "itl_p50_s": gaps[len(gaps) // 2],
        "itl_p99_s": gaps[min(len(gaps) - 1, int(0.99 * len(gaps)))],
        "ttft_s": sorted(ttfts)[len(ttfts) // 2],
    }


@options(default_model="quire-mini")
def main(engine: EngineConfig, settings: BackgroundSettings, json: Json = None) -> None:
    """Cost of a background batch for live streams."""
    run(engine, settings, json)


if __name__ == "__main__":
    start(main)
