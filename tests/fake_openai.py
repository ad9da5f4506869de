"""An OpenAI-compatible server over real sockets that answers by a script and records its requests."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

Said = list[str | Exception | None]  #: pieces of text; an exception is an error event, None ends the stream silently


@dataclass
class Script:
    """The server's behaviour. `said` may be a function of the request's body."""

    said: Said | Callable[[dict[str, Any]], Said] = field(default_factory=lambda: ["Hel", "lo", "!"])
    status: int = 200
    models: list[dict[str, Any]] = field(default_factory=lambda: [{"id": "first"}, {"id": "second"}])
    with_usage: bool = True
    delay_s: float = 0.0  #: before each piece
    hangs_after: int | None = None  #: pieces after which the stream stalls until the client disconnects
    knows_stream_options: bool = True
    api_key: str | None = None


@dataclass
class FakeServer:
    url: str
    script: Script
    requests: list[dict[str, Any]] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)
    num_gone: int = 0  #: clients that disconnected during an answer

    async def models(self, request: Request) -> Response:
        if self.script.api_key and request.headers.get("authorization") != f"Bearer {self.script.api_key}":
            return JSONResponse({"error": {"message": "a key is needed"}}, 401)
        return JSONResponse({"object": "list", "data": self.script.models})

    async def answer(self, request: Request) -> Response:
        body = await request.json()
        self.requests.append(body)
        self.paths.append(request.url.path)
        script = self.script
        if script.status != 200:
            return JSONResponse({"error": {"message": "no, not like this", "type": "x"}}, script.status)
        if "stream_options" in body and not script.knows_stream_options:
            return JSONResponse({"error": {"message": "unknown field stream_options"}}, 400)
        said = script.said(body) if callable(script.said) else script.said
        is_chat = request.url.path.endswith("chat/completions")
        usage = {
            "prompt_tokens": self.prompt_tokens(body),
            "completion_tokens": sum(isinstance(text, str) for text in said),
            "prompt_tokens_details": {"cached_tokens": 0},
        }
        if not body.get("stream"):
            text = "".join(str(piece) for piece in said)
            choice = {"message": {"role": "assistant", "content": text}} if is_chat else {"text": text}
            return JSONResponse({"choices": [{"index": 0, "finish_reason": "stop", **choice}], "usage": usage})
        return StreamingResponse(self.events(said, is_chat, usage), media_type="text/event-stream")

    async def events(self, said: Said, is_chat: bool, usage: dict[str, Any]) -> AsyncIterator[str]:
        script, is_over = self.script, False

        def event(choice: dict[str, Any] | None, **more: Any) -> str:
            choices = [] if choice is None else [{"index": 0, "finish_reason": None, **choice}]
            return f"data: {json.dumps({'choices': choices, **more})}\n\n"

        try:
            if is_chat:
                yield event({"delta": {"role": "assistant", "content": ""}})
            for number, text in enumerate(said):
                if number == script.hangs_after:
                    await asyncio.sleep(3600)
                if not isinstance(text, str):
                    is_over = True
                    if text is not None:
                        yield f"data: {json.dumps({'error': {'message': str(text)}})}\n\n"
                    return
                await asyncio.sleep(script.delay_s)
                yield event({"delta": {"content": text}} if is_chat else {"text": text})
            yield event({**({"delta": {}} if is_chat else {"text": ""}), "finish_reason": "stop"})
            if script.with_usage:
                yield event(None, usage=usage)
            yield "data: [DONE]\n\n"
            is_over = True
        finally:
            self.num_gone += not is_over

    @staticmethod
    def prompt_tokens(body: dict[str, Any]) -> int:
        """Count one token per id, two per word, and five for a conversation's format."""
        if "messages" in body:
            return 5 + sum(2 * len(message["content"].split()) for message in body["messages"])
        return 2 * len(body["prompt"].split()) if isinstance(body["prompt"], str) else len(body["prompt"])


@contextmanager
def fake_openai(**script: Any) -> Iterator[FakeServer]:
    """Run the server within the block."""
    listener = socket.create_server(("127.0.0.1", 0))
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # asyncio sets it for its own sockets only
    fake = FakeServer(f"http://127.0.0.1:{listener.getsockname()[1]}", Script(**script))
    app = Starlette(
        routes=[
            Route("/v1/models", fake.models),
            Route("/v1/completions", fake.answer, methods=["POST"]),
            Route("/v1/chat/completions", fake.answer, methods=["POST"]),
        ]
    )
    server = uvicorn.Server(uvicorn.Config(app, log_level="error", timeout_graceful_shutdown=1))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    try:
        while not server.started:
            time.sleep(0.01)
        yield fake
    finally:
        server.should_exit = True
        thread.join(20)
        listener.close()
