"""Open-loop load client: sends each request at its due time, independent of earlier answers. Latencies count from then:
counting from sending would hide a late client (coordinated omission)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import httpx

from quire.client.chunk import AnswerChunk, read_chunk
from quire.client.errors import RemoteError, error_from_exception, error_from_response
from quire.client.server_address import ServerAddress
from quire.client.sse import DONE, EventReader
from quire.system.machine import allow_many_files

PROBE_S = 0.02  #: interval of the event loop's lag probe
# One connection per request, as of many users. A kept connection may be closed while it is reused, which would count as
# the server's error; and httpx's pool takes a third of the client's time at 300 connections.
_LIMITS = httpx.Limits(max_connections=None, max_keepalive_connections=0)


@dataclass(frozen=True)
class PreparedRequest:
    """A request body and its due time."""

    arrival_s: float  #: due time, seconds after the start
    body: bytes
    num_prompt_tokens: int = 0  #: planned
    max_tokens: int = 0


@dataclass(slots=True)
class RequestOutcome:
    """Timings of one request, in seconds after the start of the load."""

    arrival_s: float  #: due time
    num_prompt_tokens: int  #: planned, or by the server's count
    max_tokens: int
    sent_s: float | None = None
    token_s: list[float] = field(default_factory=list)  #: time of each chunk with tokens
    num_counted_tokens: int | None = None  #: output tokens by the server's count
    finish_reason: str | None = None
    error: str | None = None  #: kind of the error
    error_message: str | None = None

    @property
    def is_complete(self) -> bool:
        return self.error is None

    @property
    def num_output_tokens(self) -> int:
        """The server's count, or the number of chunks."""
        return self.num_counted_tokens if self.num_counted_tokens is not None else len(self.token_s)

    def fail(self, error: RemoteError) -> None:
        self.error, self.error_message = error.kind, str(error)


@dataclass(frozen=True)
class LoadResult:
    """Outcomes of a load, and the client's own lag."""

    outcomes: list[RequestOutcome]
    wall_s: float  #: until the last request ended
    loop_lag_s: list[float]  #: lag of the event loop, every `PROBE_S`
    cpu_s: float  #: processor time of the client


class LoadClient:
    """Send a load to one route (`url`) of a server. `watch` is called periodically to show progress."""

    def __init__(
        self,
        endpoint: ServerAddress,
        url: str,
        *,
        timeout_s: float = 600.0,
        transport: httpx.AsyncBaseTransport | None = None,
        watch: Callable[[LoadClient], None] | None = None,
    ) -> None:
        self._endpoint = endpoint
        self._url = url
        self._timeout_s = timeout_s
        self._transport = transport
        self._watch = watch
        self._started = 0.0
        self.num_sent = 0
        self.num_ended = 0
        self.num_failed = 0

    async def run(self, requests: Sequence[PreparedRequest]) -> LoadResult:
        """Send all requests and wait until all ended."""
        allow_many_files()  # an open loop against a slow server holds many connections
        requests = sorted(requests, key=lambda request: request.arrival_s)
        outcomes = [RequestOutcome(r.arrival_s, r.num_prompt_tokens, r.max_tokens) for r in requests]
        self.num_sent = self.num_ended = self.num_failed = 0
        loop_lag_s: list[float] = []
        async with self._connect() as http:
            loop = asyncio.get_running_loop()
            cpu_before = time.process_time()
            self._started = loop.time()
            probe = asyncio.create_task(self._probe(loop_lag_s))
            try:
                async with asyncio.TaskGroup() as group:
                    for request, outcome in zip(requests, outcomes, strict=True):
                        await asyncio.sleep(max(0.0, self._started + request.arrival_s - loop.time()))
                        group.create_task(self._ask(http, request, outcome))
            finally:
                probe.cancel()
            wall_s = loop.time() - self._started
            return LoadResult(outcomes, wall_s, loop_lag_s, time.process_time() - cpu_before)

    async def ask(self, body: bytes) -> RequestOutcome:
        """Send one request now."""
        [outcome] = (await self.run([PreparedRequest(0.0, body)])).outcomes
        return outcome

    def _connect(self) -> httpx.AsyncClient:
        options = self._endpoint.client_options  # without a timeout: each request has its own deadline
        http = httpx.AsyncClient(limits=_LIMITS, timeout=None, transport=self._transport, **options)
        http.headers.update({"Content-Type": "application/json", "Accept-Encoding": "identity"})
        return http

    async def _ask(self, http: httpx.AsyncClient, request: PreparedRequest, outcome: RequestOutcome) -> None:
        loop = asyncio.get_running_loop()
        outcome.sent_s = loop.time() - self._started
        self.num_sent += 1
        try:
            async with asyncio.timeout_at(self._started + request.arrival_s + self._timeout_s):
                await self._receive(http, request.body, outcome)
        except TimeoutError:
            outcome.fail(RemoteError("timeout", f"{self._url}: no complete answer within {self._timeout_s:g} s"))
        except Exception as error:  # counted; other requests continue
            outcome.fail(error_from_exception(error, self._url))
        self.num_ended += 1
        self.num_failed += not outcome.is_complete

    async def _receive(self, http: httpx.AsyncClient, body: bytes, outcome: RequestOutcome) -> None:
        loop = asyncio.get_running_loop()
        async with http.stream("POST", self._url, content=body) as response:
            if response.status_code != 200:
                raise error_from_response(response.status_code, await response.aread(), self._url)
            reader = EventReader()
            async for piece in response.aiter_bytes():
                now = loop.time() - self._started
                for data in reader.feed(piece):
                    _record(data, outcome, now)
            for data in reader.close():
                _record(data, outcome, loop.time() - self._started)
        if outcome.finish_reason is None:
            raise RemoteError("truncated", f"{self._url}: the stream ended before the answer did")
        if not outcome.token_s:
            raise RemoteError("no_tokens", f"{self._url}: the answer has no token ({outcome.finish_reason})")

    async def _probe(self, lags: list[float]) -> None:
        """Record the event loop's lag."""
        loop = asyncio.get_running_loop()
        while True:
            due = loop.time() + PROBE_S
            await asyncio.sleep(PROBE_S)
            lags.append(loop.time() - due)
            if self._watch is not None:
                self._watch(self)


def _record(data: str, outcome: RequestOutcome, now: float) -> None:
    if data == DONE:
        return
    chunk: AnswerChunk = read_chunk(data)
    if chunk.is_token:
        outcome.token_s.append(now)
    if chunk.usage is not None:
        outcome.num_counted_tokens = chunk.usage.completion_tokens
        outcome.num_prompt_tokens = chunk.usage.prompt_tokens
    outcome.finish_reason = chunk.finish_reason or outcome.finish_reason
