"""POST /v1/models/load, unload and reload, for admins; /models/load and /models/unload are those of llama.cpp."""

from __future__ import annotations

import asyncio
from typing import Literal

from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response

from quire.server.bodies.fields import Body
from quire.server.bodies.replies import ERROR_RESPONSES, json_reply
from quire.server.errors import RETRY_SOON, ApiError
from quire.server.generation.generation import wait_until_ready
from quire.server.http.keys import admin_ids
from quire.server.http.middleware import check_admin
from quire.server.http.protocol import run_while_connected
from quire.server.http.routes import Routes
from quire.server.openai.models import ModelCard, card_of
from quire.server.running_models.model_set import ModelSet
from quire.server.settings import ServerSettings


class NamedModel(Body):
    model: str = Field(description="Name from GET /v1/models.")


class ChangedModel(ModelCard):
    """The model, as GET /v1/models shows it."""

    success: Literal[True]


def running_model_routes(models: ModelSet, settings: ServerSettings) -> Routes:
    routes = Routes("models", responses=ERROR_RESPONSES)
    admins = admin_ids(settings)

    async def change(request: Request, name: str, *, unloads: bool, loads: bool) -> Response:
        check_admin(request.scope, admins)
        model = models.registry.get(name)
        if unloads:
            if not model.async_engine.can_unload:
                raise ApiError(409, f"{model.name!r} has no process of its own to end", "model", "cannot_unload")
            task = models.begin(models.reload(model) if loads else models.unload(model))
            try:
                await run_while_connected(request.receive, asyncio.wait_for(asyncio.shield(task), settings.load_wait_s))
            except TimeoutError:
                message = f"requests of {model.name!r} still run; it is unloaded once they have ended"
                raise ApiError(503, message, "model", "model_busy", RETRY_SOON) from None
        if loads:
            model.async_engine.gate.load()
            await wait_until_ready(model, request.receive)
        card = card_of(model, model.name).model_dump(exclude_unset=True)
        return json_reply(ChangedModel(**card, success=True))

    @routes.post("/v1/models/load", response_model=ChangedModel)
    async def load_model(request: Request, body: NamedModel) -> Response:
        """Load an unloaded or failed model, and answer once it is ready."""
        return await change(request, body.model, unloads=False, loads=True)

    @routes.post("/v1/models/unload", response_model=ChangedModel)
    async def unload_model(request: Request, body: NamedModel) -> Response:
        """Free a model's memory once its requests have ended. The next request loads it again."""
        return await change(request, body.model, unloads=True, loads=False)

    @routes.post("/v1/models/reload", response_model=ChangedModel)
    async def reload_model(request: Request, body: NamedModel) -> Response:
        """Read a model's files again once its requests have ended, and answer once it is ready."""
        return await change(request, body.model, unloads=True, loads=True)

    return routes
