"""One line a request, and its id: who asked, by which route, and how it ended.

Nothing that a client said is logged: no body, no query, no header but X-Request-Id.
"""

from __future__ import annotations

import logging
import re
import secrets
import time
from typing import Any

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from quire.server.errors import ApiError, error_response

logger = logging.getLogger("quire.access")

_CLIENT_CLOSED = 499  # no answer was begun before the client left
_PLAIN_ID = re.compile(rb"[A-Za-z0-9._:-]{1,128}")
_MAX_PATH = 200


class AccessLog:
    """Writes a line for each request once it has ended, and gives every answer an X-Request-Id. (ASGI middleware)

    The client's own id is taken where it is plain; the id stands in ``scope["state"]["request_id"]``. This is the
    outermost middleware: refusals get a line too, and an uncaught exception is logged with the id and becomes a 500.
    """

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        started = time.perf_counter()
        state = scope.setdefault("state", {})
        request_id = state["request_id"] = _request_id(scope)
        status: int | None = None
        is_whole = False

        async def send_noting(message: Message) -> None:
            nonlocal status, is_whole
            if message["type"] == "http.response.start":
                status = message["status"]
                MutableHeaders(scope=message)["X-Request-Id"] = request_id
            elif message["type"] == "http.response.body":
                is_whole = not message.get("more_body", False)
            await send(message)

        try:
            await self.app(scope, receive, send_noting)
        except Exception:
            logger.exception("request %s failed", request_id)
            if status is not None:
                raise  # half an answer: the server hangs up, so that nobody takes it for a whole one
            message = f"the server made a mistake; its log has the details under {request_id}"
            await error_response(ApiError(500, message))(scope, receive, send_noting)
        finally:
            _write(scope, state, status, is_whole, time.perf_counter() - started)


def report_usage(scope: Scope, *, model: str, prompt_tokens: int = 0, completion_tokens: int = 0) -> None:
    """Let the request's line say which model answered, and how many tokens went in and out."""
    state = scope.setdefault("state", {})
    state.update(model=model, prompt_tokens=prompt_tokens, completion_tokens=completion_tokens)


def _request_id(scope: Scope) -> str:
    given: bytes = next((value for name, value in scope["headers"] if name == b"x-request-id"), b"")
    if _PLAIN_ID.fullmatch(given):
        return given.decode()
    return f"req-{secrets.token_hex(12)}"


def _write(scope: Scope, state: dict[str, Any], status: int | None, is_whole: bool, seconds: float) -> None:
    client = scope.get("client")
    fields = {
        "request_id": state["request_id"],
        "client": client[0] if client else None,
        "key": state.get("key_id"),
        "method": scope["method"],
        "path": scope["path"][:_MAX_PATH],
        "status": status if status is not None else _CLIENT_CLOSED,
        "ms": round(seconds * 1000, 1),
        "model": state.get("model"),
        "prompt_tokens": state.get("prompt_tokens"),
        "completion_tokens": state.get("completion_tokens"),
        "cut_off": True if status is not None and not is_whole else None,
    }
    logger.info("request", extra={"fields": {name: value for name, value in fields.items() if value is not None}})
