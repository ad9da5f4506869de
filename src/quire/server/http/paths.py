"""Other spellings of a request: a proxy's prefix, an alias of its path, a slash at its end, or HEAD."""

from __future__ import annotations

from collections.abc import Mapping

from starlette.types import ASGIApp, Message, Receive, Scope, Send


class PlainPaths:
    """Rewrites each request to its plain path. HEAD is answered like GET, without the body. (ASGI middleware)

    Args:
        root_path: prefix that a proxy may leave on.
        aliases: other path -> path.
    """

    def __init__(self, app: ASGIApp, root_path: str = "", aliases: Mapping[str, str] | None = None) -> None:
        self.app = app
        self.root_path = root_path
        self.aliases = aliases or {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        path = scope["path"]
        if self.root_path and (path == self.root_path or path.startswith(self.root_path + "/")):
            path = path.removeprefix(self.root_path)
        path = path.rstrip("/") or "/"
        scope["path"] = self.aliases.get(path, path)
        if scope["method"] != "HEAD":
            await self.app(scope, receive, send)
            return

        async def send_no_body(message: Message) -> None:
            await send({**message, "body": b""} if message["type"] == "http.response.body" else message)

        scope["method"] = "GET"
        await self.app(scope, receive, send_no_body)
