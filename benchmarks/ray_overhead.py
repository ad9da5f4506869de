"""Cost of Ray: `quire serve --ray` with one replica against `quire serve`, one and sixteen streams, in turns.

    python -m benchmarks.ray_overhead --model random:qwen2.5-0.5b --rounds 5

Both servers run all the time, and one of them has work. Prompts differ between rounds, so caches have no hits.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import time
from typing import Any
from urllib.parse import urlsplit

import httpx

from cluster.ray_server import ray_server

_TOKENS_OF_PROMPT, _TOKENS_OF_ANSWER = 64, 64


async def stream(url: str, prompt: list[int]) -> list[float]:
    """Times of each piece of an answer, and the number of tokens."""
    address = urlsplit(url)
    reader, writer = await asyncio.open_connection(address.hostname, address.port)
    body = json.dumps(
        {"prompt": prompt, "max_tokens": _TOKENS_OF_ANSWER, "ignore_eos": True, "temperature": 0, "stream": True}
    ).encode()
    head = f"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(body)}"
    began = time.perf_counter()
    writer.write(f"{head}\r\nConnection: close\r\n\r\n".encode() + body)
    times = []
    async for line in reader:
        if line.startswith(b'data: {"id"'):
            times.append(time.perf_counter() - began)
        elif line.startswith(b"HTTP/1.1") and b"200" not in line:
            raise RuntimeError(line)
    writer.close()
    return times


async def ask(url: str, num_streams: int, salt: int) -> tuple[float, float]:
    """Median TTFT and median TPOT, in seconds."""
    prompts = [
        [100 + (salt * 7919 + each * 104729 + at) % 500 for at in range(_TOKENS_OF_PROMPT)]
        for each in range(num_streams)
    ]
    answers = await asyncio.gather(*(stream(url, prompt) for prompt in prompts))
    ttft = statistics.median(times[0] for times in answers)
    tpot = statistics.median((times[-1] - times[0]) / (_TOKENS_OF_ANSWER - 1) for times in answers)
    return ttft, tpot


def measure(urls: dict[str, str], rounds: int) -> list[dict[str, Any]]:
    found = []
    for number in range(-1, rounds):  # the first is to warm up
        for num_streams in (1, 16):
            order = list(urls) if number % 2 else list(urls)[::-1]
            for name in order:
                salt = hash((number, num_streams, name)) % 10**6
                ttft, tpot = asyncio.run(ask(urls[name], num_streams, salt))
                print(number, num_streams, name, f"{ttft * 1000:.1f} {tpot * 1000:.2f} ms", file=sys.stderr, flush=True)
                if number >= 0:
                    found.append({"server": name, "streams": num_streams, "ttft_s": ttft, "tpot_s": tpot})
    return found


def report(found: list[dict[str, Any]]) -> None:
    for num_streams in (1, 16):
        for figure in ("ttft_s", "tpot_s"):
            values = {
                name: [each[figure] for each in found if (each["server"], each["streams"]) == (name, num_streams)]
                for name in ("process", "ray")
            }
            ratios = [ray / process for ray, process in zip(values["ray"], values["process"], strict=True)]
            shown = ", ".join(f"{name} {statistics.median(each) * 1000:.1f} ms" for name, each in values.items())
            spread = f"{min(ratios):.2f} to {max(ratios):.2f}"
            print(f"{num_streams:2} streams {figure[:4]}: {shown}; ratio {statistics.median(ratios):.2f} ({spread})")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", default="quire-mini")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json")
    chosen = parser.parse_args()
    options = ["--model", chosen.model, "--num-kv-blocks", "400", "--max-model-len", "1024", "--num-threads", "2"]
    environment = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"}
    command = [sys.executable, "-m", "quire", "serve", "--port", "8765", *options]
    process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        with ray_server(*options) as server:
            urls = {"process": "http://127.0.0.1:8765", "ray": server.url}
            server.wait_for(lambda: httpx.get(f"{urls['process']}/health").status_code == 200, "the process")
            found = measure(urls, chosen.rounds)
    finally:
        process.terminate()
        process.wait()
    report(found)
    if chosen.json is not None:
        with open(chosen.json, "w") as file:
            json.dump(found, file)


if __name__ == "__main__":
    main()
