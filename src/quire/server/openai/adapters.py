"""POST /v1/load_lora_adapter and /v1/unload_lora_adapter, as vLLM has them, for admin keys."""

from __future__ import annotations

import asyncio
from typing import Annotated

from pydantic import Field
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from quire.async_engine.messages import EngineUnavailable
from quire.server.bodies.fields import Body, ModelBody, option
from quire.server.bodies.replies import ERROR_RESPONSES
from quire.server.errors import ApiError, invalid
from quire.server.generation.generation import as_api_error, wait_until_ready
from quire.server.http.keys import admin_ids
from quire.server.http.middleware import check_admin
from quire.server.http.routes import Routes
from quire.server.registry import AUTO, ModelRegistry
from quire.server.settings import ServerSettings

Name = Annotated[str, Field(min_length=1, max_length=256)]


class LoadAdapterRequest(ModelBody):
    """`model` is the one that the adapter was trained for."""

    lora_name: Name = Field(description="Name for requests: `model`.")
    lora_path: str = Field(min_length=1, max_length=4096, description="Directory on the server, in PEFT's format.")
    load_inplace: bool | None = option("Replace a loaded adapter of that name. Default false.")


class UnloadAdapterRequest(Body):
    lora_name: Name
    lora_int_id: int | None = option("Ignored.")


def adapter_routes(registry: ModelRegistry, settings: ServerSettings) -> Routes:
    routes = Routes("models", responses=ERROR_RESPONSES)
    admins, changing = admin_ids(settings), asyncio.Lock()

    @routes.post("/v1/load_lora_adapter", response_class=PlainTextResponse, summary="Load a LoRA adapter")
    async def load_adapter(request: Request, body: LoadAdapterRequest) -> Response:
        """Read an adapter from a directory of the server. Running requests of its model wait meanwhile."""
        check_admin(request.scope, admins)
        model = registry.get(body.model)
        await wait_until_ready(model, request.receive)
        async with changing:
            known = registry.adapters.get(body.lora_name)
            may_replace = known is not None and body.load_inplace and known.async_engine is model.async_engine
            if body.lora_name == AUTO or (body.lora_name in registry.names and not may_replace):
                message = f"the name {body.lora_name!r} is taken; load_inplace replaces an adapter of the same model"
                raise invalid(message, "lora_name")
            try:
                adapted = model.with_adapter(body.lora_name, body.lora_path)
                registry.check_names(adapted)
                await model.async_engine.adapters.load(body.lora_name, body.lora_path)
            except ValueError as error:
                raise invalid(str(error), "lora_path") from error
            except EngineUnavailable as error:
                raise as_api_error(error) from error
            registry.add(adapted)
        return PlainTextResponse(f"Success: LoRA adapter {body.lora_name!r} added successfully.")

    @routes.post("/v1/unload_lora_adapter", response_class=PlainTextResponse, summary="Unload a LoRA adapter")
    async def unload_adapter(request: Request, body: UnloadAdapterRequest) -> Response:
        """Take no more requests for an adapter. Running ones finish; then its memory is free."""
        check_admin(request.scope, admins)
        async with changing:
            model = registry.adapters.get(body.lora_name)
            if model is None:
                message = f"the adapter {body.lora_name!r} does not exist"
                raise ApiError(404, message, "lora_name", "model_not_found")
            registry.remove_adapter(body.lora_name)
            await model.async_engine.adapters.unload(body.lora_name)
        return PlainTextResponse(f"Success: LoRA adapter {body.lora_name!r} removed successfully.")

    return routes
