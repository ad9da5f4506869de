"""Other ways to write a request: behind a proxy's prefix, by another name of its path, with a slash at its end, or as
HEAD."""

from __future__ import annotations

from collections.abc import Mapping

from starlette.types import ASGIApp, Message, Receive, Scope, Send


class PlainPaths:
    """Shows the rest of the application each request as if it were written plainly. (ASGI middleware)

    HEAD is answered as GET, without the body.

    Args:
        root_path: a prefix that a proxy may leave on.
        aliases: other name of a path -> the path.
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
        plain = {**scope, "path": self.aliases.get(path, path)}
        if scope["method"] != "HEAD":
            await self.app(plain, receive, send)
            return

        async def send_no_body(message: Message) -> None:
            await send({**message, "body": b""} if message["type"] == "http.response.body" else message)

        await self.app({**plain, "method": "GET"}, receive, send_no_body)
