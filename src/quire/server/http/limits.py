"""Limits for clients: size of a body, time to send it, concurrent requests of a key.

The length of the queue is the engine's limit.
"""

from __future__ import annotations

import asyncio
from collections import Counter

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from quire.server.errors import RETRY_SOON, ApiError, error_response
from quire.server.http.auth import key_id_of
from quire.server.http.body import LARGE_BODY_BYTES
from quire.server.settings import ServerSettings

BODY_TIMEOUT_S = 60.0
MAX_HELD_BODIES = 32  #: large bodies of maximum size in memory at once; small ones are not counted
_READ_PAUSE_S = 0.001  # between two pieces of a large body: running streams need the cores


class LimitBody:
    """Reads the whole body first, and rejects one that is too large or too slow. (ASGI middleware)

    An announced length is checked before a byte is read; a chunked body is read up to the limit. uvicorn reads and
    drops the rest of a rejected body, so that its client sees the answer. The total size of large bodies is limited,
    too: they stay in memory until their requests end.
    """

    def __init__(self, app: ASGIApp, settings: ServerSettings, timeout_s: float = BODY_TIMEOUT_S) -> None:
        self.app = app
        self.max_bytes = settings.max_body_bytes
        self.max_held = MAX_HELD_BODIES * max(settings.max_body_bytes, LARGE_BODY_BYTES)
        self.held = 0  #: bytes of large bodies in memory
        self.timeout_s = timeout_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        body, held = bytearray(), 0
        try:
            if int(dict(scope["headers"]).get(b"content-length", b"0")) > self.max_bytes:
                raise self._too_large()
            async with asyncio.timeout(self.timeout_s):
                is_complete = await self._read(body, receive)
        except ApiError as error:
            await error_response(error)(scope, receive, send)
        except TimeoutError:
            message = f"the body did not arrive within {self.timeout_s:g} s"
            await error_response(ApiError(408, message, code="request_timeout"))(scope, receive, send)
        else:
            if is_complete:
                held = _held(body)
                messages: list[Message] = [{"type": "http.request", "body": bytes(body), "more_body": False}]
                body.clear()

                async def receive_again() -> Message:
                    return messages.pop() if messages else await receive()

                await self.app(scope, receive_again, send)
        finally:
            self.held -= held or _held(body)

    async def _read(self, body: bytearray, receive: Receive) -> bool:
        """Read the whole body. Returns False if the client left before its end."""
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                return False
            self.held -= _held(body)
            body += message.get("body", b"")
            self.held += (held := _held(body))
            if len(body) > self.max_bytes:
                raise self._too_large()
            if held and self.held > self.max_held:
                what = f"large bodies of {self.max_held:,} bytes together are being served; try again soon"
                raise ApiError(503, what, code="too_many_large_bodies", headers=RETRY_SOON)
            if not message.get("more_body", False):
                return True
            if held:
                await asyncio.sleep(_READ_PAUSE_S)

    def _too_large(self) -> ApiError:
        return ApiError(
            413,
            f"the body is larger than {self.max_bytes:,} bytes, which is this server's limit; send less, or start the "
            "server with a larger --max-body-bytes",
            code="body_too_large",
        )


def _held(body: bytearray) -> int:
    return len(body) if len(body) >= LARGE_BODY_BYTES else 0


class Concurrency:
    """Rejects a key's POST while `limit` others of the key run, streams included. Needs `Authenticate` before it.
    (ASGI middleware)"""

    def __init__(self, app: ASGIApp, limit: int) -> None:
        self.app = app
        self.limit = limit
        self.running: Counter[str] = Counter()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "POST":
            await self.app(scope, receive, send)
            return
        key_id = key_id_of(scope)
        if self.running[key_id] >= self.limit:
            message = f"{self.limit} requests of this API key are running, which is its limit; wait for one to end"
            error = ApiError(429, message, code="rate_limit_exceeded", headers=RETRY_SOON)
            await error_response(error)(scope, receive, send)
            return
        self.running[key_id] += 1
        try:
            await self.app(scope, receive, send)
        finally:
            self.running[key_id] -= 1
            if not self.running[key_id]:
                del self.running[key_id]
