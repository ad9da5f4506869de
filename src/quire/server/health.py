"""GET /health, /version and /load.

/health sends a heartbeat through every engine's thread: a server whose engine hangs is not healthy.
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
_REJECTIONS: dict[int | str, dict[str, Any]] = {"4XX": ERROR_RESPONSES["4XX"]}
_BY_SEVERITY: tuple[HealthStatus, ...] = get_args(HealthStatus)


class LoadingModel(LoadedSoFar):
    phase: str = Field(description="Phase: imports, config, weights or first step.")


class Health(BaseModel):
    """The most severe state of all models."""

    status: HealthStatus
    loading: list[LoadingModel] | None = Field(
        default=None, description="Progress of the models that are loading, without names."
    )


class Version(BaseModel):
    version: str


class ServerLoad(BaseModel):
    server_load: int = Field(description="Number of running and waiting requests.")


def health_routes(registry: ModelRegistry, settings: ServerSettings) -> APIRouter:
    """The routes."""
    router = APIRouter(tags=["operations"], responses=_REJECTIONS)
    unhealthy: dict[int | str, dict[str, Any]] = {503: {"model": Health, "description": "Unable to serve now."}}

    @router.get("/health", responses=unhealthy, response_model_exclude_unset=True)
    async def health(response: Response) -> Health:
        """Check every engine by a heartbeat. Needs no API key. An unloaded model is healthy: a request loads it."""
        engines = [model.async_engine for model in registry]
        found = await asyncio.gather(*(_status(engine, settings.heartbeat_timeout_s) for engine in engines))
        status = max(found, key=_BY_SEVERITY.index)
        if status != "ok":
            response.status_code = 503
        loading = [_progress(engine) for engine in engines if engine.state is ModelState.LOADING]
        return Health(status=status, loading=loading) if loading else Health(status=status)

    @router.get("/version")
    async def version() -> Version:
        """Show the version of the server."""
        return Version(version=quire.__version__)

    @router.get("/load")
    async def load() -> ServerLoad:
        """Count running and waiting requests, in vLLM's form."""
        return ServerLoad(server_load=sum(model.async_engine.num_requests for model in registry))

    return router


async def _status(engine: AsyncEngine, timeout_s: float) -> HealthStatus:
    serving = (ModelState.READY, ModelState.DRAINING)
    progress = engine.load_progress
    # An engine that restarts, or has just failed, does not answer either, and its state says so. One whose first step
    # waits for layers is not hanging while they arrive.
    is_silent = engine.state in serving and not await engine.heartbeat(timeout_s)
    if is_silent and engine.state in serving and engine.load_progress is progress:
        return "hanging"
    is_ok = engine.state in (ModelState.READY, ModelState.UNLOADED)
    return "ok" if is_ok else cast(HealthStatus, engine.state.value)


def _progress(engine: AsyncEngine) -> LoadingModel:
    progress = engine.load_progress
    if progress is None:
        return LoadingModel(phase="imports")
    return LoadingModel(phase=progress.phase, **LoadedSoFar.fields_of(progress))
