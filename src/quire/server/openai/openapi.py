"""The OpenAPI document's additions to what FastAPI reads from the routes: streams and keys."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fastapi import FastAPI
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

_SCHEMAS = "#/components/schemas/"


def streamed(chunk: type[BaseModel], *, has_done: bool = True) -> dict[str, Any]:
    """The 200 of a route that answers whole, or, with stream=true, as events whose data are `chunk`s.

    Args:
        has_done: the last event is [DONE], and one before it may be an error; else both are events like the others.
    """
    reference = {"$ref": _SCHEMAS + chunk.__name__}
    end = (
        ', that of the last one `[DONE]`. What fails after the first event is an event too: `data: {"error": {...}}`'
        if has_done
        else ". What fails after the first event is an event too"
    )
    return {
        "description": "The whole answer. With `stream: true`, server-sent events: the data of each is a "
        f"{chunk.__name__} as JSON{end}. Comments, which begin with a colon, keep the connection open.",
        "content": {"text/event-stream": {"schema": {"type": "string"}, "x-event-data": reference}},
    }


def describe(app: FastAPI, *, needs_key: bool, chunks: Sequence[type[BaseModel]]) -> dict[str, Any]:
    """The document: FastAPI's, with what streams are made of, and the key that requests need.

    Args:
        chunks: of streams, which no route answers whole, so that FastAPI does not know them.
    """
    if app.openapi_schema is None:
        document = FastAPI.openapi(app)
        _, found = models_json_schema([(chunk, "serialization") for chunk in chunks], ref_template=_SCHEMAS + "{model}")
        document["components"]["schemas"] |= found["$defs"]
        if needs_key:
            document["components"]["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
            document["security"] = [{"key": []}]
    return FastAPI.openapi(app)
