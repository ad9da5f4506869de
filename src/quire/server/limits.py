"""How much a client may ask for at once: bytes of a body, time to send it, requests of one key.

Knows sizes and counts; knows nothing about what is asked. How long a queue may be is the engine's to say.
"""

from __future__ import annotations

import asyncio
from collections import Counter

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from quire.server.auth import PUBLIC_KEY_ID
from quire.server.errors import ApiError, error_response
from quire.server.settings import ServerSettings

BODY_TIMEOUT_S = 60.0
RETRY_AFTER_S = 1  #: when a request of the same key may have ended


class LimitBody:
    """Reads a request's body before anything else sees it, and refuses one that is too large or comes too slowly.

    A length that is announced is refused before a byte is read; without one (chunked) the reading stops at the limit.
    What a refused client still sends is dropped by the HTTP server, and `lifecycle` hangs up on who never ends.
    (ASGI middleware)
    """

    def __init__(self, app: ASGIApp, settings: ServerSettings, timeout_s: float = BODY_TIMEOUT_S) -> None:
        self.app = app
        self.max_bytes = settings.max_body_bytes
        self.timeout_s = timeout_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        try:
            announced = next((value for name, value in scope["headers"] if name == b"content-length"), b"0")
            if int(announced) > self.max_bytes:
                raise self._too_large()
            async with asyncio.timeout(self.timeout_s):
                body = await self._read(receive)
        except ApiError as error:
            await error_response(error)(scope, receive, send)
            return
        except TimeoutError:
            message = f"the body did not arrive within {self.timeout_s:g} s"
            await error_response(ApiError(408, message, code="request_timeout"))(scope, receive, send)
            return
        if body is not None:
            await self.app(scope, _replay(body, receive), send)

    async def _read(self, receive: Receive) -> bytes | None:
        """The whole body; None where the client left before its end: there is nobody to answer."""
        chunks: list[bytes] = []
        size = 0
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                return None
            chunk = message.get("body", b"")
            size += len(chunk)
            if size > self.max_bytes:
                raise self._too_large()
            chunks.append(chunk)
            if not message.get("more_body", False):
                return b"".join(chunks)

    def _too_large(self) -> ApiError:
        return ApiError(
            413,
            f"the body is larger than {self.max_bytes:,} bytes, which is the most that this server takes; send less, "
            "or start the server with a larger --max-body-bytes",
            code="body_too_large",
        )


def _replay(body: bytes, receive: Receive) -> Receive:
    """First the body in one piece, then whatever the server says: that the client has left."""
    is_taken = False

    async def receive_again() -> Message:
        nonlocal is_taken, body
        if is_taken:
            return await receive()
        is_taken = True
        message = {"type": "http.request", "body": body, "more_body": False}
        body = b""  # whoever parses it decides how long it stays in memory
        return message

    return receive_again


class Concurrency:
    """Refuses a key's next POST while it has as many running as it may. Stands behind `Authenticate`. (ASGI middleware)

    A request that streams runs until its stream has ended.
    """

    def __init__(self, app: ASGIApp, settings: ServerSettings) -> None:
        self.app = app
        self.limit = settings.max_concurrent_per_key
        self.running: Counter[str] = Counter()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self.limit is None or scope["type"] != "http" or scope["method"] != "POST":
            await self.app(scope, receive, send)
            return
        key_id = scope.get("state", {}).get("key_id", PUBLIC_KEY_ID)
        if self.running[key_id] >= self.limit:
            message = f"{self.limit} requests of this API key are running, which is its limit; wait for one to end"
            error = ApiError(429, message, code="rate_limit_exceeded", headers={"Retry-After": str(RETRY_AFTER_S)})
            await error_response(error)(scope, receive, send)
            return
        self.running[key_id] += 1
        try:
            await self.app(scope, receive, send)
        finally:
            self.running[key_id] -= 1
            if not self.running[key_id]:
                del self.running[key_id]
