"""The access log: one line a request, with its id, its client and its end.

It writes nothing that a client said: no body, no query, no header but X-Request-Id.
"""

from __future__ import annotations

import logging
import re
import secrets
import time
from collections.abc import Callable

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from quire.server.errors import ERROR_CODE, ApiError, error_response

logger = logging.getLogger("quire.access")

#: Receives the path of the route, the method, the status and the error's code of each answer.
CountAnswer = Callable[[str, str, int, str | None], None]
_CLIENT_CLOSED = 499  # the client left before an answer started
_PLAIN_ID = re.compile(rb"[A-Za-z0-9._:-]{1,128}")
_MAX_PATH = 200
_OTHER = "other"


class AccessLog:
    """Logs and counts every request at its end, and gives every answer an X-Request-Id. (ASGI middleware)

    The client's own id is used if it is plain; the id is ``scope["state"]["request_id"]``. This is the outermost
    middleware: it sees refusals too, and turns an uncaught exception into a 500 with the id.

    Args:
        count: receives each answer, for metrics.
        paths: paths of the routes; requests to other paths count together.
    """

    def __init__(
        self, app: ASGIApp, count: CountAnswer = lambda *answer: None, paths: frozenset[str] = frozenset()
    ) -> None:
        self.app = app
        self.count = count
        self.paths = paths

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        started = time.perf_counter()
        method, path = scope["method"], scope["path"][:_MAX_PATH]  # before middleware rewrites them
        given: bytes = dict(scope["headers"]).get(b"x-request-id", b"")
        request_id = given.decode() if _PLAIN_ID.fullmatch(given) else f"req-{secrets.token_hex(12)}"
        state = scope.setdefault("state", {})
        state["request_id"] = request_id
        status: int | None = None
        is_whole = False

        async def watch(message: Message) -> None:
            nonlocal status, is_whole
            if message["type"] == "http.response.start":
                status = message["status"]
                MutableHeaders(scope=message)["X-Request-Id"] = request_id
            elif message["type"] == "http.response.body":
                is_whole = not message.get("more_body", False)
            await send(message)

        try:
            await self.app(scope, receive, watch)
        except Exception:
            logger.exception("request %s failed", request_id)
            if status is not None:
                raise  # the server closes the connection, so that half an answer does not look complete
            message = f"the server made a mistake; its log has the details under {request_id}"
            await error_response(ApiError(500, message))(scope, receive, watch)
        finally:
            client = scope.get("client")
            fields = {
                "request_id": request_id,
                "client": client[0] if client else None,
                "key": state.get("key_id"),
                "method": method,
                "path": path,
                "status": status if status is not None else _CLIENT_CLOSED,
                "ms": round((time.perf_counter() - started) * 1000, 1),
                "model": state.get("model"),
                "prompt_tokens": state.get("prompt_tokens"),
                "completion_tokens": state.get("completion_tokens"),
                "cut_off": True if status is not None and not is_whole else None,
            }
            logger.info(
                "request", extra={"fields": {name: value for name, value in fields.items() if value is not None}}
            )
            if status is not None:
                route = scope.get("route")
                known = scope["path"] if scope["path"] in self.paths else _OTHER
                self.count(
                    route.path_format if route is not None else known, scope["method"], status, state.get(ERROR_CODE)
                )


def report_usage(scope: Scope, *, model: str, prompt_tokens: int = 0, completion_tokens: int = 0) -> None:
    """Report the model and the token counts of a request for its log line."""
    scope.setdefault("state", {}).update(model=model, prompt_tokens=prompt_tokens, completion_tokens=completion_tokens)
