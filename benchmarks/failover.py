"""Silence of streams whose engine is killed with `kill -9`.

    python -m benchmarks.failover [--streams 1,16] [--dtype float32]

Asks the same questions twice, half greedy and half with seeds; in the second run the engine is killed once all streams
have begun. Reports equal texts, errors and the longest silence. Linux only.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import tempfile
import time
from pathlib import Path
from typing import Any

import httpx

from benchmarks.soak.requests import MODEL
from benchmarks.soak.soak import PATIENCE_S, Server
from benchmarks.soak.trouble import children

NUM_TOKENS = 300
_HEADER = ["streams", "texts as before", "errors", "longest silence, s", "undisturbed, s"]


async def read(
    client: httpx.AsyncClient, number: int, begun: asyncio.Semaphore, num_tokens: int = NUM_TOKENS
) -> tuple[str, float, int]:
    """Read one stream. Returns its text, its longest silence and its number of errors."""
    body: dict[str, Any] = {"model": MODEL, "prompt": f"The number {number}", "max_tokens": num_tokens, "stream": True}
    body |= {"temperature": 0} if number % 2 else {"temperature": 1, "seed": number}
    text, silence, num_errors, last = "", 0.0, 0, None
    async with client.stream("POST", "/v1/completions", json={**body, "ignore_eos": True}) as answer:
        async for line in answer.aiter_lines():
            if not line.startswith("data: {"):
                continue
            event, now = json.loads(line[6:]), time.monotonic()
            num_errors += "error" in event
            if last is None:
                begun.release()
            else:
                silence = max(silence, now - last)
            last = now
            text += "".join(choice["text"] for choice in event.get("choices", ()))
    return text, silence, num_errors


async def ask(url: str, num_streams: int, pid: int | None) -> list[tuple[str, float, int]]:
    """Send all streams; once all have begun, kill a process."""
    begun = asyncio.Semaphore(0)
    async with httpx.AsyncClient(base_url=url, timeout=PATIENCE_S, limits=httpx.Limits()) as client:
        streams = [asyncio.create_task(read(client, number, begun)) for number in range(num_streams)]
        for _ in streams:
            await begun.acquire()
        if pid is not None:
            os.kill(pid, signal.SIGKILL)
        return await asyncio.gather(*streams)


def engine_of(server: Server) -> int:
    """The child of the server with the most memory."""
    tasks = Path(f"/proc/{server.process.pid}/task").iterdir()
    return max(
        (int(pid) for task in tasks for pid in children(task)),
        key=lambda pid: int(Path(f"/proc/{pid}/statm").read_text().split()[1]),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--streams", default="1,16")
    parser.add_argument("--dtype", default="float32")
    options = parser.parse_args()
    print(*_HEADER, sep=" | ")
    for count in map(int, options.streams.split(",")):
        with tempfile.TemporaryFile("w+") as log:
            server = Server(log, "--dtype", options.dtype)
            try:
                asyncio.run(ask(server.url, count, None))  # what is computed once only
                before = asyncio.run(ask(server.url, count, None))
                after = asyncio.run(ask(server.url, count, engine_of(server)))
            finally:
                server.process.terminate()
                server.process.wait(PATIENCE_S)
        same = sum(ours[0] == theirs[0] for ours, theirs in zip(after, before, strict=True))
        silences = [f"{max(silence for _, silence, _ in each):.2f}" for each in (after, before)]
        print(count, same, sum(errors for _, _, errors in after), *silences, sep=" | ")


if __name__ == "__main__":
    main()
