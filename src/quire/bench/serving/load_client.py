"""The load itself: requests are sent when they are due, whatever became of those before them.

Everything about a request is prepared before the first is sent, and nothing is reckoned before the last has ended, so
that the client is never late with the others. By how much it was late all the same is part of the result: a latency
that counted from the moment of sending would hide it (coordinated omission), so latencies count from when a request
was due.
"""

from __future__ import annotations

import asyncio
import resource
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import httpx

from quire.client.chunk import AnswerChunk, read_chunk
from quire.client.errors import RemoteError, of_exception, of_response
from quire.client.server_address import ServerAddress
from quire.client.sse import DONE, EventReader

PROBE_S = 0.02  #: how often the event loop is asked how late it is
# Each request has a connection of its own, as each of many users has. One that is kept breaks if the server closes it
# in the instant in which it is used again, which would count as the server's error; and httpx's pool compares all its
# connections with all idle ones at every request: a third of the client's time at 300 of them.
_LIMITS = httpx.Limits(max_connections=None, max_keepalive_connections=0)


@dataclass(frozen=True)
class PreparedRequest:
    """What is sent, and when it is due."""

    arrival_s: float  #: seconds after the start
    body: bytes
    num_prompt_tokens: int = 0  #: as planned
    max_tokens: int = 0


@dataclass(slots=True)
class Outcome:
    """What came of a request. Times are seconds after the start of the load."""

    arrival_s: float  #: when it was due
    num_prompt_tokens: int  #: as planned; as the server counts them once it has said so
    max_tokens: int
    sent_s: float | None = None
    token_s: list[float] = field(default_factory=list)  #: when each chunk with tokens came
    num_counted_tokens: int | None = None  #: of the answer, by the server's count
    finish_reason: str | None = None
    error: str | None = None  #: its kind
    error_message: str | None = None

    @property
    def is_complete(self) -> bool:
        return self.error is None

    @property
    def num_output_tokens(self) -> int:
        """By the server's count; chunks, where it gives none."""
        return self.num_counted_tokens if self.num_counted_tokens is not None else len(self.token_s)

    def fail(self, error: RemoteError) -> None:
        self.error, self.error_message = error.kind, str(error)


@dataclass(frozen=True)
class LoadResult:
    """A load, and how the client itself did under it."""

    outcomes: list[Outcome]
    wall_s: float  #: from the start to the end of the last request
    loop_lag_s: list[float]  #: how late the event loop woke, every `PROBE_S`
    cpu_s: float  #: of the client's process


class LoadClient:
    """Sends a load to one route (`url`) of a server. `watch` is called now and then, to show how far it is."""

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
        """Send them all and wait for all their ends."""
        _allow_many_connections()
        requests = sorted(requests, key=lambda request: request.arrival_s)
        outcomes = [Outcome(r.arrival_s, r.num_prompt_tokens, r.max_tokens) for r in requests]
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

    async def ask(self, body: bytes) -> Outcome:
        """One request, now."""
        [outcome] = (await self.run([PreparedRequest(0.0, body)])).outcomes
        return outcome

    def _connect(self) -> httpx.AsyncClient:
        headers = {"Content-Type": "application/json", "Accept-Encoding": "identity", **self._endpoint.headers}
        return httpx.AsyncClient(
            headers=headers,
            limits=_LIMITS,
            timeout=None,  # each request has a deadline of its own
            transport=self._transport,
            trust_env=not self._endpoint.is_local,
            verify=self._endpoint.is_encrypted,
        )

    async def _ask(self, http: httpx.AsyncClient, request: PreparedRequest, outcome: Outcome) -> None:
        loop = asyncio.get_running_loop()
        outcome.sent_s = loop.time() - self._started
        self.num_sent += 1
        try:
            async with asyncio.timeout_at(self._started + request.arrival_s + self._timeout_s):
                await self._receive(http, request.body, outcome)
        except TimeoutError:
            outcome.fail(RemoteError("timeout", f"{self._url}: no whole answer within {self._timeout_s:g} s"))
        except Exception as error:  # whatever it is, it is counted, and the others go on
            outcome.fail(of_exception(error, self._url))
        self.num_ended += 1
        self.num_failed += not outcome.is_complete

    async def _receive(self, http: httpx.AsyncClient, body: bytes, outcome: Outcome) -> None:
        loop = asyncio.get_running_loop()
        async with http.stream("POST", self._url, content=body) as response:
            if response.status_code != 200:
                raise of_response(response.status_code, await response.aread(), self._url)
            reader = EventReader()
            async for piece in response.aiter_bytes():
                now = loop.time() - self._started
                for data in reader.feed(piece):
                    _take(data, outcome, now)
            for data in reader.close():
                _take(data, outcome, loop.time() - self._started)
        if outcome.finish_reason is None:
            raise RemoteError("truncated", f"{self._url}: the stream ended before the answer did")
        if not outcome.token_s:
            raise RemoteError("no_tokens", f"{self._url}: the answer has no token ({outcome.finish_reason})")

    async def _probe(self, lags: list[float]) -> None:
        """How late everything is that waits for this event loop."""
        loop = asyncio.get_running_loop()
        while True:
            due = loop.time() + PROBE_S
            await asyncio.sleep(PROBE_S)
            lags.append(loop.time() - due)
            if self._watch is not None:
                self._watch(self)


def _take(data: str, outcome: Outcome, now: float) -> None:
    if data == DONE:
        return
    chunk: AnswerChunk = read_chunk(data)
    if chunk.is_token:
        outcome.token_s.append(now)
    if chunk.usage is not None:
        outcome.num_counted_tokens = chunk.usage.completion_tokens
        outcome.num_prompt_tokens = chunk.usage.prompt_tokens
    outcome.finish_reason = chunk.finish_reason or outcome.finish_reason


def _allow_many_connections() -> None:
    """An open loop against a slow server holds as many connections as it must; the usual limit is 1,024 files."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
