"""Additions to FastAPI's OpenAPI document: streams and keys."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fastapi import FastAPI
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

_SCHEMAS = "#/components/schemas/"


def streamed(chunk: type[BaseModel], *, has_done: bool = True) -> dict[str, Any]:
    """Return the 200 of a route that answers whole, or with stream=true as events with `chunk`s.

    Args:
        has_done: the last event is [DONE], after an error if there is one.
    """
    end = (
        ', the last one `[DONE]`. An error after the first event is an event, too: `data: {"error": {...}}`'
        if has_done
        else ". An error after the first event is an event, too"
    )
    schema = {"schema": {"type": "string"}, "x-event-data": {"$ref": _SCHEMAS + chunk.__name__}}
    return {
        "description": "Whole answer. With `stream: true`, server-sent events: the data of each is a "
        f"{chunk.__name__} as JSON{end}. Comments, which begin with a colon, keep the connection open.",
        "content": {"text/event-stream": schema},
    }


def describe(app: FastAPI, *, needs_key: bool, chunks: Sequence[type[BaseModel]]) -> dict[str, Any]:
    """Return FastAPI's document with the schemas of `chunks`, which no route returns whole, and the API key."""
    if app.openapi_schema is None:
        document = FastAPI.openapi(app)
        _, found = models_json_schema([(chunk, "serialization") for chunk in chunks], ref_template=_SCHEMAS + "{model}")
        document["components"]["schemas"] |= found["$defs"]
        if needs_key:
            document["components"]["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
            document["security"] = [{"key": []}]
    return FastAPI.openapi(app)
