"""GET /livez, /readyz and /health for supervisors; GET /version and /load.

/readyz and /health ask the path of a request: the threads that encode prompts, then the engine's queue. A server whose
models do not answer is not ready. /livez asks only the event loop.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any, Literal, cast, get_args

from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response

import quire
from quire.async_engine.async_engine import AsyncEngine
from quire.async_engine.messages import EngineUnavailable, ModelState
from quire.server.bodies.fields import Reply, option
from quire.server.bodies.replies import ERROR_RESPONSES, LoadedSoFar, json_reply
from quire.server.http.middleware import is_known
from quire.server.http.routes import Routes
from quire.server.registry import ModelRegistry, ServedModel
from quire.server.settings import ServerSettings
from quire.system.worker_process import WorkerError

HealthStatus = Literal["ok", "degraded", "loading", "draining", "hanging", "failed"]
_REJECTIONS: dict[int | str, dict[str, Any]] = {"4XX": ERROR_RESPONSES["4XX"]}
_BY_SEVERITY: tuple[HealthStatus, ...] = get_args(HealthStatus)


class LoadingModel(LoadedSoFar):
    phase: str = Field(description="Phase: imports, config, weights or first step.")


class ModelHealth(Reply):
    state: HealthStatus
    model: str | None = option("Name, for clients with a key.")
    error: str | None = option("Reason of a failure, for clients with a key.")


class Health(Reply):
    """The most severe state of all models; degraded: some have failed, and the others serve; or an audit has found
    wrong KV."""

    status: HealthStatus
    models: list[ModelHealth] | None = option("/readyz: each model, in order.")
    loading: list[LoadingModel] | None = option("Progress of the models that are loading, without names.")


class Version(Reply):
    version: str


class ServerLoad(Reply):
    server_load: int = Field(description="Number of running and waiting requests.")


def health_routes(registry: ModelRegistry, settings: ServerSettings) -> Routes:
    routes = Routes("operations", responses=_REJECTIONS)
    probes: dict[ServedModel, _Probe] = {}
    has_served = False  #: every model

    unhealthy: dict[int | str, dict[str, Any]] = {503: {"model": Health, "description": "Unable to serve now."}}

    async def check() -> tuple[HealthStatus, dict[ServedModel, HealthStatus]]:
        nonlocal probes, has_served
        probes = {model: probes.get(model) or _Probe(model, settings.heartbeat_timeout_s) for model in registry}
        asked = probes
        states = dict(zip(asked, await asyncio.gather(*(probe.status() for probe in asked.values())), strict=True))
        found = set(states.values())
        status = max(found, key=_BY_SEVERITY.index)
        if status == "failed" and found == {"ok", "failed"}:
            status = "degraded"
        has_served = has_served or status == "ok"
        if status == "loading" and has_served and found == {"ok", "loading"}:  # again, or on request
            status = "ok"
        return status, states

    @routes.get("/livez", response_model=Health)
    async def livez() -> Response:
        """Check the event loop only. Needs no API key."""
        return json_reply(Health(status="ok"))

    @routes.get("/readyz", response_model=Health, responses=unhealthy)
    async def readyz(request: Request) -> Response:
        """Check as /health, and show each model. Needs no API key."""
        status, found = await check()
        shows_names = is_known(request.scope, settings)
        models = []
        for model, state in found.items():
            names = {"model": model.name, "error": model.async_engine.error} if shows_names else {}
            models.append(ModelHealth(state=state, **{key: name for key, name in names.items() if name is not None}))
        return json_reply(Health(status=status, models=models), _code(status))

    @routes.get("/health", response_model=Health, responses=unhealthy)
    async def health() -> Response:
        """Check that each model answers, by the path of a request. Needs no API key.

        An unloaded model is healthy: a request loads it. While others serve, failed models do not count, nor, after the
        start, loading ones."""
        status, _ = await check()
        engines = [model.async_engine for model in registry]
        loading = [_progress(engine) for engine in engines if engine.state is ModelState.LOADING]
        answer = Health(status=status, loading=loading) if loading else Health(status=status)
        return json_reply(answer, _code(status))

    @routes.get("/version", response_model=Version)
    async def version() -> Response:
        """Show the version of the server."""
        return json_reply(Version(version=quire.__version__))

    @routes.get("/load", response_model=ServerLoad)
    async def load() -> Response:
        """Count running and waiting requests, in vLLM's form."""
        return json_reply(ServerLoad(server_load=sum(model.async_engine.num_requests for model in registry)))

    return routes


def _code(status: HealthStatus) -> int:
    return 200 if status in ("ok", "degraded") else 503


class _Probe:
    """Checks one model. At most one encoding is pending, so that polling adds no work to busy threads."""

    def __init__(self, model: ServedModel, timeout_s: float) -> None:
        self._model = model
        self._timeout_s = timeout_s
        self._encoding: asyncio.Task[None] | None = None

    async def status(self) -> HealthStatus:
        engine = self._model.async_engine
        serving = (ModelState.READY, ModelState.DRAINING)
        progress = engine.load_progress
        # An engine that restarts, or has just failed, does not answer either, and its state says so. One whose first
        # step waits for layers is not hanging while they arrive.
        is_silent = engine.state in serving and not await self._answers(engine)
        if is_silent and engine.state in serving and engine.load_progress is progress:
            return "hanging"
        if engine.state in (ModelState.READY, ModelState.UNLOADED):
            return "degraded" if engine.has_wrong_kv else "ok"
        return cast(HealthStatus, engine.state.value)

    async def _answers(self, engine: AsyncEngine) -> bool:
        if self._encoding is None or self._encoding.done():
            self._encoding = asyncio.create_task(asyncio.to_thread(encode_probe, self._model))
        encoded = asyncio.wait([self._encoding], timeout=self._timeout_s)
        (_, waiting), beats = await asyncio.gather(encoded, engine.heartbeat(self._timeout_s))
        return beats and not waiting


def encode_probe(model: ServedModel) -> None:
    """Encode a short text; called where requests' prompts are encoded."""
    with suppress(EngineUnavailable, WorkerError, ValueError):  # the model's state tells of the first
        if (tokenizer := model.async_engine.engine.tokenizer) is not None:
            tokenizer.encode("Hello")


def _progress(engine: AsyncEngine) -> LoadingModel:
    progress = engine.load_progress
    if progress is None:
        return LoadingModel(phase="imports")
    return LoadingModel(phase=progress.phase, **LoadedSoFar.fields_of(progress))
