"""/v1/collections/{name}/warm: compute the KV of passages before anybody asks, and ask how far it is."""

from __future__ import annotations

from dataclasses import fields
from typing import Annotated, Literal

from fastapi import APIRouter
from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response

from quire.server.bodies.fields import ModelBody, Reply, option
from quire.server.bodies.replies import json_reply
from quire.server.collections.kept_kv import KeptKV, Warming
from quire.server.collections.schema import RESPONSES
from quire.server.collections.service import CollectionService
from quire.server.http.auth import key_id_of
from quire.server.http.body import JsonRoute


class WarmRequest(ModelBody):
    endpoint: Literal["chat/completions", "completions"] | None = option(
        "Whose prompts will begin with the passages; by default conversations where the model has a chat template."
    )
    template: Annotated[str, Field(max_length=8192)] | None = option(
        "The form that requests will name, with {documents} and {question}; by default the usual one."
    )


class WarmReply(Reply):
    collection: str
    model: str
    endpoint: str
    status: str = Field(description="running, done or failed.")
    num_passages: int
    num_done: int
    num_computed_tokens: int
    num_cached_tokens: int = Field(description="Whose KV was there.")
    errors: list[str] = Field(description="The first few.")


class WarmList(Reply):
    object: Literal["list"]
    data: list[WarmReply]


def warm_routes(service: CollectionService, kept: KeptKV) -> APIRouter:
    """The routes, over the collections of `service`."""
    router = APIRouter(tags=["collections"], responses=RESPONSES)
    with_bodies = APIRouter(route_class=JsonRoute)
    path = "/v1/collections/{name}/warm"

    @with_bodies.post(path, response_model=WarmReply, status_code=202, summary="Prepare the KV of passages")
    async def warm(request: Request, body: WarmRequest, name: str) -> Response:
        key_id = key_id_of(request.scope)
        await service.run(lambda: service.find_own(key_id, name), name)  # or it may not be changed
        collection = await service.run(lambda: service.find(key_id, name), name)
        warming = await kept.warm(collection, name, body.model, body.endpoint, body.template, request.receive)
        return Response(_reply(warming).model_dump_json(), 202, media_type="application/json")

    @router.get(path, response_model=WarmList, summary="How far the KV of passages is prepared")
    async def list_warmings(request: Request, name: str) -> Response:
        key_id = key_id_of(request.scope)
        collection = await service.run(lambda: service.find(key_id, name), name)
        return json_reply(WarmList(object="list", data=[_reply(each) for each in kept.warmings(collection.id)]))

    router.include_router(with_bodies)
    return router


def _reply(warming: Warming) -> WarmReply:
    return WarmReply(**{each.name: getattr(warming, each.name) for each in fields(warming) if each.repr})
