"""JSON bodies: received, validated against their model, or rejected with the name of the field.

A child process parses large bodies: parsing holds the interpreter, and would block the engine's steps.
"""

from __future__ import annotations

import asyncio
import pickle
import reprlib
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar, cast, get_args

from fastapi.routing import APIRoute
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails
from starlette.requests import Request
from starlette.responses import Response

from quire.server.errors import RETRY_SOON, ApiError
from quire.system.worker_process import Worker, WorkerLimits, WorkerProcess

T = TypeVar("T", bound=BaseModel)
LARGE_BODY_BYTES = 256 * 1024  #: of token ids, this takes some 4 ms to parse
_NICENESS = 10  # of the child: a large body can wait, the engine cannot
_UNLIMITED = WorkerLimits(memory_bytes=None, cpu_s=None, wall_s=600.0)
_PRIMITIVES = {"str", "int", "float", "bool"}
_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = 60
_UNSUPPORTED = {"literal_error", "too_long", "none_required"}  # the field's description lists the accepted values


class BodyReader:
    """Reads bodies, large ones in a child process, which starts with the first of them.

    Args:
        ignore_unknown_fields: ignore unknown fields in place of rejecting them.
    """

    def __init__(self, *, ignore_unknown_fields: bool = False) -> None:
        self._parse = partial(parse, ignore_unknown_fields=ignore_unknown_fields)
        self._child = WorkerProcess(_make_worker, "body", limits=_UNLIMITED, niceness=_NICENESS)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="bodies")  # asks the child

    async def read(self, request: Request, kind: type[T]) -> T:
        """Return the body as a `kind`. Raises ApiError for an invalid one."""
        content_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if content_type != "application/json" and not content_type.endswith("+json"):
            # Browsers let a page of another origin send other types without asking: they must not reach a model.
            got = content_type or "nothing"
            raise ApiError(415, f"the body must be JSON; send Content-Type: application/json, not {got!r:.100}")
        raw = await request.body()
        return self._parse(raw, kind) if len(raw) < LARGE_BODY_BYTES else await self._parse_in_child(raw, kind)

    async def _parse_in_child(self, raw: bytes, kind: type[T]) -> T:
        question = pickle.dumps((self._parse, raw, kind))
        try:
            answer = await asyncio.get_running_loop().run_in_executor(self._thread, self._child.ask, question)
        except RuntimeError:  # the process ended, or `close` was called
            message = "the process that reads large bodies ended; try again"
            raise ApiError(503, message, headers=RETRY_SOON) from None
        value, error = pickle.loads(answer)
        if value is None:
            raise ApiError(**error)
        return cast(T, value)

    def close(self) -> None:
        """End the child process."""
        self._thread.shutdown(wait=False, cancel_futures=True)
        self._child.stop()


class JsonRoute(APIRoute):
    """A route for `async def endpoint(request, body: SomeModel, **path_params) -> Response`.

    OpenAPI shows the body like any other; the application's `BodyReader` (`app.state.bodies`) reads it.
    """

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        endpoint = self.endpoint
        assert self.body_field is not None
        kind: Any = self.body_field.field_info.annotation

        async def handle(request: Request) -> Response:
            bodies: BodyReader = request.app.state.bodies
            response: Response = await endpoint(request, await bodies.read(request, kind), **request.path_params)
            return response

        return handle


def parse(raw: bytes, kind: type[T], *, ignore_unknown_fields: bool = False) -> T:
    """Validate a body. Raises ApiError with the field at fault."""
    try:
        return kind.model_validate_json(raw, extra="ignore" if ignore_unknown_fields else None)
    except ValidationError as error:
        raise _rejection(error.errors(include_url=False, include_context=False), kind) from None


def _make_worker() -> Worker:
    def work(question: bytes) -> bytes:
        parse, raw, kind = pickle.loads(question)
        try:
            return pickle.dumps((parse(raw, kind), {}))
        except ApiError as error:
            return pickle.dumps((None, vars(error)))

    return work


def _rejection(errors: list[ErrorDetails], kind: Any) -> ApiError:
    first = errors[0]
    if first["type"] == "json_invalid":
        why = first["msg"].removeprefix("Invalid JSON: ")
        return ApiError(400, f"the body is not JSON: {why}", code="invalid_json")
    if not first["loc"]:
        return ApiError(400, "the body must be a JSON object", code="invalid_type")
    # An unsupported value (an image, a schema) says more than the unknown fields that come with it.
    unknown = [error for error in errors if error["type"] == "extra_forbidden"]
    if unknown and (len(unknown[0]["loc"]) == 1 or not any(error["type"] == "literal_error" for error in errors)):
        names = list(dict.fromkeys(map(_path, unknown)))[:10]
        return ApiError(
            400, f"not supported by this server: {', '.join(names)}; leave it out", names[0], "unknown_parameter"
        )
    same_field = [error for error in errors if error["loc"][0] == first["loc"][0] and error not in unknown]
    meant = max(same_field, key=_depth)  # of a union's members, the client meant the one that got furthest
    path, about = _path(meant), _description(kind, meant["loc"])
    if meant["type"] == "missing":
        return ApiError(400, f"{path} is missing: {about or 'it is required'}", path, "missing_required_parameter")
    reason = meant["msg"][:1].lower() + meant["msg"][1:]
    if about:
        reason = about if meant["type"] in _UNSUPPORTED or len(same_field) > 1 else f"{reason}. {about}"
    return ApiError(400, f"{path}={_SHORT.repr(meant['input'])} is not valid: {reason}", path, "invalid_value")


def _depth(error: ErrorDetails) -> tuple[int, int]:
    last = error["loc"][-1]
    return len(error["loc"]), last if isinstance(last, int) else 0


def _path(error: ErrorDetails) -> str:
    """Return the place in the body, such as messages[0].content."""
    path = ""
    for position, part in enumerate(error["loc"]):
        is_key = error["type"] == "extra_forbidden" and position == len(error["loc"]) - 1
        if isinstance(part, int):
            path += f"[{part}]"
        elif is_key or not ("[" in part or part in _PRIMITIVES or part.startswith("constrained-")):
            # The name of a union member's type is no part of the path.
            path += f".{part}" if path else part
    return f"{path:.200}"


def _description(kind: Any, loc: tuple[int | str, ...]) -> str | None:
    """Return the description of the innermost named field on the way to `loc`."""
    about = None
    for part in loc:
        model = _model_in(kind)
        if isinstance(part, str) and model is not None and part in model.model_fields:
            about, kind = model.model_fields[part].description, model.model_fields[part].annotation
    return about


def _model_in(annotation: Any) -> type[BaseModel] | None:
    """Return the model that a type is or contains: Message for list[Message] | None."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next(filter(None, map(_model_in, get_args(annotation))), None)
