"""Limit request sizes in Ray's HTTP proxy, which buffers whole requests before the application sees them."""

from __future__ import annotations

from starlette.middleware import Middleware
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from quire.server.errors import ApiError, ErrorResponse
from quire.server.http.protocol import MAX_HEAD_BYTES
from quire.server.settings import ServerSettings

_SLACK = 2**20  # bytes beyond the limit, so that the application can refuse the body first


def limits() -> list[Middleware]:
    """Return the proxy's body limit (QUIRE_MAX_BODY_BYTES) as middleware: Ray calls this if
    RAY_SERVE_HTTP_PROXY_CALLBACK_IMPORT_PATH=quire.cluster.proxy.limits."""
    return [Middleware(BoundRequest, max_bytes=ServerSettings.from_env().max_body_bytes)]


class BoundRequest:
    """ASGI middleware that refuses too large headers and announced bodies, and cuts off bodies that grow too large."""

    def __init__(self, app: ASGIApp, max_bytes: int) -> None:
        self._app = app
        self._max_bytes = max_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        error = self._check(scope["headers"])
        if error is not None:
            await ErrorResponse(error)(scope, receive, send)
            return
        left = self._max_bytes + _SLACK

        async def receive_bounded() -> Message:
            nonlocal left
            message: Message = await receive() if left >= 0 else {}
            left -= len(message.get("body", b""))
            return message if left >= 0 else {"type": "http.disconnect"}

        await self._app(scope, receive_bounded, send)

    def _check(self, headers: list[tuple[bytes, bytes]]) -> ApiError | None:
        if sum(len(name) + len(value) for name, value in headers) > MAX_HEAD_BYTES:
            message = f"the headers are larger than the limit of {MAX_HEAD_BYTES:,} bytes"
            return ApiError(431, message, code="headers_too_large")
        announced = next((value for name, value in headers if name == b"content-length"), b"0")
        if int(announced) > self._max_bytes:
            message = f"the body is larger than the limit of {self._max_bytes:,} bytes; send less"
            return ApiError(413, message, code="body_too_large")
        return None
