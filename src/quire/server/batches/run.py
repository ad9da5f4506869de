"""Answer the lines of a batch file, many at once, each exactly once."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from starlette.types import ASGIApp, Receive, Scope, Send

from quire.server.batches.answers import AnswerFile
from quire.server.batches.lines import Line, LineBody, read_lines
from quire.server.http.middleware import BACKGROUND_HEADER, PUBLIC_KEY_ID

if TYPE_CHECKING:
    import httpx

HEADERS = {"Content-Type": "application/json", BACKGROUND_HEADER: "1"}
_PATIENCE_S = 120.0  # with a server that cannot be reached, or is not ready
_MAX_PAUSE_S = 8.0


class BatchStopped(RuntimeError):
    """The server cannot answer now."""


def app_client(app: ASGIApp, key_id: str = PUBLIC_KEY_ID) -> httpx.AsyncClient:
    """Return a client that sends an application the requests of a key, without a socket."""
    import httpx

    async def with_key(scope: Scope, receive: Receive, send: Send) -> None:
        await app({**scope, "state": {"key_id": key_id}}, receive, send)

    transport = httpx.ASGITransport(with_key, raise_app_exceptions=False)
    return httpx.AsyncClient(transport=transport, base_url="http://batch", headers=HEADERS, timeout=None)


async def answer_lines(
    path: Path,
    answers: AnswerFile,
    errors: AnswerFile,
    client: httpx.AsyncClient,
    slots: asyncio.Semaphore,
    on_answer: Callable[[int], object],
) -> None:
    """Ask for the answers that both files lack, as many at once as there are `slots`, and append them: those with
    status 200 to `answers`, others to `errors`, which may be the same. `on_answer` receives the size of each before it
    is written. Written answers stay after an OSError, BatchStopped, or what `on_answer` raises."""

    async def answer(line: Line) -> None:
        response = None if line.request is None else await _ask(client, line.request)
        answered = _render(line, response)
        on_answer(len(answered))
        is_completed = response is not None and response.status_code == 200
        await asyncio.to_thread((answers if is_completed else errors).append, answered)

    known = answers.keys | errors.keys
    lines = (line for line in read_lines(path) if line.key not in known)
    try:
        async with asyncio.TaskGroup() as tasks:
            while (line := await asyncio.to_thread(next, lines, None)) is not None:
                await slots.acquire()
                tasks.create_task(answer(line)).add_done_callback(lambda _: slots.release())
    except ExceptionGroup as group:
        raise group.exceptions[0] from None


def _render(line: Line, response: httpx.Response | None) -> bytes:
    if response is None:
        return line.answer()
    try:
        body = response.json()
    except ValueError:  # a proxy's page
        body = {"error": {"message": response.text[:1000]}}
    return line.answer(response.status_code, response.headers.get("x-request-id", ""), body)


async def _ask(client: httpx.AsyncClient, request: LineBody) -> httpx.Response:
    """Ask until the server answers. Raises BatchStopped if it cannot be reached, is not ready, or refuses the key."""
    import httpx

    content, pause_s, deadline = json.dumps(request.body), 0.5, time.monotonic() + _PATIENCE_S
    while True:
        try:
            response = await client.post(request.url, content=content)
            if response.status_code not in (401, 403, 429, 502, 503, 504):
                return response
            why = f"HTTP {response.status_code}: {response.text[:300]}"
            if response.status_code in (401, 403):
                deadline = 0.0
            elif response.status_code == 429:  # its queue moves on
                deadline = time.monotonic() + _PATIENCE_S
        except httpx.TransportError as error:
            why = str(error) or type(error).__name__
        if time.monotonic() > deadline:
            raise BatchStopped(f"{client.base_url} does not answer: {why}")
        await asyncio.sleep(pause_s)
        pause_s = min(2 * pause_s, _MAX_PAUSE_S)
