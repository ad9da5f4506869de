"""Background responses: generation that goes on when its client leaves."""

from __future__ import annotations

import asyncio
from contextlib import aclosing, suppress

from starlette.types import Message, Receive, Scope, Send

from quire.server.errors import ApiError
from quire.server.generation.generation import GenerationJob, StreamedAnswer
from quire.server.http.middleware import hold_sequences
from quire.server.http.protocol import ClientDisconnected, run_while_connected
from quire.server.responses.writer import ResponseWriter


class BackgroundAnswer(StreamedAnswer):
    """A response that a task generates. As an ASGI response, its stream, while the client stays. A slow reader delays
    only its own response. Cancelling `task`, the work after `start`, cancels the response."""

    def __init__(self, job: GenerationJob, writer: ResponseWriter, keep_alive_s: float, *, is_streamed: bool) -> None:
        super().__init__(job, writer, keep_alive_s)
        self.writer = writer
        self._opening, self._ending = writer.announce("created", "queued"), b""
        self._client: Send | None = None
        self._can_send = asyncio.Event()  # events wait for the begin of the client's stream
        if not is_streamed:
            self._can_send.set()

    async def start(self, scope: Scope) -> None:
        """Start the work, which counts for its key until it ends. Raises ApiError if it is rejected."""
        hold_sequences(scope, self._job.num_sequences)
        batches = self._job.events()
        first, accepted = asyncio.ensure_future(anext(batches)), asyncio.ensure_future(self._job.is_accepted.wait())
        await asyncio.wait({first, accepted}, return_when=asyncio.FIRST_COMPLETED)
        accepted.cancel()
        if first.done():
            first.result()

        async def run() -> None:
            async with aclosing(batches):
                try:
                    await self._stream(first, batches, self._forward)
                except asyncio.CancelledError:
                    if self.writer.status in ("queued", "in_progress"):
                        error = ApiError(400, "the response was cancelled", code="cancelled")
                        self._ending = self.writer.fail(error, "cancelled")

        self.task = asyncio.create_task(run())
        hold_sequences(scope, self._job.num_sequences, until=self.task)
        await asyncio.sleep(0)  # a task that is cancelled before it has begun never cleans up

    async def _forward(self, message: Message) -> None:
        await self._can_send.wait()
        if self._client is not None:
            await self._client(message)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        await send({"type": "http.response.body", "body": self._opening, "more_body": True})
        self._client = send
        self._can_send.set()
        try:
            with suppress(ClientDisconnected):
                await run_while_connected(receive, asyncio.wait({self.task}))
                if self._ending:
                    await send({"type": "http.response.body", "body": self._ending})
        finally:
            self._client = None
            self.writer.report(scope)
