"""Small ASGI applications, and requests to them without a socket."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import httpx
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send


async def tell_state(scope: Scope, receive: Receive, send: Send) -> None:
    """Return the state set by middlewares, and the received body."""
    request = Request(scope, receive)
    body = await request.body()
    await JSONResponse({"state": scope.get("state", {}), "size": len(body)})(scope, receive, send)


def ask(app: ASGIApp, method: str = "GET", path: str = "/v1/models", **options: Any) -> httpx.Response:
    async def run() -> httpx.Response:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test") as client:
            return await client.request(method, path, **options)

    return asyncio.run(run())


async def send_by_hand(app: ASGIApp, messages: AsyncIterator[Message], **scope: Any) -> list[Message]:
    """Return an application's answer to messages that clients hardly send."""
    answers: list[Message] = []

    async def receive() -> Message:
        try:
            return await anext(messages)
        except StopAsyncIteration:
            return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        answers.append(message)

    base = {"type": "http", "method": "POST", "path": "/", "headers": [], "query_string": b"", "state": {}}
    await app({**base, **scope}, receive, send)
    return answers
