"""The OpenAPI document: FastAPI's, and additions for streams and keys."""

from __future__ import annotations

import asyncio
import json
import pickle
import warnings
from collections.abc import Iterable, Sequence
from types import FunctionType
from typing import Any

from pydantic import BaseModel

import quire
from quire.server.http.routes import ApiRoute, Described
from quire.system.worker_process import Worker, WorkerLimits, WorkerProcess

_SCHEMAS = "#/components/schemas/"


def streamed(chunk: type[BaseModel], *, has_done: bool = True) -> dict[str, Any]:
    """Return the 200 of a route that answers whole, or with stream=true as events with `chunk`s. With `has_done` the
    last event is [DONE], after an error if there is one."""
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


class ApiDescription:
    """The document of an application, which a child process creates once: FastAPI and the schemas of all bodies take
    half a second and 60 MiB. `chunks` are schemas that no route returns whole."""

    def __init__(
        self, routes: Iterable[ApiRoute], *, root_path: str, needs_key: bool, chunks: Sequence[type[BaseModel]]
    ) -> None:
        self.routes = list(routes)
        self._settings = (root_path, needs_key, chunks)
        self._lock = asyncio.Lock()
        self._json: bytes | None = None

    async def json(self) -> bytes:
        async with self._lock:
            if self._json is None:
                question = pickle.dumps(([each.described() for each in self.routes], *self._settings))
                process = WorkerProcess(_make_describer, "OpenAPI", limits=WorkerLimits())
                self._json = await asyncio.to_thread(process.ask, question)
                process.close()
            return self._json


def _make_describer() -> Worker:
    return lambda question: json.dumps(_describe(*pickle.loads(question))).encode()


def _describe(
    routes: Iterable[Described], root_path: str, needs_key: bool, chunks: Sequence[type[BaseModel]]
) -> dict[str, Any]:
    from fastapi import FastAPI
    from pydantic.json_schema import models_json_schema

    def endpoint() -> None: ...

    warnings.simplefilter("ignore")  # of FastAPI: the schemas of our bodies are built late
    app = FastAPI(title="Quire", version=quire.__version__, servers=[{"url": root_path}] if root_path else None)
    for method, path, name, signature, text, about in routes:
        stub = FunctionType(endpoint.__code__, {}, name)
        stub.__doc__, stub.__signature__ = text, signature  # type: ignore[attr-defined]
        app.add_api_route(path, stub, methods=[method], **about)
    document = app.openapi()
    for path in document["paths"].values():
        for parameter in (parameter for operation in path.values() for parameter in operation.get("parameters", ())):
            if (text := parameter["schema"].get("description")) is not None:
                parameter["description"] = text
    _, found = models_json_schema([(chunk, "serialization") for chunk in chunks], ref_template=_SCHEMAS + "{model}")
    document["components"]["schemas"] |= found.get("$defs", {})
    if needs_key:
        document["components"]["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
        document["security"] = [{"key": []}]
    return document
