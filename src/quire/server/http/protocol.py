"""HTTP/1.1 on a connection: uvicorn's fast parser, with bounds that it lacks and errors in the form of all others.

It stands on uvicorn's internals: `tests/server/http/test_uvicorn.py` holds them, and `pyproject.toml` caps the version.
"""

from __future__ import annotations

import asyncio
import json

import httptools
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from quire.server.errors import ApiError, error_body

MAX_HEAD_BYTES = 64 * 1024  #: of a request's line and headers; of trailers, too
MAX_DROPPED_BYTES = 64 * 1024**2  #: of a body whose request is answered already
BODY_WRITER = "quire.body_writer"  #: among the extensions of an ASGI scope: its `BodyWriter`
_LEFT_AFTER_S = 0.25  # an answer that takes less is simply written
_LEFT_AGAIN_S = 0.1  # doubled each time
_LEFT_SELDOM_S = 15.0
_READ_PAUSE_S = 0.001  # between two pieces of a large body: some 150 MB a second, of which running streams see little
_DROP_PAUSE_S = 0.01  # between two pieces of a dropped body, so that it takes next to nothing from other requests


class HttpProtocol(HttpToolsProtocol):
    """One connection of uvicorn's.

    A head that is too large gets 431 and bytes that are no HTTP get 400, where no answer is under way; the connection
    ends. The rest of a body whose request is answered is read slowly and dropped, so that a client that first sends
    all of it sees its answer. An offer of another protocol (h2c, which some clients make with every request) is not
    taken up.

    A client that has sent a whole request and then closes its side gets its answer (not with TLS, which has no
    half-closed connections). That it has closed both sides looks the same until something is written: a stream's next
    event, or 100 Continue, which every client of HTTP/1.1 skips, before an answer that takes longer than
    `_LEFT_AFTER_S`.
    """

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.flow = _UnhurriedFlow(transport, self.loop)
        self._num_head_bytes = 0  # since the parser last came to a whole head or to a body
        self._num_dropped = 0

    def eof_received(self) -> bool:  # type: ignore[override]
        """True keeps the connection open for the answer."""
        cycle = self.cycle
        if self.scheme == "https" or cycle is None or cycle.response_complete or cycle.more_body:
            return False
        cycle.keep_alive = False
        self.loop.call_later(_LEFT_AFTER_S, self._look_whether_it_left, _LEFT_AGAIN_S)
        return True

    def _look_whether_it_left(self, again_s: float) -> None:
        """The first bytes that reach a client that has left make its system say so, and the next ones fail."""
        if self.transport.is_closing() or self.cycle.response_complete:
            return
        if self.scope["http_version"] == "1.1" and not self._has_begun():
            self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        self.loop.call_later(again_s, self._look_whether_it_left, min(2 * again_s, _LEFT_SELDOM_S))

    def _has_begun(self) -> bool:
        """Whether an answer is on its way, be it to a request before the last one."""
        return bool(self.pipeline) or self.cycle.response_started

    def data_received(self, data: bytes) -> None:
        self._unset_keepalive_if_required()
        self._num_head_bytes += len(data)
        try:
            self._feed(data)
        except httptools.HttpParserError as error:
            self._refuse(is_too_large=isinstance(error.__context__, _HeadTooLarge))
            return
        if self._num_head_bytes > MAX_HEAD_BYTES:
            self._refuse(is_too_large=True)

    def _feed(self, data: bytes) -> None:
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            # The parser takes what follows the head for another protocol; it reads it again without the offer.
            lines = [b"%s %s HTTP/1.1" % (self.parser.get_method(), self.url)]
            lines += [b"%s: %s" % header for header in self.headers if header[0] != b"upgrade"]
            self.parser = httptools.HttpRequestParser(self)
            self.parser.set_dangerous_leniencies(lenient_data_after_close=True)  # as uvicorn does
            self._feed(b"\r\n".join(lines) + b"\r\n\r\n" + data[upgrade.args[0] :])

    def on_headers_complete(self) -> None:
        if len(self.url) + sum(len(name) + len(value) for name, value in self.headers) > MAX_HEAD_BYTES:
            raise _HeadTooLarge  # it came in one piece
        self._num_head_bytes = 0
        if self.parser.get_method() == b"CONNECT":
            raise ValueError("this is no proxy")
        if not self.parser.should_upgrade():
            super().on_headers_complete()
            self.scope["extensions"] = {BODY_WRITER: BodyWriter(self.cycle)}  # type: ignore[dict-item]

    def on_body(self, body: bytes) -> None:
        self._num_head_bytes = 0
        if self.cycle.response_complete:
            self._drop(len(body))
        else:
            super().on_body(body)

    def on_message_complete(self) -> None:
        self._num_head_bytes = 0
        if self.parser.should_upgrade():
            return
        super().on_message_complete()
        if self.cycle.response_complete and not self.pipeline and not self.transport.is_closing():
            self.timeout_keep_alive_task = self.loop.call_later(
                self.timeout_keep_alive, self.timeout_keep_alive_handler
            )

    def _drop(self, num_bytes: int) -> None:
        self._num_dropped += num_bytes
        if self._num_dropped > MAX_DROPPED_BYTES:
            self.transport.close()
        elif not self.flow.read_paused:
            self.flow.pause_reading()
            self.loop.call_later(_DROP_PAUSE_S, self.flow.resume_reading)

    def _refuse(self, *, is_too_large: bool) -> None:
        if self.transport.is_closing():
            return
        if self.cycle is None or self.cycle.response_complete:  # else no other answer may stand within that one
            error = ApiError(400, "this is not an HTTP/1.1 request", code="invalid_http")
            if is_too_large:
                message = f"the headers are larger than {MAX_HEAD_BYTES:,} bytes; send less"
                error = ApiError(431, message, code="headers_too_large")
            body = json.dumps(error_body(error)).encode()
            head = b"content-type: application/json\r\nconnection: close\r\ncontent-length: %d\r\n\r\n" % len(body)
            self.transport.write(STATUS_LINE[error.status] + head + body)
        self.transport.close()


class BodyWriter:
    """Writes pieces of an answer's body at once, past ASGI's `send` and the middleware around it.

    The answer's start and its last piece still go by `send`.
    """

    def __init__(self, cycle: RequestResponseCycle) -> None:
        self._cycle = cycle

    @property
    def is_free(self) -> bool:
        """Whether the answer has begun, its client is there, and the connection takes more."""
        cycle = self._cycle
        return bool(cycle.chunked_encoding) and not (cycle.flow.write_paused or cycle.disconnected)

    def write(self, piece: bytes) -> None:
        """Write some bytes, at least one."""
        self._cycle.transport.write(b"%x\r\n%b\r\n" % (len(piece), piece))


class _UnhurriedFlow(FlowControl):
    """Resumes reading after a large piece a little later than it could.

    A client that sends a large body can wait; the engine, whose cores reading would take, cannot.
    """

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(transport)
        self._loop = loop
        self._is_due = False

    def resume_reading(self) -> None:
        if self.read_paused and not self._is_due:
            self._is_due = True
            self._loop.call_later(_READ_PAUSE_S, self._resume)

    def _resume(self) -> None:
        self._is_due = False
        if not self._transport.is_closing():
            super().resume_reading()


class _HeadTooLarge(Exception):
    pass
