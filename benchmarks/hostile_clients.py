"""Cost of one hostile client for a `quire serve` without keys: memory, threads, and gaps in other clients' streams.

    python -m benchmarks.hostile_clients

Prints the largest and the final resident memory of server and engine for each case, and the gaps between the tokens of
another client's stream. All cases use one server, one after the other. Linux only.
"""

from __future__ import annotations

import json
import os
import socket
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from itertools import pairwise
from pathlib import Path
from urllib.parse import urlsplit

import httpx

from benchmarks.soak.agents import CHAT, COMPLETIONS
from benchmarks.soak.requests import MODEL
from benchmarks.soak.soak import PATIENCE_S, Server
from benchmarks.soak.trouble import children

NUM_CLIENTS = 4  # that ask without pause
NUM_TOKENS = 150  # of the other client's stream
_SETTLE_S = 1.5
_HEAD = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
_HEADER = ["one client", "server, MiB", "engine, MiB", "shared memory, MiB", "threads", "others' pauses, ms"]


class Watch:
    """Records the peak figures of a server's processes in a thread."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._look_on, daemon=True)
        self._shared_before = _shared_mib()
        self.largest = self.now()

    def now(self) -> dict[str, int]:
        """Resident MiB of the server and of its children, MiB of new shared memory, and threads."""
        tasks = list(Path(f"/proc/{self._pid}/task").iterdir())
        return {
            "server": _resident_mib(self._pid),
            "engine": sum(_resident_mib(int(pid)) for task in tasks for pid in children(task)),
            "shared": _shared_mib() - self._shared_before,
            "threads": len(tasks),
        }

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *failure: object) -> None:
        self._is_over.set()
        self._thread.join()

    def _look_on(self) -> None:
        while not self._is_over.wait(0.02):
            self.largest = {name: max(self.largest[name], value) for name, value in self.now().items()}


def _resident_mib(pid: int) -> int:
    with suppress(OSError):
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") >> 20
    return 0


def _shared_mib() -> int:
    return int(Path("/proc/meminfo").read_text().partition("Shmem:")[2].split()[0]) >> 10


@contextmanager
def _asking_without_pause(url: str, path: str, body: bytes) -> Iterator[None]:
    is_over = threading.Event()

    def ask() -> None:
        while not is_over.is_set():
            with suppress(httpx.HTTPError):
                headers = {"Content-Type": "application/json"}
                httpx.post(url + path, content=body, headers=headers, timeout=PATIENCE_S)

    with ThreadPoolExecutor(NUM_CLIENTS) as clients:
        asked = [clients.submit(ask) for _ in range(NUM_CLIENTS)]
        try:
            yield
        finally:
            is_over.set()
            for each in asked:
                each.result()


@contextmanager
def _holding(url: str, num_connections: int, sent: bytes) -> Iterator[None]:
    address = urlsplit(url)

    def connect() -> socket.socket:
        connection = socket.create_connection((address.hostname, address.port), timeout=_SETTLE_S)
        with suppress(OSError):
            connection.sendall(sent)
        return connection

    with ExitStack() as connections, ThreadPoolExecutor(16) as clients:
        for opened in [clients.submit(connect) for _ in range(num_connections)]:
            connections.enter_context(opened.result())
        yield


def _cases(url: str) -> Iterator[tuple[str, AbstractContextManager[object]]]:
    def asking(path: str, **body: object) -> AbstractContextManager[None]:
        return _asking_without_pause(url, path, json.dumps(body).encode())

    yield "nothing", ExitStack()
    yield "4 clients: `/tokenize` of 260,000 characters", asking("/tokenize", prompt="word " * 52_000)
    yield "4 clients: completions of 7.5 MB of text", asking(COMPLETIONS, prompt="word " * 1_500_000)
    messages = [{"role": "user", "content": "word " * 1_500_000}]
    yield "4 clients: chat with a message of 7.5 MB", asking(CHAT, messages=messages)
    yield "4 clients: completions that are 4 MB of `[`", _asking_without_pause(url, COMPLETIONS, b"[" * 4_000_000)
    yield "4 clients: completions of 1.9 million token ids", asking(COMPLETIONS, prompt=[5] * 1_900_000)
    yield "1,000 connections that stop in the middle of a head", _holding(url, 1000, _HEAD[:40])
    yield "100 connections that each hold 7.9 of 8 MB", _holding(url, 100, _HEAD % 8_000_000 + b"x" * 7_900_000)
    body = json.dumps({"prompt": "Hello there", "max_tokens": 60, "ignore_eos": True}).encode()
    yield "1,000 requests that run or wait", _holding(url, 1000, _HEAD % len(body) + body)


def _pauses(url: str) -> list[float]:
    body = {"model": MODEL, "prompt": "Hello", "max_tokens": NUM_TOKENS, "ignore_eos": True, "stream": True}
    with httpx.stream("POST", url + COMPLETIONS, json=body, timeout=PATIENCE_S) as answer:
        arrived = [time.perf_counter() for line in answer.iter_lines() if line.startswith("data: {")]
    return sorted(later - earlier for earlier, later in pairwise(arrived))


def _measure(server: Server, say: Callable[[list[str]], None]) -> None:
    _pauses(server.url)  # the first stream warms the server up
    for name, burden in _cases(server.url):
        with Watch(server.process.pid) as watch:
            with burden:
                time.sleep(0.5)
                pauses = _pauses(server.url)
            time.sleep(_SETTLE_S)
            after = watch.now()
        most = watch.largest
        p50, p99 = statistics.median(pauses), pauses[len(pauses) * 99 // 100]
        memory = [f"{most[process]} / {after[process]}" for process in ("server", "engine")]
        say([name, *memory, str(most["shared"]), str(most["threads"]), f"{p50 * 1e3:.0f} / {p99 * 1e3:.0f}"])


def main() -> None:
    with tempfile.TemporaryFile("w+") as log:
        server = Server(log)
        try:
            print(f"| {' | '.join(_HEADER)} |\n|{'---|' * len(_HEADER)}")
            _measure(server, lambda row: print(f"| {' | '.join(row)} |", flush=True))
        finally:
            server.process.kill()
            server.process.wait()


if __name__ == "__main__":
    main()
