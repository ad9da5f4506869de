"""Routes of the API, which Starlette serves. FastAPI only describes them: importing it takes longer than a server's
other imports together (`openapi.py`)."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine, Iterator
from functools import cached_property, partialmethod
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match, Route
from starlette.types import Scope

from quire.server.errors import invalid

Endpoint = Callable[..., Coroutine[Any, Any, Response]]
E = TypeVar("E", bound=Endpoint)
#: Method, path, name, parameters, documentation and FastAPI's arguments of a route; can be pickled.
Described = tuple[str, str, str, inspect.Signature, str | None, dict[str, Any]]


class ApiRoute(Route):
    """A route to `async def endpoint(request, body: SomeModel, **path_and_query) -> Response`; all are optional.

    The application's `BodyReader` (`app.state.bodies`) reads the body. `about` describes the route to FastAPI.
    """

    def __init__(self, method: str, path: str, call: Endpoint, about: dict[str, Any]) -> None:
        super().__init__(path, self._answer, methods=[method], name=about.pop("name", call.__name__))
        self.method, self.about = method, about
        self._call = call

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        match, found = super().matches(scope)
        return match, {**found, "route": self}  # for the middleware that counts requests

    @cached_property
    def signature(self) -> inspect.Signature:
        return inspect.signature(self._call, eval_str=True)

    @property
    def summary(self) -> str:
        """The summary, by default as FastAPI makes it."""
        return str(self.about.get("summary") or self.name.replace("_", " ").title())

    def described(self) -> Described:
        return self.method, self.path, self.name, self.signature, self._call.__doc__, self.about

    @cached_property
    def _query(self) -> dict[str, TypeAdapter[Any]]:
        others = {"request", "body", *self.param_convertors}
        parameters = self.signature.parameters.values()
        return {each.name: TypeAdapter(each.annotation) for each in parameters if each.name not in others}

    async def _answer(self, request: Request) -> Response:
        values: dict[str, Any] = dict(request.path_params)
        for name, kind in self._query.items():
            if (text := request.query_params.get(name)) is not None:
                try:
                    values[name] = kind.validate_python(text)
                except ValidationError as error:
                    why = error.errors(include_url=False)[0]["msg"].lower()
                    raise invalid(f"{name}={text!r:.100} is not valid: {why}", name) from None
        parameters = self.signature.parameters
        if "body" in parameters:
            values["body"] = await request.app.state.bodies.read(request, parameters["body"].annotation)
        if "request" in parameters:
            values["request"] = request
        return await self._call(**values)


class Routes:
    """A list of routes with common tags and responses. Its decorators take FastAPI's keyword arguments."""

    def __init__(self, *tags: str, responses: dict[int | str, dict[str, Any]] | None = None) -> None:
        self._tags, self._responses = list(tags), responses or {}
        self._routes: list[ApiRoute] = []

    def __iter__(self) -> Iterator[ApiRoute]:
        return iter(self._routes)

    def _add(self, method: str, path: str, **about: Any) -> Callable[[E], E]:
        about = {"tags": self._tags, **about, "responses": self._responses | about.get("responses", {})}

        def add(endpoint: E) -> E:
            self._routes.append(ApiRoute(method, path, endpoint, about))
            return endpoint

        return add

    get, post, delete = partialmethod(_add, "GET"), partialmethod(_add, "POST"), partialmethod(_add, "DELETE")
