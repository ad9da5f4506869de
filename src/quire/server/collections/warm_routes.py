"""/v1/collections/{name}/warm: compute the KV of passages ahead of requests, and show the progress."""

from __future__ import annotations

from dataclasses import fields
from typing import Annotated, Literal

from fastapi import APIRouter
from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response

from quire.server.bodies.fields import ModelBody, Reply, option
from quire.server.bodies.replies import json_reply
from quire.server.collections.passage_kv import PassageKV, Warming
from quire.server.collections.schema import RESPONSES
from quire.server.collections.service import CollectionService
from quire.server.http.auth import key_id_of
from quire.server.http.body import JsonRoute


class WarmRequest(ModelBody):
    endpoint: Literal["chat/completions", "completions"] | None = option(
        "Endpoint of the prompts. Default: chat/completions for models with a chat template, else completions."
    )
    template: Annotated[str, Field(max_length=8192)] | None = option(
        "Template that requests will use, with {documents} followed by {question}."
    )


class WarmReply(Reply):
    collection: str
    model: str
    endpoint: str
    status: str = Field(description="One of running, done and failed.")
    num_passages: int
    num_done: int
    num_computed_tokens: int
    num_cached_tokens: int = Field(description="Tokens whose KV existed.")
    errors: list[str] = Field(description="First ten errors.")


class WarmList(Reply):
    object: Literal["list"]
    data: list[WarmReply]


def warm_routes(service: CollectionService, passage_kv: PassageKV) -> APIRouter:
    router = APIRouter(tags=["collections"], responses=RESPONSES)
    with_bodies = APIRouter(route_class=JsonRoute)
    path = "/v1/collections/{name}/warm"

    @with_bodies.post(path, response_model=WarmReply, status_code=202, summary="Compute the KV of passages")
    async def warm(request: Request, body: WarmRequest, name: str) -> Response:
        key_id = key_id_of(request.scope)
        await service.run(lambda: service.find_own(key_id, name), name)  # checks the right to change it
        collection = await service.run(lambda: service.find(key_id, name), name)
        warming = await passage_kv.warm(collection, name, body.model, body.endpoint, body.template, request.receive)
        return Response(_reply(warming).model_dump_json(), 202, media_type="application/json")

    @router.get(path, response_model=WarmList, summary="Show the progress of computing KV")
    async def list_warmings(request: Request, name: str) -> Response:
        key_id = key_id_of(request.scope)
        collection = await service.run(lambda: service.find(key_id, name), name)
        return json_reply(WarmList(object="list", data=[_reply(each) for each in passage_kv.warmings(collection.id)]))

    router.include_router(with_bodies)
    return router


def _reply(warming: Warming) -> WarmReply:
    return WarmReply(**{each.name: getattr(warming, each.name) for each in fields(warming) if each.repr})
