"""More requests than the server can handle, and a shutdown among them."""

from __future__ import annotations

import json
import os
import re
import signal
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx

from quire.assembly import start_engine
from quire.config import EngineConfig
from quire.engine.engine import Engine
from server.faults.clients import PATIENCE_S, connect, request_bytes
from server.tiny_server import completion, tiny_server
from serving import MODEL, SMALL, make_model, running, wait_until

CROWD = 10_000
BYTES_A_REQUEST = 20_000  # waiting requests


class Held:
    """An engine whose steps block until they are released."""

    def __init__(self) -> None:
        self.go = threading.Event()

    def __call__(self, config: EngineConfig) -> Engine:
        engine = start_engine(config)
        usual = engine.runner.execute

        def execute(out: Any) -> Any:
            assert self.go.wait(PATIENCE_S)
            return usual(out)

        engine.runner.execute = execute  # type: ignore[method-assign]
        return engine


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_10000_requests_wait_further_ones_get_429_and_memory_is_bounded() -> None:
    """Ten connections with a thousand prompts each; every prompt is one request in the engine's queue."""
    held = Held()
    one = {"model": MODEL, "prompt": [[5, 6]] * 1000, "max_tokens": 1}
    with running(make_model(replace(SMALL, max_num_seqs=64), start=held, max_queue=CROWD)) as server:
        async_engine = server.registry.get(None).async_engine
        before = resident()
        crowd = [connect(server.url) for _ in range(10)]
        for client in crowd:
            client.sendall(request_bytes("/v1/completions", json.dumps(one).encode()))
        wait_until(lambda: async_engine.num_queued == CROWD)
        for refused in (server.complete(), server.complete(stream=True), server.complete(prompt=["a", "b"])):
            assert refused.status_code == 429
            assert int(refused.headers["Retry-After"]) > 0
            assert refused.json()["error"]["code"] == "queue_full"
            assert refused.json()["error"]["type"] == "rate_limit_error"
        assert resident() - before < CROWD * BYTES_A_REQUEST
        assert async_engine.num_queued == CROWD, "who was refused takes no place"
        for client in crowd[1:]:
            client.close()
        held.go.set()
        answer = bytearray()
        while len(re.findall(rb'"finish_reason":"(?:length|stop)"', answer)) < 1000 or b'"usage"' not in answer:
            read = crowd[0].recv(1 << 20)
            assert read, f"who stayed is served whole, not {bytes(answer[-100:])!r}"
            answer += read
        assert answer.startswith(b"HTTP/1.1 200")
        crowd[0].close()
        server.wait_until_idle()
        assert async_engine.num_queued == 0
        assert server.complete().status_code == 200


def test_what_fits_only_in_part_is_refused_whole() -> None:
    held = Held()
    with running(make_model(start=held, max_queue=8)) as server, ThreadPoolExecutor(1) as threads:
        async_engine = server.registry.get(None).async_engine
        waiting = threads.submit(server.complete, prompt=["a"] * 5)
        wait_until(lambda: async_engine.num_queued == 5)
        assert server.complete(prompt=["a"] * 5).status_code == 429
        wait_until(lambda: async_engine.num_queued == 5)
        held.go.set()
        assert waiting.result(PATIENCE_S).status_code == 200


def test_sigterm_under_load_ends_every_request_one_way_or_the_other() -> None:
    counts: Counter[str] = Counter()

    def keep_asking(first: int) -> None:
        """Send requests until the server refuses further ones."""
        with server.client() as client:
            for number in range(first, 100_000, 12):
                body = completion(prompt=[number % 50, 1, 2], max_tokens=1 + number % 30, stream=bool(number % 2))
                try:
                    answer = client.post("/v1/completions", json=body)
                except httpx.TransportError as error:
                    counts[type(error).__name__] += 1
                    return
                counts[str(answer.status_code)] += 1
                if answer.status_code != 200:
                    return
                is_whole = answer.text.endswith("data: [DONE]\n\n") if number % 2 else answer.json()["usage"]
                assert is_whole, answer.text
                assert '"error"' not in answer.text

    with tiny_server(step_s=0.005) as server, ThreadPoolExecutor(12) as threads:
        asking = [threads.submit(keep_asking, first) for first in range(12)]
        server.wait_for(lambda: counts["200"] >= 20, "load")
        server.send(signal.SIGTERM)
        assert server.wait_for_end() == 0
        for each in asking:
            each.result(PATIENCE_S)
        log = "".join(server.log)
    assert "Traceback" not in log
    assert "cut off" not in log
    assert counts.pop("200") >= 20
    # Late clients were rejected or could not connect. None got a 500 or half an answer.
    assert sum(counts.values()) == 12
    assert set(counts) <= {"503", "ConnectError", "ReadError", "RemoteProtocolError"}, counts
