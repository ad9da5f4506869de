"""GET /v1/live: a model's engine as server-sent events, for the page at /. Nothing is computed while no client reads.

A client sees blocks, counts and costs of the whole engine, but only its own key's requests.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from functools import partial
from string import ascii_uppercase
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from quire.async_engine import live_view
from quire.async_engine.async_engine import AsyncEngine
from quire.async_engine.live_view import FIRST_REQUEST, LiveView
from quire.async_engine.messages import ModelState
from quire.server.bodies.replies import ERROR_RESPONSES, LoadedSoFar
from quire.server.errors import RETRY_SOON, ApiError
from quire.server.generation.generation import turn_of
from quire.server.http.middleware import key_id_of
from quire.server.http.protocol import ClientDisconnected, run_while_connected
from quire.server.http.routes import Routes
from quire.server.recent_steps import RecentSteps
from quire.server.registry import ModelRegistry, ServedModel
from quire.server.settings import ServerSettings

PERIOD_S = 0.25
MAX_VIEWERS_PER_KEY = 16
_SILENCE_S = 2.0  #: after which an unchanged state is sent again
_LOOK_TIMEOUT_S = 60.0
_ENGINE_SHARE = 0.005  #: of the engine's time for its views
_STATES = {
    live_view.FREE: "f", live_view.CACHED: "c", live_view.SHARED: "s", live_view.PINNED: "p",
    live_view.LOADING: "l", live_view.HELD: "h",
}  # fmt: skip
_OWN, _OTHER = "o", "x"


class LiveFeed:
    """One engine's latest view, which all viewers share."""

    def __init__(self, engine: AsyncEngine) -> None:
        self._engine = engine
        self._task: asyncio.Task[LiveView | None] | None = None
        self._next = 0.0  #: time of the next look
        self._view: LiveView | None = None

    async def view(self) -> LiveView | None:
        """Return a fresh view, or the last one if the running step is long."""
        if self._engine.state is not ModelState.READY:
            return None
        if (self._task is None or self._task.done()) and time.monotonic() >= self._next:
            self._task = asyncio.create_task(self._look())
        if self._task is not None:
            await asyncio.wait({self._task}, timeout=PERIOD_S)
        return self._view

    async def _look(self) -> None:
        asked = time.monotonic()
        view = await self._engine.look(_LOOK_TIMEOUT_S)
        self._view = view or self._view
        self._next = asked + max(0.9 * PERIOD_S, (view.took_s if view is not None else 0.0) / _ENGINE_SHARE)


def live_routes(registry: ModelRegistry, settings: ServerSettings, recent: Mapping[str, RecentSteps]) -> Routes:
    """GET /v1/live; `recent` has the numbers of the models whose steps this process sees."""
    routes = Routes("operations", responses=ERROR_RESPONSES)
    feeds: dict[AsyncEngine, LiveFeed] = {}
    viewers: Counter[str] = Counter()

    async def describe(watched: ServedModel, tenant: str, letters: dict[str, str]) -> dict[str, Any]:
        name, engine = watched.parent or watched.name, watched.async_engine
        for gone in feeds.keys() - set(registry.engines):
            del feeds[gone]
        view = await feeds.setdefault(engine, LiveFeed(engine)).view()
        return {
            "models": list(map(_describe_model, registry)),
            "model": name,
            "recent": recent[name].show() if name in recent else None,
            "engine": None if view is None else _describe_engine(view, tenant, letters),
        }

    def is_draining() -> bool:
        states = {model.async_engine.state for model in registry}
        return ModelState.DRAINING in states and states <= {ModelState.DRAINING, ModelState.FAILED}

    @routes.get("/v1/live", summary="Watch an engine")
    async def watch(request: Request, model: str | None = None) -> Response:
        """Stream the state of a model's engine, at most four times a second, until the client leaves."""
        key_id = key_id_of(request.scope)
        watched = registry.get(model)
        if viewers[key_id] >= MAX_VIEWERS_PER_KEY:
            message = f"this key watches {MAX_VIEWERS_PER_KEY} times already; close a page"
            raise ApiError(429, message, code="rate_limit_exceeded", headers=RETRY_SOON)
        tenant = turn_of(key_id, 0, settings, {})[1].tenant
        return LiveStream(partial(describe, watched, tenant, {}), is_draining, viewers, key_id)

    return routes


class LiveStream(Response):
    """Sends a description whenever it has changed."""

    media_type = "text/event-stream"

    def __init__(
        self,
        describe: Callable[[], Awaitable[dict[str, Any]]],
        is_over: Callable[[], bool],
        viewers: Counter[str],
        key_id: str,
    ) -> None:
        super().__init__(headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"})
        del self.headers["content-length"]
        self._describe, self._is_over = describe, is_over
        self._viewers, self._key_id = viewers, key_id

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._viewers[self._key_id] += 1
        try:
            with suppress(ClientDisconnected):
                await run_while_connected(receive, self._send_all(send))
        finally:
            self._viewers[self._key_id] -= 1

    async def _send_all(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        last, sent = b"", 0.0
        while not self._is_over():
            began = time.monotonic()
            data = json.dumps(await self._describe(), separators=(",", ":")).encode()
            if data != last or began - sent > _SILENCE_S:
                last, sent = data, began
                await send({"type": "http.response.body", "body": b"data: %b\n\n" % data, "more_body": True})
            await asyncio.sleep(PERIOD_S - min(PERIOD_S / 2, time.monotonic() - began))
        await send({"type": "http.response.body", "body": b"", "more_body": False})


def _describe_model(model: ServedModel) -> dict[str, Any]:
    engine, progress = model.async_engine, model.async_engine.load_progress
    return {
        "name": model.name,
        "names": model.names,
        "state": engine.state.value,
        "error": engine.error,
        "load": progress and LoadedSoFar.fields_of(progress) | _fields(progress, *LoadedSoFar.model_fields),
    }


def _describe_engine(view: LiveView, tenant: str, letters: dict[str, str]) -> dict[str, Any]:
    """Describe an engine to a viewer, who knows the own requests by `letters`, which this updates."""
    own = {request.request_id for request in view.requests if request.tenant == tenant}
    for gone in letters.keys() - own:
        del letters[gone]
    free = [letter for letter in ascii_uppercase if letter not in letters.values()]
    letters.update(zip(sorted(own - letters.keys()), free, strict=False))
    table = bytearray(_OTHER.encode() * 256)
    for state, letter in _STATES.items():
        table[state] = ord(letter)
    for number, request in enumerate(view.requests, FIRST_REQUEST):
        if request.request_id in own:
            table[number] = ord(letters.get(request.request_id, _OWN))
    return {
        **_fields(view, "cells", "requests", "took_s"),
        **{name: list(map(_fields, getattr(view, name))) for name in ("tiers", "recoveries", "decisions")},
        "cells": view.cells.translate(bytes(table)).decode(),
        "requests": [
            {"own": True, "letter": letters.get(request.request_id, _OWN), **_fields(request, "tenant")}
            if request.request_id in own
            else {"own": False, "state": request.state, "num_blocks": request.num_blocks}
            for request in view.requests
        ],
    }


def _fields(view: Any, *hidden: str) -> dict[str, Any]:
    """Return the fields of a dataclass with slots; `asdict` copies them deeply, which takes ten times as long."""
    return {name: getattr(view, name) for name in view.__slots__ if name not in hidden}
