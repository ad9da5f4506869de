"""Cost of hostile schemas for other clients' streams, and the time until they are refused.

    python -m benchmarks.hostile_schemas [--streams 8] [--rounds 6] [--seconds 15]

Streams run alone and beside a client that sends hostile schemas, in turns, with one engine thread. Prints both p99
gaps, the ratio of each pair of turns, and the longest wait for a 400.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import statistics
import tempfile
import time
from collections.abc import Iterator
from typing import Any

import httpx

from benchmarks.soak.requests import MODEL
from benchmarks.soak.soak import Server

PATIENCE_S = 300
MOST_S, MOST_RATIO = 2.0, 1.1  # the promise
_KINDS = ("alone", "beside hostile schemas")


def hostile_schemas() -> Iterator[dict[str, Any]]:
    """Yield new schemas that are slow to compile, large, exponential or endless."""
    for number in itertools.count():
        yield {"type": "integer", "multipleOf": 1_000_003 + 2 * number}
        automata = [{"type": "string", "pattern": f"(a|b)*a(a|b){{{at}}}c{number}"} for at in range(20, 32)]
        yield {"allOf": automata}
        yield {"type": "string", "pattern": f"^(((a{{1000}}){{1000}}){{1000}}){{{1000 + number}}}$"}
        yield {"$defs": {f"d{at}": _twice(at + 1) for at in range(40)} | {"d40": {"const": number}}, **_twice(0)}
        yield {"enum": ["x" * 20 + str(number)] * 10_000}
        yield {"type": "array", "items": {"type": "integer"}, "uniqueItems": True, "maxItems": number + 1}


def _twice(at: int) -> dict[str, Any]:
    part = {"$ref": f"#/$defs/d{at}"}
    return {"type": "array", "prefixItems": [part, part], "items": False, "minItems": 2}


class Streams:
    """Endless streams that record the gaps between their tokens."""

    def __init__(self, client: httpx.AsyncClient, num_streams: int) -> None:
        self._client = client
        self.gaps_s: list[float] = []
        self._tasks = [asyncio.create_task(self._run(number)) for number in range(num_streams)]

    async def _run(self, number: int) -> None:
        body = {"model": MODEL, "prompt": f"Hello {number}", "max_tokens": 1000, "ignore_eos": True, "stream": True}
        while True:
            async with self._client.stream("POST", "/v1/completions", json=body) as answer:
                answer.raise_for_status()
                last: float | None = None
                async for line in answer.aiter_lines():
                    if line.startswith("data: "):
                        now = time.perf_counter()
                        if last is not None:
                            self.gaps_s.append(now - last)
                        last = now

    def take(self) -> list[float]:
        for task in self._tasks:
            if task.done():
                task.result()
        taken, self.gaps_s = self.gaps_s, []
        return taken

    async def end(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


async def ask_hostile(client: httpx.AsyncClient, schemas: Iterator[dict[str, Any]]) -> tuple[float, bool]:
    """Seconds until the answer to a schema, and whether it was refused."""
    about = {"type": "json_schema", "json_schema": {"name": "it", "schema": next(schemas)}}
    messages = [{"role": "user", "content": "Hello"}]
    body = json.dumps({"model": MODEL, "messages": messages, "response_format": about, "max_tokens": 1})
    began = time.perf_counter()
    answer = await client.post("/v1/chat/completions", content=body, headers={"Content-Type": "application/json"})
    waited_s = time.perf_counter() - began
    if answer.status_code not in (200, 400):
        raise RuntimeError(f"{answer.status_code} for {body:.300}: {answer.text:.300}")
    return waited_s, answer.status_code == 400


async def measure(url: str, num_streams: int, rounds: int, seconds: float) -> None:
    schemas = hostile_schemas()
    waits: list[tuple[float, bool]] = []
    p99s: dict[str, list[float]] = {kind: [] for kind in _KINDS}
    async with httpx.AsyncClient(base_url=url, timeout=PATIENCE_S) as client:
        for _ in range(6):
            await ask_hostile(client, schemas)  # the process that compiles is there
        streams = Streams(client, num_streams)
        await asyncio.sleep(2)
        for turn in range(rounds):
            for kind in _KINDS if turn % 2 else reversed(_KINDS):
                streams.take()
                until = time.perf_counter() + seconds
                if kind == _KINDS[0]:
                    await asyncio.sleep(seconds)
                while time.perf_counter() < until:
                    waits.append(await ask_hostile(client, schemas))
                gaps = sorted(streams.take())
                p99s[kind].append(gaps[len(gaps) * 99 // 100])
                print(f"{kind}: {len(gaps)} gaps, p50 {gaps[len(gaps) // 2] * 1e3:.2f} ms, ", end="")
                print(f"p99 {p99s[kind][-1] * 1e3:.2f} ms, longest {gaps[-1] * 1e3:.1f} ms", flush=True)
        await streams.end()
    ratios = [beside / alone for alone, beside in zip(*p99s.values(), strict=True)]
    print(
        f"p99 of {num_streams} streams' gaps beside hostile schemas, of theirs alone: {statistics.median(ratios):.3f} "
        f"({min(ratios):.3f} to {max(ratios):.3f}; {MOST_RATIO} is the most)"
    )
    refused = [waited_s for waited_s, is_refused in waits if is_refused]
    print(
        f"refused: {len(refused)} of {len(waits)}, median {statistics.median(refused):.2f} s, longest "
        f"{max(refused):.2f} s ({MOST_S:g} is the most); the rest was taken"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--streams", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--seconds", type=float, default=15)
    options = parser.parse_args()
    with tempfile.TemporaryFile("w+") as log:
        server = Server(log, "--num-threads", "1")
        try:
            asyncio.run(measure(server.url, options.streams, options.rounds, options.seconds))
        finally:
            server.process.terminate()
            server.process.wait(PATIENCE_S)


if __name__ == "__main__":
    main()
