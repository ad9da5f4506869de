"""How much a client may ask for at once: bytes of a body, time to send it, requests of one key.

How long a queue may be is the engine's to say.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import closing

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from quire.server.errors import RETRY_SOON, ApiError, error_response
from quire.server.http.auth import key_id_of
from quire.server.http.body import LARGE_BODY, LARGE_BODY_BYTES, ReceivedBody
from quire.server.settings import ServerSettings

BODY_TIMEOUT_S = 60.0
_READ_PAUSE_S = 0.001  # between two pieces of a large body: running streams need the cores
MAX_HELD_BODIES = 32  #: large bodies of the largest size that are held at once; small ones always find room


class LimitBody:
    """Reads a request's body before anything else sees it, and refuses one that is too large or comes too slowly.

    A length that is announced is refused before a byte is read; without one (chunked) the reading stops at the limit.
    uvicorn reads and drops the rest of a refused body, so that its client sees the answer.
    A large body stands in the scope, under `LARGE_BODY`. All of them together are bounded, too, since they stay in
    memory until their requests end. (ASGI middleware)
    """

    def __init__(self, app: ASGIApp, settings: ServerSettings, timeout_s: float = BODY_TIMEOUT_S) -> None:
        self.app = app
        self.max_bytes = settings.max_body_bytes
        self.max_held = MAX_HELD_BODIES * max(settings.max_body_bytes, LARGE_BODY_BYTES)
        self.held = 0  #: bytes of large bodies that are here now
        self.timeout_s = timeout_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        with closing(ReceivedBody()) as body:
            try:
                await self._serve(body, scope, receive, send)
            finally:
                self.held -= body.size if body.is_large else 0

    async def _serve(self, body: ReceivedBody, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            announced = next((value for name, value in scope["headers"] if name == b"content-length"), b"0")
            if int(announced) > self.max_bytes:
                raise self._too_large()
            async with asyncio.timeout(self.timeout_s):
                is_whole = await self._read(body, receive)
        except ApiError as error:
            await error_response(error)(scope, receive, send)
            return
        except TimeoutError:
            message = f"the body did not arrive within {self.timeout_s:g} s"
            await error_response(ApiError(408, message, code="request_timeout"))(scope, receive, send)
            return
        if is_whole:
            if body.is_large:
                scope[LARGE_BODY] = body
            await self.app(scope, _replay(body, receive), send)

    async def _read(self, body: ReceivedBody, receive: Receive) -> bool:
        """Read the whole body. False where the client left before its end: there is nobody to answer."""
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                return False
            held = body.size if body.is_large else 0
            body.add(message.get("body", b""))
            self.held += body.size - held if body.is_large else 0
            if body.size > self.max_bytes:
                raise self._too_large()
            if body.is_large and self.held > self.max_held:
                what = f"large bodies of {self.max_held:,} bytes together are being served; try again soon"
                raise ApiError(503, what, code="too_many_large_bodies", headers=RETRY_SOON)
            if not message.get("more_body", False):
                return True
            if body.is_large:
                await asyncio.sleep(_READ_PAUSE_S)

    def _too_large(self) -> ApiError:
        return ApiError(
            413,
            f"the body is larger than {self.max_bytes:,} bytes, which is the most that this server takes; send less, "
            "or start the server with a larger --max-body-bytes",
            code="body_too_large",
        )


def _replay(body: ReceivedBody, receive: Receive) -> Receive:
    """First the body in one piece, then the server's own messages: the client has left."""
    is_taken = False

    async def receive_again() -> Message:
        nonlocal is_taken
        if is_taken:
            return await receive()
        is_taken = True
        return {"type": "http.request", "body": body.take(), "more_body": False}

    return receive_again


class Concurrency:
    """Refuses a key's next POST while it has as many running as it may. Stands behind `Authenticate`. (ASGI middleware)

    A request that streams runs until its stream has ended.
    """

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
