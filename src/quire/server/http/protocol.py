"""HTTP/1.1 connections: uvicorn's protocol, with limits on request heads and without upgrades; clients that leave.

The protocol overrides callbacks of asyncio and httptools, and reads nothing of uvicorn's state. A proxy in front does
the rest: half-closed connections, floods of refused bodies.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Coroutine
from typing import Any, TypeVar

from starlette.types import Receive
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from quire.server.errors import ApiError, error_body

MAX_HEAD_BYTES = 64 * 1024  #: of a request's line and headers; of trailers, too
HEAD_TIMEOUT_S = 20.0
WRITE_TIMEOUT_S = 60.0  #: a client that reads nothing for this long is cut off
_END_OF_HEAD = re.compile(rb"\r?\n\r?\n")
_UPGRADE = re.compile(rb"^upgrade:[^\n]*\n", re.IGNORECASE | re.MULTILINE)


class HttpProtocol(HttpToolsProtocol):
    """One connection. A head that is too large gets 431; one that is too slow ends the connection, as does a client
    that does not read its answer.

    Offers of another protocol are removed from the head: Java's HttpClient offers h2c with every request, and uvicorn
    would wait for a body that its parser leaves out.
    """

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._connection = transport
        self._head: bytearray | None = bytearray()  #: of the next request; None once it is complete
        self._num_unread = 0  #: bytes since the last complete head or piece of a body
        self._timer: asyncio.TimerHandle | None = None  #: runs while a head is incomplete
        self._write_timer: asyncio.TimerHandle | None = None  #: runs while an answer is unread
        self._start_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        self._stop_write_timer()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        self._watch_reader()
        super().pause_writing()

    def resume_writing(self) -> None:
        self._stop_write_timer()
        super().resume_writing()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._watch_reader()

    def _watch_reader(self, before: int | None = None) -> None:
        """End the connection if the client reads none of the written bytes until the next call."""
        self._stop_write_timer()
        unread = self._connection.get_write_buffer_size()
        if before is not None and unread >= before:
            self._connection.abort()
        elif unread:
            loop = asyncio.get_running_loop()
            self._write_timer = loop.call_later(WRITE_TIMEOUT_S, self._watch_reader, unread)

    def _stop_write_timer(self) -> None:
        if self._write_timer is not None:
            self._write_timer.cancel()
            self._write_timer = None

    def data_received(self, data: bytes) -> None:
        if self._head is not None:
            self._head += data
            end = _END_OF_HEAD.search(self._head, max(0, len(self._head) - len(data) - 3))
            if (end.end() if end is not None else len(self._head)) > MAX_HEAD_BYTES:
                self._refuse()
                return
            if end is None:
                self._start_timer()
                return
            head, rest = bytes(self._head[: end.start() + 1]), bytes(self._head[end.start() + 1 :])
            data, self._head, self._num_unread = _UPGRADE.sub(b"", head) + rest, None, 0
            if self._timer is not None:
                self._stop_timer()
        self._num_unread += len(data)
        super().data_received(data)
        if self._num_unread > MAX_HEAD_BYTES:  # trailers, or a pipelined head
            self._connection.close()

    def on_headers_complete(self) -> None:
        self._head, self._num_unread = None, 0
        if self._write_timer is not None:  # its answer may leave more unread bytes than there are now
            self._watch_reader()
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._num_unread = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._head, self._num_unread = bytearray(), 0
        super().on_message_complete()

    def _refuse(self) -> None:
        message = f"the headers are larger than {MAX_HEAD_BYTES:,} bytes; send less"
        body = json.dumps(error_body(ApiError(431, message, code="headers_too_large"))).encode()
        self._connection.write(
            b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-type: application/json\r\nconnection: close\r\n"
            b"content-length: %d\r\n\r\n%b" % (len(body), body)
        )
        self._connection.close()

    def _start_timer(self) -> None:
        if self._timer is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(HEAD_TIMEOUT_S, self._connection.close)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


T = TypeVar("T")


class ClientDisconnected(Exception):
    """The client disconnected before its answer was complete."""


async def run_while_connected(receive: Receive, work: Coroutine[Any, Any, T]) -> T:
    """Return the result of `work`, or cancel it and raise `ClientDisconnected` if the client leaves first. `receive` is
    that of a request whose body has been read."""

    async def wait_for_disconnect() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass

    working, leaving = asyncio.ensure_future(work), asyncio.ensure_future(wait_for_disconnect())
    try:
        await asyncio.wait({working, leaving}, return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise ClientDisconnected
        return working.result()
    finally:
        working.cancel()
        leaving.cancel()
        await asyncio.gather(working, leaving, return_exceptions=True)
