"""JSON bodies: collected, checked against their model, and refused in words that name the field.

A large body is parsed in a child process: parsing holds the interpreter, and a step of the engine waits for it.
"""

from __future__ import annotations

import asyncio
import os
import pickle
import reprlib
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import IO, Any, TypeVar, cast, get_args

from fastapi.routing import APIRoute
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails
from starlette.requests import Request
from starlette.responses import Response

from quire.server.errors import RETRY_SOON, ApiError
from quire.system.worker_process import Worker, WorkerLimits, WorkerProcess

T = TypeVar("T", bound=BaseModel)
#: By the models' names, None for the default one: raises `ApiError` for a body that cannot be served, whatever else is
#: in it. Survives pickling, since a child process asks it.
Limits = Mapping[str | None, Callable[[Any], None]]
LARGE_BODY_BYTES = 256 * 1024  #: of token ids, this takes some 4 ms to parse
LARGE_BODY = "quire.large_body"  #: in the ASGI scope of a request with a large body: its `ReceivedBody`
_NICENESS = 10  # of the child: a large body can wait, the engine cannot
_UNLIMITED = WorkerLimits(memory_bytes=None, cpu_s=None, wall_s=600.0)
_PRIMITIVES = {"str", "int", "float", "bool"}
_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = 60
_UNSUPPORTED = {"literal_error", "too_long", "none_required"}  # here the field's description says what is taken


class ReceivedBody:
    """The bytes of a body while they arrive.

    A large body lies where a child process reads it, so that nobody joins, copies or sends its bytes: that would hold
    up every stream. On Linux it lies in memory, elsewhere in a temporary file.
    """

    def __init__(self) -> None:
        self.size = 0
        self._pieces: list[bytes] = []
        self._file: IO[bytes] | None = None
        self._path = ""

    @property
    def is_large(self) -> bool:
        return self.size >= LARGE_BODY_BYTES

    def add(self, piece: bytes) -> None:
        self.size += len(piece)
        self._pieces.append(piece)
        if self.is_large:
            file = self._file or self._open()
            while self._pieces:
                file.write(self._pieces.pop(0))

    def _open(self) -> IO[bytes]:
        if hasattr(os, "memfd_create"):
            self._file = os.fdopen(os.memfd_create("body"), "w+b", buffering=0)
            self._path = f"/proc/{os.getpid()}/fd/{self._file.fileno()}"
        else:
            self._file = NamedTemporaryFile(prefix="body-", buffering=0)  # noqa: SIM115 - `close` closes it
            self._path = self._file.name
        return self._file

    def take_path(self) -> str:
        """Where any process of this user can read a large body, until `close`; `take` then gives nothing."""
        path, self._path = self._path, ""
        return path

    def take(self) -> bytes:
        """The whole body, once: whoever parses it decides how long it stays in memory."""
        if self._file is None:
            pieces, self._pieces = self._pieces, []
            return b"".join(pieces)
        return Path(path).read_bytes() if (path := self.take_path()) else b""

    def close(self) -> None:
        if self._file is not None:
            self._file.close()


class BodyReader:
    """Owns the child process that parses large bodies; it starts with the first of them.

    Args:
        prompt_limits: gives the limits of the models that were loaded, by name. A large body with a longer prompt ends
            in the child.
        ignore_unknown_fields: in place of refusing them.
    """

    def __init__(self, prompt_limits: Callable[[], Limits] = dict, *, ignore_unknown_fields: bool = False) -> None:
        self._prompt_limits = prompt_limits
        self._parse = partial(parse, ignore_unknown_fields=ignore_unknown_fields)
        self._child = WorkerProcess(_make_worker, "body", limits=_UNLIMITED, niceness=_NICENESS)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="bodies")  # asks the child

    async def read(self, request: Request, kind: type[T]) -> T:
        """The body as a `kind`."""
        content_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if content_type != "application/json" and not content_type.endswith("+json"):
            # A page of another origin may send other types without asking: they must not reach a model.
            got = content_type or "nothing"
            raise ApiError(415, f"the body must be JSON; send Content-Type: application/json, not {got!r:.100}")
        large: ReceivedBody | None = request.scope.get(LARGE_BODY)
        if large is None:
            return self._parse(await request.body(), kind)
        return await self._parse_in_child(large.take_path(), kind)

    async def _parse_in_child(self, path: str, kind: type[T]) -> T:
        limits = await asyncio.to_thread(self._prompt_limits)
        question = pickle.dumps((self._parse, path, kind, limits))
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
    """A route whose endpoint takes the request and its body: `async def ask(request, body: SomeModel) -> Response`.
    The parameters of its path, which are texts, follow by their names.

    OpenAPI shows the body like any other; reading it is up to the application's `BodyReader` (`app.state.bodies`).
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
    """A checked body; the `ApiError` of a bad one names the field at fault."""
    try:
        return kind.model_validate_json(raw, extra="ignore" if ignore_unknown_fields else None)
    except ValidationError as error:
        raise _refusal(error.errors(include_url=False, include_context=False), kind) from None


def _try_parse(
    parse: Callable[[bytes, type[T]], T], path: str, kind: type[T], limits: Limits
) -> tuple[T | None, dict[str, Any]]:
    try:
        value = parse(Path(path).read_bytes(), kind)
        if (check := limits.get(getattr(value, "model", None))) is not None:
            check(value)
        return value, {}
    except ApiError as error:
        return None, {"status": error.status, "message": error.message, "param": error.param, "code": error.code}


def _make_worker() -> Worker:
    return lambda question: pickle.dumps(_try_parse(*pickle.loads(question)))


def _refusal(errors: list[ErrorDetails], kind: Any) -> ApiError:
    first = errors[0]
    if first["type"] == "json_invalid":
        why = first["msg"].removeprefix("Invalid JSON: ")
        return ApiError(400, f"the body is not JSON: {why}", code="invalid_json")
    if not first["loc"]:
        return ApiError(400, "the body must be a JSON object", code="invalid_type")
    # A value that is not served (an image, a schema) says more than the fields that come with it.
    unknown = [error for error in errors if error["type"] == "extra_forbidden"]
    if unknown and (len(unknown[0]["loc"]) == 1 or not any(error["type"] == "literal_error" for error in errors)):
        names = list(dict.fromkeys(map(_path, unknown)))[:10]
        return ApiError(
            400, f"not supported by this server: {', '.join(names)}; leave it out", names[0], "unknown_parameter"
        )
    of_field = [error for error in errors if error["loc"][0] == first["loc"][0] and error not in unknown]
    meant = max(of_field, key=_depth)  # of a union's members, the client meant the one that came furthest
    path, about = _path(meant), _description(kind, meant["loc"])
    if meant["type"] == "missing":
        return ApiError(400, f"{path} is missing: {about or 'it must be given'}", path, "missing_required_parameter")
    reason = meant["msg"][:1].lower() + meant["msg"][1:]
    if about:
        reason = about if meant["type"] in _UNSUPPORTED or len(of_field) > 1 else f"{reason}. {about}"
    return ApiError(400, f"{path}={_SHORT.repr(meant['input'])} is not valid: {reason}", path, "invalid_value")


def _depth(error: ErrorDetails) -> tuple[int, int]:
    last = error["loc"][-1]
    return len(error["loc"]), last if isinstance(last, int) else 0


def _path(error: ErrorDetails) -> str:
    """Where in the body: messages[0].content."""
    path = ""
    for position, part in enumerate(error["loc"]):
        is_key = error["type"] == "extra_forbidden" and position == len(error["loc"]) - 1
        if isinstance(part, int):
            path += f"[{part}]"
        elif is_key or not ("[" in part or part in _PRIMITIVES or part.startswith("constrained-")):
            # Not a union member's type, whose name is no part of the body.
            path += f".{part}" if path else part
    return f"{path:.200}"


def _description(kind: Any, loc: tuple[int | str, ...]) -> str | None:
    """The description of the innermost named field on the way to `loc`."""
    about = None
    for part in loc:
        model = _model_in(kind)
        if isinstance(part, str) and model is not None and part in model.model_fields:
            about, kind = model.model_fields[part].description, model.model_fields[part].annotation
    return about


def _model_in(annotation: Any) -> type[BaseModel] | None:
    """The model that a type is, or holds: Message of list[Message] | None."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next(filter(None, map(_model_in, get_args(annotation))), None)
