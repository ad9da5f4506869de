"""Sending an answer: as one JSON body, or as server-sent events while it is generated.

An idle stream sends comments, so that proxies keep it open; clients do not see them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator
from contextlib import aclosing

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from quire.async_engine.messages import Event
from quire.server.errors import ApiError, error_response
from quire.server.generation.generation import GenerationJob
from quire.server.generation.writer import AnswerWriter, comment
from quire.server.http.connection import ClientDisconnected, run_while_connected

logger = logging.getLogger("quire")

_REJECTED_WITHIN_S = 1.0  # a request that can never be served is rejected by then; a longer wait is part of the stream
_Batch = list[tuple[int, Event]]


async def send_answer(
    request: Request, job: GenerationJob, writer: AnswerWriter, *, is_streamed: bool, keep_alive_s: float
) -> Response:
    """Run the prompts and return the answer. A client that leaves aborts them.

    Args:
        keep_alive_s: seconds without events after which a stream sends a comment.

    Raises:
        ApiError: a prompt cannot be served, or failed.
        ClientDisconnected: the client left before the answer was complete.
    """
    if is_streamed:
        return StreamedAnswer(job, writer, keep_alive_s)
    outputs = await run_while_connected(request.receive, job.outputs())
    for number, output in enumerate(outputs):
        writer.usage.add_output(number, output)
    body = writer.whole(outputs)
    writer.report(request.scope)
    return Response(body, media_type="application/json", headers=job.stage_headers)


class StreamedAnswer(Response):
    """A streamed answer. A rejection before it starts is an ordinary error, a later failure an event."""

    media_type = "text/event-stream"

    def __init__(self, job: GenerationJob, writer: AnswerWriter, keep_alive_s: float) -> None:
        super().__init__(headers={"Cache-Control": "no-cache", "X-Accel-Buffering": "no"})
        del self.headers["content-length"]
        self._job = job
        self._writer = writer
        self._keep_alive_s = keep_alive_s
        self._has_news = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await run_while_connected(receive, self._answer(scope, receive, send))
        except ClientDisconnected:
            logger.debug("%s: the client left its stream", self._job.request_id)
        finally:
            self._writer.report(scope)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with aclosing(self._job.events()) as batches:
            first = asyncio.ensure_future(anext(batches))
            try:
                await asyncio.wait({first}, timeout=min(_REJECTED_WITHIN_S, self._keep_alive_s))
                if first.done() and (error := first.exception()) is not None:
                    if not isinstance(error, ApiError):
                        raise error
                    await error_response(error)(scope, receive, send)
                    return
                self.headers.update(self._job.stage_headers)
                await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
                await self._stream(first, batches, send)
            finally:
                first.cancel()
                await asyncio.gather(first, return_exceptions=True)

    async def _stream(self, first: asyncio.Future[_Batch], batches: AsyncGenerator[_Batch, None], send: Send) -> None:
        comments = asyncio.create_task(self._keep_alive(send))
        try:
            try:
                await self._send_batch(await first, send)
                async for batch in batches:
                    await self._send_batch(batch, send)
                end = self._writer.close()
            except ApiError as error:
                end = self._writer.fail(error)
            except Exception:
                logger.exception("%s: the stream failed", self._job.request_id)
                end = self._writer.fail(ApiError(500, "the server failed; its log says why"))
            comments.cancel()
            await send({"type": "http.response.body", "body": end, "more_body": False})
        finally:
            comments.cancel()
            await asyncio.gather(comments, return_exceptions=True)

    async def _send_batch(self, batch: _Batch, send: Send) -> None:
        if data := b"".join([self._writer.encode(number, event) for number, event in batch]):
            self._has_news = True
            await send({"type": "http.response.body", "body": data, "more_body": True})

    async def _keep_alive(self, send: Send) -> None:
        while True:
            await asyncio.sleep(self._keep_alive_s)
            if not self._has_news:
                await send({"type": "http.response.body", "body": comment("keep-alive"), "more_body": True})
            self._has_news = False
