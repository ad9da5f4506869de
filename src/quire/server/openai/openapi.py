"""The OpenAPI document: FastAPI's, and additions for streams and keys."""

from __future__ import annotations

import asyncio
import inspect
import json
import pickle
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

import quire
from quire.server.http.routes import ApiRoute
from quire.system.worker_process import Worker, WorkerLimits, WorkerProcess

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


@dataclass(frozen=True)
class _Described:
    """A route without its code."""

    method: str
    path: str
    name: str
    signature: inspect.Signature
    text: str | None
    about: dict[str, Any]


class ApiDescription:
    """The document of an application, which a child process creates once: FastAPI and the schemas of all bodies take
    half a second and 60 MiB.

    Args:
        needs_key: clients need an API key.
        chunks: schemas that no route returns whole.
    """

    def __init__(
        self, routes: Iterable[ApiRoute], *, root_path: str, needs_key: bool, chunks: Sequence[type[BaseModel]]
    ) -> None:
        self._routes = list(routes)
        self._settings = (root_path, needs_key, chunks)
        self._process = WorkerProcess(_make_describer, "OpenAPI", limits=WorkerLimits())
        self._lock = asyncio.Lock()
        self._json: bytes | None = None

    async def json(self) -> bytes:
        """Return the document."""
        async with self._lock:
            if self._json is None:
                described = [
                    _Described(each.method, each.path, each.name, each.signature, each.description, each.about)
                    for each in self._routes
                ]
                question = pickle.dumps((described, *self._settings))
                self._json = await asyncio.to_thread(self._process.ask, question)
                self._process.close()
            return self._json

    def close(self) -> None:
        """End the child process."""
        self._process.stop()


def _make_describer() -> Worker:
    return lambda question: json.dumps(_describe(*pickle.loads(question))).encode()


def _describe(
    described: Sequence[_Described], root_path: str, needs_key: bool, chunks: Sequence[type[BaseModel]]
) -> dict[str, Any]:
    from fastapi import FastAPI
    from pydantic.json_schema import models_json_schema

    servers = [{"url": root_path}] if root_path else None
    app = FastAPI(title="Quire", version=quire.__version__, servers=servers)
    for each in described:
        app.add_api_route(each.path, _stub(each), methods=[each.method], name=each.name, **each.about)
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


def _stub(described: _Described) -> Any:
    """Return a function that FastAPI describes like the endpoint."""

    def endpoint() -> None: ...

    endpoint.__name__, endpoint.__doc__ = described.name, described.text
    endpoint.__signature__ = described.signature  # type: ignore[attr-defined]
    return endpoint
