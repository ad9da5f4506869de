"""Misbehaving clients, over plain sockets."""

from __future__ import annotations

import json
import socket
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import httpx

PATIENCE_S = 100


class Stream:
    """A streamed completion, read in another thread. `waits` waits for the first event."""

    def __init__(self, url: str, threads: ThreadPoolExecutor, body: dict[str, Any], *, waits: bool = True) -> None:
        self.has_begun = threading.Event()
        self._leaves = threading.Event()
        self._result: Future[list[Any]] = threads.submit(self._read, url, body)
        if waits:
            assert self.has_begun.wait(PATIENCE_S)

    def _read(self, url: str, body: dict[str, Any]) -> list[Any]:
        events: list[Any] = []
        request = httpx.stream("POST", f"{url}/v1/completions", json={**body, "stream": True}, timeout=PATIENCE_S)
        with request as answer:
            assert answer.status_code == 200, answer.read()
            for line in answer.iter_lines():
                if line.startswith("data: "):
                    data = line.removeprefix("data: ")
                    events.append(data if data == "[DONE]" else json.loads(data))
                    self.has_begun.set()
                if self._leaves.is_set():
                    break
        return events

    def leave(self) -> None:
        self._leaves.set()

    def events(self) -> list[Any]:
        """Return the data of all events; the last one is [DONE]."""
        return self._result.result(PATIENCE_S)

    def text(self) -> str:
        events = self.events()
        assert events[-1] == "[DONE]"
        assert not any("error" in event for event in events[:-1]), events[-2]
        return "".join(choice["text"] for event in events[:-1] for choice in event["choices"])


def connect(url: str) -> socket.socket:
    host, port = url.removeprefix("http://").split(":")
    return socket.create_connection((host, int(port)), timeout=PATIENCE_S)


def request_bytes(path: str, body: bytes, *, length: int | None = None, **headers: str) -> bytes:
    """Return a POST's bytes, with any claimed length."""
    fields = {"Host": "x", "Content-Type": "application/json", "Content-Length": str(length or len(body)), **headers}
    head = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
    return f"POST {path} HTTP/1.1\r\n{head}\r\n".encode() + body
