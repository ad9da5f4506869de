"""GET /health, GET /version and GET /load.

Health is a heartbeat through every engine's thread: a process whose HTTP answers while its engine hangs is not healthy.
"""

from __future__ import annotations

import asyncio
from typing import Any, Literal, cast, get_args

from fastapi import APIRouter, Response
from pydantic import BaseModel, Field

import quire
from quire.async_engine.async_engine import AsyncEngine
from quire.async_engine.messages import ModelState
from quire.server.bodies.replies import ERROR_RESPONSES, LoadedSoFar
from quire.server.registry import ModelRegistry
from quire.server.settings import ServerSettings

HealthStatus = Literal["ok", "loading", "draining", "hanging", "failed"]
_REFUSALS: dict[int | str, dict[str, Any]] = {"4XX": ERROR_RESPONSES["4XX"]}
_BY_GRAVITY: tuple[HealthStatus, ...] = get_args(HealthStatus)


class Loading(LoadedSoFar):
    phase: str = Field(description="What is under way: imports, config, weights or first step.")


class Health(BaseModel):
    """Of several models, the gravest state."""

    status: HealthStatus
    loading: list[Loading] | None = Field(
        default=None, description="The models that do not answer yet, and how far each has come; no names."
    )


class Version(BaseModel):
    version: str


class Load(BaseModel):
    server_load: int = Field(description="Requests that run or wait, of all models.")


def health_routes(registry: ModelRegistry, settings: ServerSettings) -> APIRouter:
    """The routes."""
    router = APIRouter(tags=["operations"])

    refusals = {**_REFUSALS, 503: {"model": Health, "description": "It cannot serve now."}}

    @router.get("/health", responses=refusals, response_model_exclude_unset=True)
    async def health(response: Response) -> Health:
        """Whether every model answers: a heartbeat through each engine. Needs no API key. An idle model that was
        unloaded is well: it answers once it is asked."""
        engines = [model.async_engine for model in registry]
        found = await asyncio.gather(*(_status(engine, settings.heartbeat_timeout_s) for engine in engines))
        status = max(found, key=_BY_GRAVITY.index)
        if status != "ok":
            response.status_code = 503
        loading = [_progress(engine) for engine in engines if engine.state is ModelState.LOADING]
        return Health(status=status, loading=loading) if loading else Health(status=status)

    @router.get("/version", responses=_REFUSALS)
    async def version() -> Version:
        """The version of the server."""
        return Version(version=quire.__version__)

    @router.get("/load", responses=_REFUSALS)
    async def load() -> Load:
        """How much there is to do, as vLLM tells it."""
        return Load(server_load=sum(model.async_engine.num_requests for model in registry))

    return router


async def _status(engine: AsyncEngine, timeout_s: float) -> HealthStatus:
    serving = (ModelState.READY, ModelState.DRAINING)
    progress = engine.load_progress
    # An engine that starts over, or has just given up, does not answer either, and says so; and one whose first step
    # waits for layers is not hanging while they come.
    is_silent = engine.state in serving and not await engine.heartbeat(timeout_s)
    if is_silent and engine.state in serving and engine.load_progress is progress:
        return "hanging"
    is_ok = engine.state in (ModelState.READY, ModelState.UNLOADED)
    return "ok" if is_ok else cast(HealthStatus, engine.state.value)


def _progress(engine: AsyncEngine) -> Loading:
    progress = engine.load_progress
    return (
        Loading(phase="imports")
        if progress is None
        else Loading(phase=progress.phase, **LoadedSoFar.fields_of(progress))
    )
