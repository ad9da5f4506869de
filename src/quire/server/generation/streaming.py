"""Sending an answer: as one JSON body, or as server-sent events while it is generated.

An idle stream sends comments, so that proxies keep it open; clients do not see them.
"""

from __future__ import annotations

import asyncio
import logging
import types
from collections.abc import AsyncGenerator, Coroutine, Generator
from contextlib import aclosing
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from quire.async_engine.messages import Event, Progress
from quire.server.errors import ApiError, error_response
from quire.server.generation.generation import GenerationJob
from quire.server.generation.writer import AnswerWriter, comment
from quire.server.http.access_log import report_usage
from quire.server.http.connection import ClientDisconnected, run_while_connected

logger = logging.getLogger("quire")

_REFUSED_WITHIN_S = 1.0  # a request that can never be served is refused by then; a longer wait is part of the stream
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
    _report(request.scope, job, writer)
    return Response(body, media_type="application/json", headers=job.stage_headers)


class StreamedAnswer(Response):
    """A streamed answer. A refusal before it starts is an ordinary error, a later failure an event.

    Progress is sent straight from the engine's callback, without waking this answer's task, while the connection
    accepts more: a task's turn is a good part of what a token costs.
    """

    media_type = "text/event-stream"

    def __init__(self, job: GenerationJob, writer: AnswerWriter, keep_alive_s: float) -> None:
        super().__init__(headers={"Cache-Control": "no-cache", "X-Accel-Buffering": "no"})
        del self.headers["content-length"]
        self._job = job
        self._writer = writer
        self._keep_alive_s = keep_alive_s
        self._has_news = False
        self._send: Send | None = None  #: once the answer has started
        self._sending: asyncio.Task[None] | None = None  #: a piece that the connection has not accepted yet

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await run_while_connected(receive, self._answer(scope, receive, send))
        except ClientDisconnected:
            logger.debug("%s: the client left its stream", self._job.request_id)
        finally:
            _report(scope, self._job, self._writer)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with aclosing(self._job.events(pass_on=self._pass_on)) as batches:
            first = asyncio.ensure_future(anext(batches))
            try:
                await asyncio.wait({first}, timeout=min(_REFUSED_WITHIN_S, self._keep_alive_s))
                if first.done() and (error := first.exception()) is not None:
                    if not isinstance(error, ApiError):
                        raise error
                    await error_response(error)(scope, receive, send)
                    return
                self.headers.update(self._job.stage_headers)
                await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
                self._send = send
                await self._stream(first, batches)
            finally:
                first.cancel()
                await asyncio.gather(first, return_exceptions=True)

    async def _stream(self, first: asyncio.Future[_Batch], batches: AsyncGenerator[_Batch, None]) -> None:
        comments = asyncio.create_task(self._keep_alive())
        try:
            try:
                await self._send_batch(await first)
                async for batch in batches:
                    await self._send_batch(batch)
                end = self._writer.close()
            except ApiError as error:
                end = self._writer.fail(error)
            except Exception:
                logger.exception("%s: the stream failed", self._job.request_id)
                end = self._writer.fail(ApiError(500, "the server failed; its log says why"))
            comments.cancel()
            await self._finish_sending()
            await self._send_piece(end, is_last=True)
        finally:
            comments.cancel()
            if self._sending is not None:
                self._sending.cancel()
            await asyncio.gather(comments, return_exceptions=True)

    async def _send_batch(self, batch: _Batch) -> None:
        if data := b"".join([self._writer.encode(number, event) for number, event in batch]):
            await self._finish_sending()
            self._has_news = True
            await self._send_piece(data)

    def _pass_on(self, number: int, event: Event) -> bool:
        """Send progress at once. Returns False where the answer has not started or the connection is busy."""
        is_busy = self._sending is not None and not self._sending.done()
        if self._send is None or type(event) is not Progress or is_busy:
            return False
        if data := self._writer.encode(number, event):
            self._has_news = True
            self._sending = _start(self._send_piece(data))
        return True

    async def _finish_sending(self) -> None:
        if self._sending is not None:
            await self._sending
            self._sending = None

    async def _send_piece(self, data: bytes, *, is_last: bool = False) -> None:
        assert self._send is not None
        await self._send({"type": "http.response.body", "body": data, "more_body": not is_last})

    async def _keep_alive(self) -> None:
        while True:
            await asyncio.sleep(self._keep_alive_s)
            if not self._has_news:
                await self._finish_sending()
                await self._send_piece(comment("keep-alive"))
            self._has_news = False


def _report(scope: Scope, job: GenerationJob, writer: AnswerWriter) -> None:
    usage = writer.usage
    report_usage(
        scope, model=job.model.name, prompt_tokens=usage.num_prompt_tokens, completion_tokens=usage.num_output_tokens
    )


def _start(work: Coroutine[Any, Any, None]) -> asyncio.Task[None] | None:
    """Run a coroutine up to its first wait. Returns the task that finishes it, None if it is done."""
    try:
        awaited = work.send(None)
    except StopIteration:
        return None
    return asyncio.create_task(_finish(work, awaited))


async def _finish(work: Coroutine[Any, Any, None], awaited: Any) -> None:
    await _resume(work, awaited)


@types.coroutine
def _resume(work: Coroutine[Any, Any, None], awaited: Any) -> Generator[Any, None, None]:
    """Go on with a coroutine that waits for `awaited`."""
    try:
        while True:
            try:
                yield awaited
            except BaseException as error:
                awaited = work.throw(error)
            else:
                awaited = work.send(None)
    except StopIteration:
        return
