"""HTTP on the wire: invalid requests, endless headers, other protocols, unread bodies."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import pytest
import uvicorn
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from quire.server.errors import ApiError, ErrorResponse
from quire.server.http.protocol import MAX_HEAD_BYTES, HttpProtocol
from server.asgi import tell_state

TIMEOUT_S = 60
LARGE = 20_000_000  # bytes of an answer, more than the kernel holds for a client
Connect = Callable[[], Awaitable[tuple[asyncio.StreamReader, asyncio.StreamWriter]]]


async def application(scope: Scope, receive: Receive, send: Send) -> None:
    if scope["type"] != "http":
        return
    if scope["path"] == "/large":
        await Response(b"x" * LARGE)(scope, receive, send)
    elif scope["path"] == "/refuses":
        await ErrorResponse(ApiError(413, "unread"))(scope, receive, send)
    else:
        await tell_state(scope, receive, send)


def run(scene: Callable[[Connect], Awaitable[None]]) -> None:
    """Run a scene with a server to connect to."""

    async def play() -> None:
        config = uvicorn.Config(application, http=HttpProtocol, ws="none", log_config=None, port=0, lifespan="off")
        server = uvicorn.Server(config)
        serving = asyncio.create_task(server.serve())
        while not server.started:
            await asyncio.sleep(0.01)
        host, port = server.servers[0].sockets[0].getsockname()
        await scene(lambda: asyncio.open_connection(host, port))
        server.should_exit = True
        await serving

    asyncio.run(asyncio.wait_for(play(), TIMEOUT_S))


async def answer_of(reader: asyncio.StreamReader) -> tuple[int, Any]:
    """Return the status and the JSON of the next answer."""
    head = (await reader.readuntil(b"\r\n\r\n")).lower()
    length = int(head.partition(b"content-length: ")[2].split()[0])
    return int(head.split()[1]), json.loads(await reader.readexactly(length))


@pytest.mark.parametrize(
    "raw",
    [
        b"hello\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost x\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: many\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\nrubbish\r\n\r\n",
    ],
)
def test_what_is_no_http_gets_400_and_the_end(raw: bytes) -> None:
    async def scene(connect: Connect) -> None:
        reader, writer = await connect()
        writer.write(raw)
        assert b" 400 " in await reader.read()

    run(scene)


BEGIN = b"POST / HTTP/1.1\r\nHost: x\r\n"


@pytest.mark.parametrize(
    ("first", "more"),
    [
        (BEGIN, b"X-Flood: 1\r\n" * 100),
        (BEGIN + b"X-Flood: ", b"x" * 1000),
        (b"GET /", b"x" * 1000),
        (BEGIN + b"Transfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n", b"X-Flood: 1\r\n" * 100),
        (BEGIN + b"X-Flood: " + b"x" * MAX_HEAD_BYTES + b"\r\n\r\n", b""),
    ],
    ids=["many", "one without end", "the line", "trailers", "in one piece"],
)
def test_a_head_without_end_gets_431_or_the_end(first: bytes, more: bytes) -> None:
    async def scene(connect: Connect) -> None:
        reader, writer = await connect()
        writer.write(first)
        sent = 0
        while more and not reader.at_eof() and not writer.is_closing():
            assert (sent := sent + len(more)) < 20 * MAX_HEAD_BYTES, "it is taken"
            writer.write(more)
            await asyncio.sleep(0.001)
        try:
            received = await reader.read()
        except ConnectionError:
            received = b""
        assert not received or b" 431 " in received.partition(b"\r\n")[0]
        other, writer = await connect()
        writer.write(b"GET / HTTP/1.1\r\nHost: x\r\nX-Long: " + b"x" * (MAX_HEAD_BYTES - 1000) + b"\r\n\r\n")
        assert (await answer_of(other))[0] == 200

    run(scene)


@pytest.mark.parametrize(
    "framing", ["Content-Length: 5\r\n\r\nhello", "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"]
)
def test_an_offer_of_http_2_is_not_taken_up_and_the_request_is_answered(framing: str) -> None:
    async def scene(connect: Connect) -> None:
        reader, writer = await connect()
        offer = "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAA\r\n"
        for _ in range(2):
            request = f"POST / HTTP/1.1\r\nHost: x\r\n{offer}{framing}".encode()
            writer.write(request)
            assert await answer_of(reader) == (200, {"state": {}, "size": 5})
            for byte in request:
                writer.write(bytes([byte]))
                await writer.drain()
            assert await answer_of(reader) == (200, {"state": {}, "size": 5})
            writer.write(f"GET / HTTP/1.1\r\nHost: x\r\n{offer}\r\n".encode())
            assert await answer_of(reader) == (200, {"state": {}, "size": 0})

    run(scene)


def test_a_body_whose_request_is_refused_is_dropped_and_the_connection_goes_on() -> None:
    async def scene(connect: Connect) -> None:
        reader, writer = await connect()
        writer.write(b"POST /refuses HTTP/1.1\r\nHost: x\r\nContent-Length: 5000000\r\n\r\n")
        assert (await answer_of(reader))[0] == 413
        writer.write(b"x" * 5_000_000 + b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        assert (await answer_of(reader))[0] == 200

    run(scene)


def test_a_client_that_begins_a_head_and_does_not_finish_it_is_hung_up_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("quire.server.http.protocol.HEAD_TIMEOUT_S", 0.2)

    async def scene(connect: Connect) -> None:
        silent, _ = await connect()
        slow, writer = await connect()
        writer.write(b"GET / HTTP/1.1\r\nHost:")
        idle, kept = await connect()
        kept.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        assert (await answer_of(idle))[0] == 200
        assert await silent.read() == b""
        assert await slow.read() == b""
        kept.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        assert (await answer_of(idle))[0] == 200, "a connection between two requests may be idle"
        kept.write(b"GET / HTTP/1.1\r\n")
        assert await idle.read() == b""

    run(scene)


def test_a_client_that_reads_nothing_is_cut_off_and_a_slow_one_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("quire.server.http.protocol.WRITE_TIMEOUT_S", 1.0)

    async def scene(connect: Connect) -> None:
        idle, silent = await connect()
        slow, writer = await connect()
        for each in (silent, writer):
            each.write(b"GET /large HTTP/1.1\r\nHost: x\r\n\r\n")
        num_read = 0
        while num_read < LARGE:
            await asyncio.sleep(0.02)
            num_read += len(await slow.read(1 << 17))
        await asyncio.sleep(2.0)
        with suppress(OSError):  # what the kernel has, and then a reset
            assert len(await idle.read()) < LARGE

    run(scene)
