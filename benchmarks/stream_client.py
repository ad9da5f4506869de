"""Low-overhead load client: records raw chunks with timestamps and parses them afterwards.

For measurements in which client and server share processors. Supports HTTP/1.1 as far as streams need it.
"""

from __future__ import annotations

import json
import selectors
import socket
import time
from bisect import bisect_left
from collections.abc import Callable
from itertools import accumulate, pairwise
from urllib.parse import urlsplit

from quire.client.sse import DONE, EventReader

_PIECE = 1 << 18
_LAST_CHUNK = b"0\r\n\r\n"


class Stream:
    """One request and its response."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self.pieces: list[bytes] = []
        self.piece_s: list[float] = []  #: when each came
        self.is_begun = False  #: an event is there
        self.is_ended = False

    def take(self, piece: bytes, now: float) -> None:
        self.pieces.append(piece)
        self.piece_s.append(now)
        self.is_begun = self.is_begun or b"data: " in piece
        self.is_ended = not piece or piece.endswith(_LAST_CHUNK)

    def events(self, *, is_cut: bool = False) -> list[tuple[float, str]]:
        """Time and data of each event.

        Args:
            is_cut: the stream was left before its end.

        Raises:
            RuntimeError: the response is no stream, or incomplete.
        """
        raw = b"".join(self.pieces)
        head, _, body = raw.partition(b"\r\n\r\n")
        if b" 200 " not in head[:16]:
            raise RuntimeError(f"the server refused a stream: {raw[:500].decode(errors='replace')}")
        ends = list(accumulate(map(len, self.pieces)))
        found: list[tuple[float, str]] = []
        reader, at = EventReader(), 0
        while at < len(body):  # HTTP's chunks: a length in hexadecimal digits, then that many bytes
            line_end = body.find(b"\r\n", at)
            begin = line_end + 2
            end = begin + int(body[at:line_end], 16) if line_end >= 0 else len(body) + 1
            if is_cut and end > len(body):
                return found
            came_s = self.piece_s[bisect_left(ends, len(raw) - len(body) + end)]
            found += [(came_s, data) for data in reader.feed(body[begin:end])]
            at = end + 2
        if not is_cut and (not found or found[-1][1] != DONE):
            raise RuntimeError("a stream ended before its answer did")
        return [event for event in found if event[1] != DONE]

    def token_s(self, *, is_cut: bool = False) -> list[float]:
        """Time of each token, for requests with `return_token_ids`."""
        times = []
        for came_s, data in self.events(is_cut=is_cut):
            for choice in json.loads(data)["choices"]:
                times += [came_s] * len(choice["token_ids"])
        return times

    def gaps(self, since_s: float, until_s: float) -> list[tuple[float, float]]:
        """Begin and end of every gap between chunks inside a span of time."""
        times = [came_s for came_s, _ in self.events() if since_s <= came_s <= until_s]
        return list(pairwise(times))


class StreamClient:
    """Streams from one route (`url`, http only) of one server, read by one thread."""

    def __init__(self, url: str, timeout_s: float = 600.0) -> None:
        self._address, self._head = connect_to(url)
        self._timeout_s = timeout_s
        self._selector = selectors.DefaultSelector()
        self.streams: list[Stream] = []

    def open(self, body: bytes) -> Stream:
        """Send a request."""
        connection = socket.create_connection(self._address, timeout=self._timeout_s)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.sendall(self._head % len(body) + body)
        stream = Stream(connection)
        self.streams.append(stream)
        self._selector.register(connection, selectors.EVENT_READ, stream)
        return stream

    def read(self, until: Callable[[], bool]) -> None:
        """Read all streams until a condition holds.

        Raises:
            RuntimeError: a timeout, or the end of all streams.
        """
        deadline = time.monotonic() + self._timeout_s
        while not until():
            if not self._selector.get_map():
                raise RuntimeError("all streams have ended, and what was waited for has not come")
            ready = self._selector.select(max(0.0, deadline - time.monotonic()))
            now = time.monotonic()
            if now >= deadline:
                raise RuntimeError(f"the server did not answer within {self._timeout_s:g} s")
            for key, _ in ready:
                stream = key.data
                stream.take(stream.connection.recv(_PIECE), now)
                if stream.is_ended:
                    self._selector.unregister(stream.connection)
                    stream.connection.close()

    def close(self) -> None:
        for stream in self.streams:
            stream.connection.close()
        self._selector.close()


def connect_to(url: str) -> tuple[tuple[str, int], bytes]:
    """Address, and head of a POST with %d for the length of the body."""
    parts = urlsplit(url)
    host, port = parts.hostname or "", parts.port or 80
    head = f"POST {parts.path} HTTP/1.1\r\nHost: {host}:{port}\r\nContent-Type: application/json\r\n"
    return (host, port), head.encode() + b"Content-Length: %d\r\n\r\n"
