"""GET /v1/models: the served models and their states."""

from __future__ import annotations

from typing import Literal

from fastapi import APIRouter
from pydantic import Field
from starlette.responses import Response

from quire.async_engine.messages import ModelState
from quire.server.openai.endpoint import json_reply
from quire.server.openai.schema import ERROR_RESPONSES, Reply
from quire.server.registry import ModelRegistry, ServedModel


class ModelCard(Reply):
    id: str = Field(description="The name by which it is asked for.")
    object: Literal["model"]
    created: int = Field(description="Seconds since 1970.")
    owned_by: str
    root: str = Field(description="The directory, hub id or preset that it was loaded from.")
    state: Literal["loading", "ready", "failed", "draining"]
    max_model_len: int | None = Field(default=None, description="The longest sequence, once it is loaded.")
    vocab_size: int | None = Field(default=None, description="Token ids go from 0 to one less, once it is loaded.")
    error: str | None = Field(default=None, description="Why it failed.")


class ModelList(Reply):
    object: Literal["list"]
    data: list[ModelCard]


def model_routes(registry: ModelRegistry) -> APIRouter:
    """The routes, over the models of `registry`."""
    router = APIRouter(tags=["models"])

    @router.get("/v1/models", response_model=ModelList, responses=ERROR_RESPONSES, summary="The models")
    async def list_models() -> Response:
        return json_reply(ModelList(object="list", data=[_card(model) for model in registry]))

    @router.get("/v1/models/{model:path}", response_model=ModelCard, responses=ERROR_RESPONSES, summary="One model")
    async def show_model(model: str) -> Response:
        return json_reply(_card(registry.get(model)))

    return router


def _card(model: ServedModel) -> ModelCard:
    state = model.async_engine.state
    card = ModelCard(
        id=model.name,
        object="model",
        created=model.created,
        owned_by="quire",
        root=model.source or model.name,
        state=state.value,
    )
    if state is ModelState.READY:
        card.max_model_len = model.async_engine.engine.max_model_len
        card.vocab_size = model.async_engine.engine.vocab_size
    if model.async_engine.error is not None:
        card.error = model.async_engine.error
    return card
