"""Clients that are killed, do not read, or send garbage; others do not notice."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import httpx
import pytest

from server.faults.clients import PATIENCE_S, Stream, connect, request_bytes
from server.tiny_server import TinyServer, completion, tiny_server
from serving import MODEL, SMALL, RunningServer, make_model, running, wait_until

ENDLESS: dict[str, Any] = {"model": MODEL, "prompt": "Hello", "max_tokens": 2000, "ignore_eos": True}
GREEDY: dict[str, Any] = {"model": MODEL, "prompt": [7, 8, 9], "max_tokens": 40, "ignore_eos": True, "temperature": 0}


@pytest.fixture(scope="module")
def server() -> Iterator[RunningServer]:
    with running(make_model(replace(SMALL, num_kv_blocks=256, max_model_len=2048))) as server:
        yield server


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(8) as threads:
        yield threads


# -- clients that go away, or do not read ------------------------------------------------------------------------------

STREAMING = """
import socket, sys, time
clients = []
for _ in range(4):
    for body in sys.argv[3:]:
        client = socket.create_connection((sys.argv[1], int(sys.argv[2])))
        client.sendall(body.encode())
        clients.append(client)
for client in clients[::2]:
    assert client.recv(1000).startswith(b"HTTP/1.1 200")
print("all stream", flush=True)
time.sleep(600)
"""


def test_a_killed_client_leaves_nothing_behind_and_disturbs_no_other(server: RunningServer) -> None:
    expected = server.complete(**GREEDY).json()["choices"][0]["text"]
    bodies = [json.dumps({**ENDLESS, "stream": stream}).encode() for stream in (True, False)]
    requests = [request_bytes("/v1/completions", body).decode() for body in bodies]
    host, port = server.url.removeprefix("http://").split(":")
    client = subprocess.Popen(
        [sys.executable, "-c", STREAMING, host, port, *requests], stdout=subprocess.PIPE, text=True
    )
    assert client.stdout is not None
    assert client.stdout.readline() == "all stream\n"
    wait_until(lambda: len(server.engine.scheduler.queue.requests) == 8)
    with ThreadPoolExecutor(1) as threads:
        beside = Stream(server.url, threads, GREEDY)
        client.send_signal(signal.SIGKILL)
        assert client.wait() == -signal.SIGKILL
        assert beside.text() == expected
    server.wait_until_idle()


def test_a_stalled_reader_delays_no_other_and_gets_everything_in_the_end() -> None:
    body = {**ENDLESS, "max_tokens": 250, "logprobs": 100, "stream": True}  # more than the sockets' buffers hold
    config = replace(SMALL, num_kv_blocks=256, max_model_len=2048)
    with running(make_model(config), send_buffer=4096) as server, socket.socket() as slow:
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        slow.settimeout(PATIENCE_S)
        host, port = server.url.removeprefix("http://").split(":")
        slow.connect((host, int(port)))
        slow.sendall(request_bytes("/v1/completions", json.dumps(body).encode(), Connection="close"))
        wait_until(server.engine.has_unfinished)
        assert server.complete(**GREEDY).status_code == 200
        server.wait_until_idle()  # its answer is complete and its blocks are free, although nothing was read
        assert server.complete(**GREEDY).status_code == 200
        received = bytearray()
        while piece := slow.recv(1 << 20):
            received += piece
    data = _unchunked(bytes(received)).decode()
    events = [line.removeprefix("data: ") for line in data.splitlines() if line.startswith("data: ")]
    assert events.pop() == "[DONE]"
    choices = [json.loads(event)["choices"][0] for event in events]
    assert sum(len(choice["logprobs"]["tokens"]) for choice in choices if choice["logprobs"]) == 250
    assert len(choices) < 125, "what it was too slow for came in fewer and larger events"


def _unchunked(answer: bytes) -> bytes:
    body = answer.partition(b"\r\n\r\n")[2]
    data = bytearray()
    while body:
        size, _, body = body.partition(b"\r\n")
        length = int(size, 16)
        data += body[:length]
        body = body[length + 2 :]
    return bytes(data)


# -- bodies ------------------------------------------------------------------------------------------------------------


def test_50_mb_are_refused_before_they_are_sent(server: RunningServer) -> None:
    with connect(server.url) as client:
        client.sendall(request_bytes("/v1/completions", b"{", length=50_000_000))
        assert client.recv(1000).startswith(b"HTTP/1.1 413")


def test_while_50_mb_arrive_others_do_not_notice(server: RunningServer, threads: ThreadPoolExecutor) -> None:
    expected = server.complete(**GREEDY).json()["choices"][0]["text"]
    beside = Stream(server.url, threads, GREEDY)
    large = threads.submit(server.send, "POST", "/v1/completions", content=_chunks(50))  # without a content length
    assert beside.text() == expected
    answer = large.result(PATIENCE_S)
    assert answer.status_code == 413
    assert answer.json()["error"]["code"] == "body_too_large"
    server.wait_until_idle()


def _chunks(megabytes: int) -> Iterator[bytes]:
    for _ in range(megabytes):
        yield b" " * 1_000_000


LARGE = b" " * 300_000  # parsed in another process


@pytest.fixture(scope="module")
def client(server: RunningServer) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=server.url, timeout=PATIENCE_S) as client:
        yield client


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"", "invalid_json"),
        (b"{", "invalid_json"),
        (b"hello", "invalid_json"),
        (b'{"prompt": "x"}}', "invalid_json"),
        (b'{"prompt": "\xff"}', "invalid_json"),
        (b'{"prompt": "\xc3"}', "invalid_json"),
        (b'{"prompt": "\\ud800"}', "invalid_json"),
        ('{"prompt": "x"}'.encode("utf-16"), "invalid_json"),
        (b"[" * 100_000, "invalid_json"),
        (b"[]", "invalid_type"),
        (b"null", "invalid_type"),
        (b'{"prompt": "x", "temperature": NaN}', "invalid_value"),
        (b'{"prompt": "x", "max_tokens": 1e999}', "invalid_value"),
        (b'{"prompt": "x", "\xc3\xa9": 1}', "unknown_parameter"),
    ],
)
def test_what_is_not_a_request_gets_400_and_a_reason(client: httpx.Client, body: bytes, code: str) -> None:
    for padding in (b"", LARGE):
        answer = client.post("/v1/completions", content=padding + body, headers={"Content-Type": "application/json"})
        assert answer.status_code == 400, answer.text
        error = answer.json()["error"]
        assert error["type"] == "invalid_request_error"
        assert error["code"] == code
        assert error["message"]


@pytest.mark.parametrize(
    ("raw", "status"),
    [
        (b"GET /\xff\xfe HTTP/1.1\r\nHost: localhost\r\n\r\n", {b"400", b"404"}),
        (b"GET /%ff%fe HTTP/1.1\r\nHost: localhost\r\n\r\n", {b"404"}),
        (b"GET /v1/models/%ff HTTP/1.1\r\nHost: localhost\r\n\r\n", {b"404"}),
        (b"GET /health?\xff=%ff HTTP/1.1\r\nHost: localhost\r\n\r\n", {b"200", b"400"}),
        (b"GET /health HTTP/1.1\r\nHost: localhost\r\nX-Request-Id: \xff\xfe\r\n\r\n", {b"200"}),
        (b"GET /health HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer \xff\xfe\r\n\r\n", {b"200"}),
        (b"\xff\xfe\xfd\r\n\r\n", {b"400"}),
        (b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: many\r\n\r\n", {b"400"}),
        (b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: -5\r\n\r\n", {b"400"}),
        (
            b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
            {b"400", b""},
        ),
    ],
)
def test_bytes_that_are_no_text_anywhere_in_a_request_are_no_500(
    tiny: TinyServer, raw: bytes, status: set[bytes]
) -> None:
    with connect(tiny.url) as client:
        client.sendall(raw)
        assert client.recv(1000).partition(b" ")[2][:3] in status
    assert tiny.complete(max_tokens=1).status_code == 200
    assert "Traceback" not in "".join(tiny.log)


# -- headers -----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def tiny() -> Iterator[TinyServer]:
    """The process as `quire serve` sets it up, parser included."""
    with tiny_server() as server:
        yield server


@pytest.mark.parametrize(
    "header",
    [
        lambda number: b"X-Flood-%d: %s\r\n" % (number, b"x" * 100),
        lambda number: b"X-Flood: 1\r\n",
        lambda number: (b"X-Flood: " if number == 0 else b"") + b"x" * 1000,
    ],
    ids=["many", "the same", "one without end"],
)
def test_floods_of_headers_are_cut_off_and_others_do_not_notice(
    tiny: TinyServer, threads: ThreadPoolExecutor, header: Callable[[int], bytes]
) -> None:
    greedy = completion(prompt=[7, 8, 9], max_tokens=60, temperature=0)
    expected = tiny.complete(**greedy).json()["choices"][0]["text"]
    beside = Stream(tiny.url, threads, greedy)
    floods = [threads.submit(_flood, tiny.url, header) for _ in range(4)]
    answers = [flood.result(PATIENCE_S) for flood in floods]
    assert set(answers) <= {b"HTTP/1.1 431", b""}, "it says so, or just hangs up"
    assert beside.text() == expected


def _flood(url: str, header: Callable[[int], bytes]) -> bytes:
    with connect(url) as client:
        try:
            client.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n")
            for number in range(100_000):
                client.sendall(header(number))
        except OSError:  # it disconnected
            pass
        else:
            pytest.fail("10 MB of headers were taken")
        try:
            return client.recv(12)
        except OSError:
            return b""
