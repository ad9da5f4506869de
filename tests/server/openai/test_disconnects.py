"""A disconnected client's request ends, streamed or not, and its blocks are freed."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from quire.outputs import RequestOutput
from serving import MODEL, PATIENCE_S, SMALL, RunningServer, make_model, running, wait_until

LONG: dict[str, Any] = {"model": MODEL, "prompt": "Hello", "max_tokens": 2000, "ignore_eos": True}
LONG_CHAT: dict[str, Any] = {"model": MODEL, "messages": [{"role": "user", "content": "Hello"}], "ignore_eos": True}
BOTH = pytest.mark.parametrize(("path", "body"), [("/v1/completions", LONG), ("/v1/chat/completions", LONG_CHAT)])


class Ended(list[RequestOutput]):
    """Ended requests of the engine, and how they ended."""

    def wait_for(self, count: int) -> list[str | None]:
        wait_until(lambda: len(self) >= count)
        return [output.outputs[0].finish_reason for output in self]


@pytest.fixture
def ended() -> Ended:
    return Ended()


@pytest.fixture
def server(ended: Ended) -> Iterator[RunningServer]:
    config = replace(SMALL, num_kv_blocks=128, max_model_len=2048, max_num_seqs=4)
    with running(make_model(config, on_finished=ended.append)) as server:
        yield server
        server.wait_until_idle()


def send(server: RunningServer, path: str, body: dict[str, Any], *, length: int | None = None) -> socket.socket:
    """Send a request on its own connection, which closes to disconnect."""
    host, port = server.url.removeprefix("http://").split(":")
    data = json.dumps(body)
    head = f"Host: x\r\nContent-Type: application/json\r\nContent-Length: {length or len(data)}"
    client = socket.create_connection((host, int(port)), timeout=PATIENCE_S)
    client.sendall(f"POST {path} HTTP/1.1\r\n{head}\r\n\r\n{data}".encode())
    return client


def leave(server: RunningServer, path: str, body: dict[str, Any], once: Callable[[], bool]) -> None:
    with send(server, path, body):
        wait_until(once)


@BOTH
def test_a_client_that_leaves_its_stream_ends_it(
    server: RunningServer, ended: Ended, path: str, body: dict[str, Any]
) -> None:
    with send(server, path, {**body, "stream": True}) as client:
        assert client.recv(100).startswith(b"HTTP/1.1 200")
    assert ended.wait_for(1) == ["abort"]
    server.wait_until_idle()


@BOTH
def test_a_client_that_leaves_before_a_whole_answer_ends_it(
    server: RunningServer, ended: Ended, path: str, body: dict[str, Any]
) -> None:
    leave(server, path, body, lambda: server.engine.scheduler.kv.pool.num_used > 0)
    assert ended.wait_for(1) == ["abort"]
    server.wait_until_idle()


@pytest.mark.parametrize("stream", [True, False])
def test_a_client_that_leaves_ends_all_its_prompts(server: RunningServer, ended: Ended, stream: bool) -> None:
    body = {**LONG, "prompt": ["a", "b", "c", "d", "e"], "stream": stream}  # the last one waits
    leave(server, "/v1/completions", body, lambda: len(server.engine.scheduler.queue.requests) == 5)
    assert ended.wait_for(5) == ["abort"] * 5


@pytest.mark.parametrize("stream", [True, False])
def test_a_client_that_leaves_while_it_waits_is_forgotten(server: RunningServer, ended: Ended, stream: bool) -> None:
    with send(server, "/v1/completions", {**LONG, "n": 4}):
        wait_until(lambda: len(server.engine.scheduler.queue.running) == 1)
        leave(
            server,
            "/v1/completions",
            {**LONG, "stream": stream},
            lambda: len(server.engine.scheduler.queue.waiting) == 1,
        )
        assert ended.wait_for(1) == ["abort"]
        assert ended[0].outputs[0].token_ids == []
    assert ended.wait_for(2) == ["abort", "abort"]


def test_a_client_that_leaves_half_a_body_disturbs_no_other(server: RunningServer, ended: Ended) -> None:
    with send(server, "/v1/completions", LONG, length=1000):
        assert server.complete(max_tokens=2).status_code == 200
    assert server.complete(max_tokens=2).status_code == 200
    assert ended.wait_for(2) == ["length", "length"]


def test_others_do_not_notice(server: RunningServer) -> None:
    asked = {"seed": 7, "temperature": 1, "max_tokens": 40, "ignore_eos": True}
    alone = server.complete(**asked).json()["choices"][0]["text"]
    texts: list[str] = []
    asking = threading.Thread(target=lambda: texts.append(server.complete(**asked).json()["choices"][0]["text"]))
    asking.start()
    for _ in range(6):
        leave(server, "/v1/completions", LONG, server.engine.has_unfinished)
    asking.join()
    assert texts == [alone]
