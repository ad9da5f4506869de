"""ASGI middleware: access log, API keys, limits for clients, spellings of a path.

The log has nothing that a client said: no body, no query, no header but X-Request-Id. The length of the queue is the
engine's limit.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import logging
import re
import secrets
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from quire.core.block_keys import PUBLIC, DomainSpans, tenant_domain
from quire.server.errors import ERROR_CODE, RETRY_SOON, ApiError, ErrorResponse
from quire.server.http.body import BODY_PARSED, LARGE_BODY_BYTES
from quire.server.http.keys import key_id
from quire.server.listener import is_loopback
from quire.server.settings import ServerSettings

logger = logging.getLogger("quire.access")

#: Receives the path of the route, the method, the status and the error's code of each answer.
CountAnswer = Callable[[str, str, int, str | None], None]
_CLIENT_CLOSED = 499  # the client left before an answer started
_PLAIN_ID = re.compile(rb"[A-Za-z0-9._:-]{1,128}")
_MAX_PATH = 200
_OTHER = "other"
_HOLD = "hold_sequences"  #: key in the scope's state
PUBLIC_KEY_ID = "public"  #: every client's, on a server without keys
#: Supervisors and browsers have no key. The page at / asks for one.
_OPEN_PATHS = frozenset({"/health", "/livez", "/readyz", "/"})
PAGE_PATH = "/page/"  #: of the page's files, which are open too
#: Supervisors poll them every few seconds: the log has their answers at level debug only.
_POLLED_PATHS = frozenset({"/health", "/livez", "/readyz", "/metrics"})
_METRICS_PATHS = frozenset({"/metrics", "/version"})


class AccessLog:
    """Logs and counts every request at its end, and gives every answer an X-Request-Id. (ASGI middleware)

    The client's own id is used if it is plain; the id is ``scope["state"]["request_id"]``. This is the outermost
    middleware: it sees refusals too, and turns an uncaught exception into a 500 with the id. Requests to paths other
    than `paths` count together.
    """

    def __init__(
        self, app: ASGIApp, count: CountAnswer = lambda *answer: None, paths: frozenset[str] = frozenset()
    ) -> None:
        self.app = app
        self.count = count
        self.paths = paths

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        started = time.perf_counter()
        method, path = scope["method"], scope["path"][:_MAX_PATH]  # before middleware rewrites them
        given: bytes = dict(scope["headers"]).get(b"x-request-id", b"")
        request_id = given.decode() if _PLAIN_ID.fullmatch(given) else f"req-{secrets.token_hex(12)}"
        state = scope.setdefault("state", {})
        state["request_id"] = request_id
        status: int | None = None
        is_whole = False

        async def watch(message: Message) -> None:
            nonlocal status, is_whole
            if message["type"] == "http.response.start":
                status = message["status"]
                MutableHeaders(scope=message)["X-Request-Id"] = request_id
            elif message["type"] == "http.response.body":
                is_whole = not message.get("more_body", False)
            await send(message)

        try:
            await self.app(scope, receive, watch)
        except Exception:
            logger.exception("request %s failed", request_id)
            if status is not None:
                raise  # the server closes the connection, so that half an answer does not look complete
            message = f"the server made a mistake; its log has the details under {request_id}"
            await ErrorResponse(ApiError(500, message))(scope, receive, watch)
        finally:
            client = scope.get("client")
            fields = {
                "request_id": request_id,
                "client": client[0] if client else None,
                "key": state.get("key_id"),
                "method": method,
                "path": path,
                "status": status if status is not None else _CLIENT_CLOSED,
                "ms": round((time.perf_counter() - started) * 1000, 1),
                "model": state.get("model"),
                "prompt_tokens": state.get("prompt_tokens"),
                "completion_tokens": state.get("completion_tokens"),
                "cut_off": True if status is not None and not is_whole else None,
            }
            is_polled = scope["path"] in _POLLED_PATHS and status in (200, 503)
            logger.log(
                logging.DEBUG if is_polled else logging.INFO,
                "request",
                extra={"fields": {name: value for name, value in fields.items() if value is not None}},
            )
            if status is not None:
                route = scope.get("route")
                known = scope["path"] if scope["path"] in self.paths else _OTHER
                self.count(
                    route.path_format if route is not None else known, scope["method"], status, state.get(ERROR_CODE)
                )


def report_usage(scope: Scope, *, model: str, prompt_tokens: int = 0, completion_tokens: int = 0) -> None:
    """Report the model and the token counts of a request for its log line."""
    scope.setdefault("state", {}).update(model=model, prompt_tokens=prompt_tokens, completion_tokens=completion_tokens)


BODY_TIMEOUT_S = 60.0
BACKGROUND_HEADER = "x-quire-background"  #: 1 for requests that run only while no other does
UPLOAD_PATH = "/v1/files"  #: its bodies go to disk, piece by piece
MAX_HELD_BODIES = 32  #: large bodies of maximum size in memory at once; small ones are not counted
_READ_PAUSE_S = 0.001  # between two pieces of a large body: running streams need the cores


class LimitBody:
    """Reads the whole body first, except uploads, and rejects one that is too large or too slow. (ASGI middleware)

    An announced length is checked before a byte is read; a chunked body is read up to the limit. uvicorn reads and
    drops the rest of a rejected body, so that its client sees the answer. The total size of large bodies in memory is
    limited, too. A key may hold as many bytes as are free, so that other
    keys always find some.
    """

    def __init__(self, app: ASGIApp, settings: ServerSettings, timeout_s: float = BODY_TIMEOUT_S) -> None:
        self.app = app
        self.max_bytes = settings.max_body_bytes
        self.max_held = MAX_HELD_BODIES * max(settings.max_body_bytes, LARGE_BODY_BYTES)
        self.held: Counter[str] = Counter()  #: bytes of large bodies in memory, by key
        self.timeout_s = timeout_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or (scope["method"] == "POST" and scope["path"] == UPLOAD_PATH):
            await self.app(scope, receive, send)
            return
        body, held = bytearray(), _HeldBytes(self.held, key_id_of(scope))
        try:
            if int(dict(scope["headers"]).get(b"content-length", b"0")) > self.max_bytes:
                raise self._too_large()
            async with asyncio.timeout(self.timeout_s):
                is_complete = await self._read(body, held, receive)
        except ApiError as error:
            await ErrorResponse(error)(scope, receive, send)
        except TimeoutError:
            message = f"the body did not arrive within {self.timeout_s:g} s"
            await ErrorResponse(ApiError(408, message, code="request_timeout"))(scope, receive, send)
        else:
            if is_complete:
                messages: list[Message] = [{"type": "http.request", "body": bytes(body), "more_body": False}]
                body.clear()
                scope[BODY_PARSED] = held.set

                async def receive_again() -> Message:
                    return messages.pop() if messages else await receive()

                await self.app(scope, receive_again, send)
        finally:
            held.set(0)

    async def _read(self, body: bytearray, held: _HeldBytes, receive: Receive) -> bool:
        """Read the whole body. Returns False if the client left before its end."""
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                return False
            body += message.get("body", b"")
            if len(body) > self.max_bytes:
                raise self._too_large()
            if len(body) >= LARGE_BODY_BYTES:
                held.set(len(body))
                own = 0 if held.key_id == PUBLIC_KEY_ID else self.held[held.key_id]
                if self.held.total() + own > self.max_held:
                    what = f"large bodies of {self.held[held.key_id]:,} bytes of this key are being served"
                    raise ApiError(503, f"{what}; try again soon", code="too_many_large_bodies", headers=RETRY_SOON)
            if not message.get("more_body", False):
                return True
            if len(body) >= LARGE_BODY_BYTES:
                await asyncio.sleep(_READ_PAUSE_S)

    def _too_large(self) -> ApiError:
        return ApiError(
            413,
            f"the body is larger than {self.max_bytes:,} bytes, which is this server's limit; send less, or start the "
            "server with a larger --max-body-bytes",
            code="body_too_large",
        )


class _HeldBytes:
    """The part of one body in the sum of its key."""

    def __init__(self, sums: Counter[str], key_id: str) -> None:
        self.key_id = key_id
        self._sums = sums
        self._num_bytes = 0

    def set(self, num_bytes: int) -> None:
        self._sums[self.key_id] += num_bytes - self._num_bytes
        self._num_bytes = num_bytes
        if not self._sums[self.key_id]:
            del self._sums[self.key_id]


class Concurrency:
    """Rejects a key's POST while `limit` sequences of the key run, streams included. Needs `Authenticate` before it.
    (ASGI middleware)

    A POST counts once; one that generates, with all its sequences as soon as they are known (`hold_sequences`), until
    its task has ended, too. Cancelling is free: a key at its limit needs it.
    """

    def __init__(self, app: ASGIApp, limit: int) -> None:
        self.app = app
        self.limit = limit
        self.running: Counter[str] = Counter()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "POST" or scope["path"].endswith("/cancel"):
            await self.app(scope, receive, send)
            return
        key_id = key_id_of(scope)
        num_held, task = 0, None

        def hold(num: int, until: asyncio.Task[None] | None = None) -> None:
            nonlocal num_held, task
            if num > self.limit:
                raise ApiError(400, f"{num} sequences are more than the {self.limit} of an API key; lower n or prompts")
            if self.running[key_id] + num - num_held > self.limit:
                message = f"an API key may run {self.limit} sequences, and this one runs {self.running[key_id]}"
                raise ApiError(429, message + "; wait for one to end", code="rate_limit_exceeded", headers=RETRY_SOON)
            self.running[key_id] += num - num_held
            num_held, task = num, until
            if not self.running[key_id]:
                del self.running[key_id]

        scope.setdefault("state", {})[_HOLD] = hold
        try:
            hold(1)
        except ApiError as error:
            await ErrorResponse(error)(scope, receive, send)
            return
        try:
            await self.app(scope, receive, send)
        finally:
            if task is not None:
                task.add_done_callback(lambda _: hold(0))
            else:
                hold(0)


def hold_sequences(scope: Scope, num: int, until: asyncio.Task[None] | None = None) -> None:
    """Count a POST as `num` sequences of its key, until its task has ended, too. Raises ApiError above the limit."""
    if (hold := scope.get("state", {}).get(_HOLD)) is not None:
        hold(num, until)


class PlainPaths:
    """Rewrites each request to its plain path: without `root_path`, which a proxy may leave on, and with aliases (other
    path -> path) resolved. HEAD is answered like GET, without the body. (ASGI middleware)"""

    def __init__(self, app: ASGIApp, root_path: str = "", aliases: Mapping[str, str] | None = None) -> None:
        self.app = app
        self.root_path = root_path
        self.aliases = aliases or {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        path = scope["path"]
        if self.root_path and (path == self.root_path or path.startswith(self.root_path + "/")):
            path = path.removeprefix(self.root_path)
        path = path.rstrip("/") or "/"
        scope["path"] = self.aliases.get(path, path)
        if scope["method"] != "HEAD":
            await self.app(scope, receive, send)
            return

        async def send_no_body(message: Message) -> None:
            await send({**message, "body": b""} if message["type"] == "http.response.body" else message)

        scope["method"] = "GET"
        await self.app(scope, receive, send_no_body)


class Authenticate:
    """Accepts a key in ``Authorization: Bearer`` or ``x-api-key``, and puts its id in ``scope["state"]["key_id"]``.

    Every path but the probes, the page and, by option, /metrics and /version needs a key. Without keys, every request
    has `PUBLIC_KEY_ID`. (ASGI middleware)
    """

    def __init__(self, app: ASGIApp, settings: ServerSettings) -> None:
        self.app = app
        self._ids = {_digest(key.encode()): key_id(key, settings.tenant_secret) for key in settings.api_keys}
        self._open_paths = _OPEN_PATHS | (_METRICS_PATHS if settings.open_metrics else frozenset())

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            try:
                id_ = self._identify(scope["headers"]) if self._ids else PUBLIC_KEY_ID
                scope.setdefault("state", {})["key_id"] = id_
            except ApiError as error:
                if scope["path"] not in self._open_paths and not scope["path"].startswith(PAGE_PATH):
                    await ErrorResponse(error)(scope, receive, send)
                    return
        await self.app(scope, receive, send)

    def _identify(self, headers: Iterable[tuple[bytes, bytes]]) -> str:
        given = {name: value for name, value in headers if name in (b"authorization", b"x-api-key")}
        if not given:
            raise _rejection(
                "this server needs an API key; send the header Authorization: Bearer KEY, or x-api-key: KEY"
            )
        scheme, _, key = given.get(b"authorization", b"").partition(b" ")
        if scheme.lower() != b"bearer":  # a proxy may use that header for itself
            key = given.get(b"x-api-key", b"")
        if not key:
            raise _rejection("the API key is sent as Authorization: Bearer KEY, and this header says something else")
        digest = _digest(key.strip())
        # Compare all keys, so that the duration does not depend on which one matches.
        found = [known_id for known, known_id in self._ids.items() if hmac.compare_digest(digest, known)]
        if not found:
            raise _rejection("this API key is not known to the server")
        return found[0]


class CheckHost:
    """Rejects a Host header that names another machine, on a server that trusts its machine. (ASGI middleware)

    Else a web page could reach the server under a name of its own that resolves to this machine (DNS rebinding).
    """

    def __init__(self, app: ASGIApp, settings: ServerSettings) -> None:
        self.app = app
        self._known = {"localhost", settings.host.lower(), *(name.lower() for name in settings.allowed_hosts)}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        given = dict(scope.get("headers", ())).get(b"host", b"localhost").decode("latin-1").lower()
        name = given.rpartition("]")[0].removeprefix("[") or given.partition(":")[0]
        if "*" in self._known or name in self._known or name.endswith(".localhost") or is_loopback(name):
            await self.app(scope, receive, send)
            return
        message = (
            f"this server has no keys and accepts no requests for the host {name!r:.100}; use localhost, or start the "
            "server with --allowed-host NAME or --api-key KEY"
        )
        await ErrorResponse(ApiError(403, message, code="host_not_allowed"))(scope, receive, send)


def is_known(scope: Scope, settings: ServerSettings) -> bool:
    """Whether the client of an open path may see what the other paths show."""
    return not settings.api_keys or "key_id" in scope.get("state", {})


def key_id_of(scope: Scope) -> str:
    """Return the key id of a request; `PUBLIC_KEY_ID` without `Authenticate`."""
    found: str = scope.get("state", {}).get("key_id", PUBLIC_KEY_ID)
    return found


def check_admin(scope: Scope, admins: Collection[str]) -> None:
    """Raise ApiError unless the request has a key of `admins`. On a server without keys, every client is an admin."""
    if not is_admin(key_id_of(scope), admins):
        raise ApiError(403, f"{scope['path']} needs an admin key (--admin-key)", code="not_admin")


def is_admin(key_id: str, admins: Collection[str]) -> bool:
    return key_id == PUBLIC_KEY_ID or key_id in admins


def domains_of(key_id: str, settings: ServerSettings, salt: str | None = None) -> DomainSpans:
    """Return the sharing domain for a key's KV: its own, or public on a server without keys; a salt narrows it."""
    domain = tenant_domain(key_id, settings.tenant_secret or b"") if settings.api_keys else PUBLIC
    return ((0, domain if salt is None else domain.salted(salt)),)


def _digest(key: bytes) -> bytes:
    return hashlib.sha256(key).digest()  # of equal length: the time to compare does not depend on a key's length


def _rejection(message: str) -> ApiError:
    return ApiError(401, message, code="invalid_api_key", headers={"WWW-Authenticate": "Bearer"})
