"""JSON bodies: received, validated against their model, or rejected with the name of the field.

Child processes parse large bodies: parsing holds the interpreter, and would block the event loop and the engine's
steps. One key uses one of them at a time, and each has limits of time and memory.
"""

from __future__ import annotations

import asyncio
import pickle
import reprlib
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar, get_args
from weakref import WeakValueDictionary

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails
from starlette.requests import Request

from quire.server.errors import RETRY_SOON, ApiError
from quire.server.http.protocol import run_while_connected
from quire.system.worker_process import Worker, WorkerKilled, WorkerLimits, WorkerProcess, WorkerTimeout

T = TypeVar("T", bound=BaseModel)
LARGE_BODY_BYTES = 256 * 1024  #: of text, this takes some 1 ms to parse
BODY_PARSED = "quire.body_parsed"  #: key of a callback in the ASGI scope; it receives the remaining bytes
_MANY_VALUES = 8192  # separators of a body that takes some 10 ms to parse, at most
_MAX_ERRORS = 1000  # to describe; each takes some microseconds
_MAX_UNITS = 1 << 18  # of a parsed body; loading its pickle in the event loop takes some 30 ms
_UNITS_OF_CONTAINER = 8  # a string is one unit
_NUM_CHILDREN = 2
_NICENESS = 10  # of the children: a large body can wait, the engine cannot
_PRIMITIVES = {"str", "int", "float", "bool"}
_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = 60
_UNSUPPORTED = {"literal_error", "too_long", "none_required"}  # the field's description lists the accepted values


class BodyReader:
    """Reads bodies, large ones in child processes, which start with the first of them. The children's limits follow
    from `max_body_bytes`."""

    def __init__(self, *, ignore_unknown_fields: bool = False, max_body_bytes: int = 8 << 20) -> None:
        self._parse = partial(parse, ignore_unknown_fields=ignore_unknown_fields)
        cpu_s = 10 + 2 * (max_body_bytes >> 20)
        limits = WorkerLimits(memory_bytes=(256 << 20) + 64 * max_body_bytes, cpu_s=cpu_s, wall_s=4 * cpu_s)
        self._children = [
            WorkerProcess(_make_worker, "body", limits=limits, niceness=_NICENESS) for _ in range(_NUM_CHILDREN)
        ]
        self._idle = list(self._children)
        self._places = asyncio.Semaphore(_NUM_CHILDREN)
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()  #: by key
        self._threads = ThreadPoolExecutor(_NUM_CHILDREN, thread_name_prefix="bodies")  # they ask the children
        self._is_closed = False

    async def read(self, request: Request, kind: type[T]) -> T:
        """Return the body as a `kind`. Raises ApiError for an invalid one."""
        content_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if content_type != "application/json" and not content_type.endswith("+json"):
            # Browsers let a page of another origin send other types without asking: they must not reach a model.
            got = content_type or "nothing"
            raise ApiError(415, f"the body must be JSON; send Content-Type: application/json, not {got!r:.100}")
        raw = b"".join([piece async for piece in request.stream()])  # unlike `body()`, keeps no reference
        if len(raw) < LARGE_BODY_BYTES and sum(map(raw.count, (b",", b"[", b"{"))) < _MANY_VALUES:
            return self._parse(raw, kind)
        question = pickle.dumps((self._parse, raw, kind))
        del raw
        work = self._ask_child(question, request.scope.get("state", {}).get("key_id", ""))
        del question
        value, num_bytes, error = pickle.loads(await run_while_connected(request.receive, work))
        if value is None:
            raise ApiError(**error)
        if (on_parsed := request.scope.get(BODY_PARSED)) is not None:
            on_parsed(num_bytes)
        found: T = value
        return found

    async def _ask_child(self, question: bytes, key_id: str) -> bytes:
        """Return a child's answer. Cancelling ends the child."""
        lock = self._locks.setdefault(key_id, asyncio.Lock())
        async with lock, self._places:
            child = self._idle.pop()
            try:
                work = asyncio.get_running_loop().run_in_executor(self._threads, child.ask, question)
                try:
                    return await asyncio.shield(work)
                finally:
                    if not work.done():
                        child.interrupt()
                        await asyncio.wait({work})
                        work.exception()  # marks it as retrieved
            except (RuntimeError, ValueError) as error:
                if self._is_closed or isinstance(error, WorkerTimeout | WorkerKilled):
                    message = "the process that reads large bodies ended; try again"
                    raise ApiError(503, message, headers=RETRY_SOON) from None
                message = "the body takes more time or memory to read than one body may; send a smaller or plainer one"
                raise ApiError(400, message, code="body_too_complex") from None
            finally:
                self._idle.append(child)

    def close(self) -> None:
        """End the child processes."""
        self._is_closed = True
        self._threads.shutdown(wait=False, cancel_futures=True)
        for child in self._children:
            child.stop()


def parse(raw: bytes, kind: type[T], *, ignore_unknown_fields: bool = False) -> T:
    """Validate a body. Raises ApiError with the field at fault."""
    try:
        return kind.model_validate_json(raw, extra="ignore" if ignore_unknown_fields else None)
    except ValidationError as error:
        if (count := error.error_count()) > _MAX_ERRORS:
            message = f"the body has {count:,} unknown fields or invalid values; GET /openapi.json describes the fields"
            raise ApiError(400, message, code="invalid_value") from None
        raise _rejection(error.errors(include_url=False, include_context=False), kind) from None


def _make_worker() -> Worker:
    def work(question: bytes) -> bytes:
        parse, raw, kind = pickle.loads(question)
        try:
            value = parse(raw, kind)
            units, num_bytes = _weigh(value)
            if units > _MAX_UNITS:
                limit = _MAX_UNITS // _UNITS_OF_CONTAINER
                message = f"the body has too many parts: {limit:,} objects and lists are allowed; send several requests"
                raise ApiError(400, message, code="body_too_complex")
            return pickle.dumps((value, num_bytes, {}))
        except ApiError as error:
            return pickle.dumps((None, 0, vars(error)))

    return work


def _weigh(body: BaseModel) -> tuple[int, int]:
    """Return the units of a parsed body, which its pickle takes time for, and the bytes that it holds in memory."""
    units = num_bytes = 0
    rest: list[Any] = [body]
    while rest:
        part = rest.pop()
        if isinstance(part, str):
            units += 1
            num_bytes += len(part)
        elif isinstance(part, BaseModel | dict | list):
            units += _UNITS_OF_CONTAINER
            num_bytes += 8 * len(part) if isinstance(part, list) else 0
            fields: Any = part.__dict__ if isinstance(part, BaseModel) else part
            if isinstance(fields, dict):
                rest.extend(fields)
                fields = fields.values()
            rest.extend(each for each in fields if not isinstance(each, int | float | None))
    return units, num_bytes


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
    same_field = [
        error for error in errors if error["loc"][0] == first["loc"][0] and error["type"] != "extra_forbidden"
    ]
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
