"""Writing a response: whole, or as numbered events."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any

from pydantic_core import to_json

from quire.async_engine.messages import Started
from quire.outputs import CompletionOutput, Delta, RequestOutput
from quire.server.errors import ApiError
from quire.server.generation.generation import GenerationJob
from quire.server.generation.writer import AnswerWriter, named_events
from quire.server.responses.items import OutputItems
from quire.server.responses.logprobs import LogprobsReader, ScoredEvent
from quire.server.responses.schema import InputTokensDetails, OutputTokensDetails, ResponsesRequest, ResponseUsage
from quire.server.tools.answer_reader import AnswerForm
from quire.server.tools.events import Event as AnswerEvent

JsonObject = dict[str, Any]


class ResponseWriter(AnswerWriter):
    """Writes one response.

    Args:
        on_end: receives the finished response.
    """

    def __init__(self, job: GenerationJob, body: ResponsesRequest, on_end: Callable[[JsonObject], None]) -> None:
        super().__init__(job)
        self._body = body
        self._on_end = on_end
        self._form = job.form or AnswerForm()
        self._reader = self._form.reader()
        self._tokenizer = job.model.async_engine.engine.tokenizer
        self._logprobs: LogprobsReader | None = None
        if job.params.logprobs is not None:
            hidden, lead = self._tokenizer.special_ids.difference(self._form.specials), job.prompts[0].answer_lead
            self._logprobs = LogprobsReader(self._reader, self._tokenizer, job.params.logprobs, hidden, lead)
        self._output = OutputItems()
        self._token_ids: list[int] = []
        self._num_events = 0
        self._finish_reason: str | None = None

    def whole(self, outputs: list[RequestOutput]) -> bytes:
        (completion,) = outputs[0].outputs
        self._token_ids, self._finish_reason = completion.token_ids, completion.finish_reason
        if self._logprobs is None:
            self._output.add(_unscored(self._reader.read(completion.text)))
        else:
            self._output.add([*self._read(completion), *self._logprobs.finish()])
        self._output.finish(is_complete=self._is_complete)
        return encode_reply(self._finished_reply())

    def _open(self, number: int, event: Started) -> bytes:
        started = self._reply("in_progress")
        return self._encode(
            {"type": "response.created", "response": started}, {"type": "response.in_progress", "response": started}
        )

    def close(self) -> bytes:
        kind = "response.completed" if self._is_complete else "response.incomplete"
        return self._encode({"type": kind, "response": self._finished_reply()})

    def fail(self, error: ApiError) -> bytes:
        ended = self._encode(*self._output.finish(is_complete=False))
        reply = self._reply("failed")
        reply["error"] = {"code": error.code or "server_error", "message": error.message}
        return ended + self._encode({"type": "response.failed", "response": reply})

    @property
    def _is_complete(self) -> bool:
        return self._finish_reason != "length"

    def _encode_delta(self, number: int, delta: Delta) -> bytes:
        self.usage.num_output_tokens += len(delta.token_ids)
        self._token_ids += delta.token_ids
        events = self._output.add(self._read(delta))
        if delta.finish_reason is not None:
            self._finish_reason = delta.finish_reason
            rest = _unscored(self._reader.finish()) if self._logprobs is None else self._logprobs.finish()
            events += self._output.add(rest)
            events += self._output.finish(is_complete=self._is_complete)
        return self._encode(*events)

    def _read(self, gained: CompletionOutput | Delta) -> list[ScoredEvent]:
        if self._logprobs is None:
            return _unscored(self._reader.feed(gained.text))
        return self._logprobs.feed(gained.text, gained.token_ids, gained.logprobs or ())

    def _encode(self, *events: JsonObject) -> bytes:
        numbered = [{**event, "sequence_number": number} for number, event in enumerate(events, self._num_events)]
        self._num_events += len(numbered)
        return named_events(numbered)

    def _finished_reply(self) -> JsonObject:
        reply = self._reply("completed" if self._is_complete else "incomplete")
        self._on_end(reply)
        return reply

    def _reply(self, status: str) -> JsonObject:
        job, body, params = self.job, self._body, self.job.params
        choice = body.tool_choice if body.tool_choice is not None else "auto"
        text_format = body.text.format if body.text is not None else None
        return {
            "id": job.request_id,
            "object": "response",
            "created_at": job.created,
            "completed_at": int(time.time()) if status == "completed" else None,
            "status": status,
            "background": False,
            "error": None,
            "incomplete_details": {"reason": "max_output_tokens"} if status == "incomplete" else None,
            "instructions": body.instructions,
            "max_output_tokens": body.max_output_tokens,
            "max_tool_calls": None,
            "model": job.model.name,
            "output": [{**item} for item in self._output.items],
            "parallel_tool_calls": body.parallel_tool_calls is not False,
            "previous_response_id": body.previous_response_id,
            "reasoning": {"effort": body.reasoning.effort if body.reasoning is not None else None, "summary": None},
            "service_tier": "default",
            "store": body.store is not False,
            "temperature": params.temperature,
            "text": {
                "format": {"type": "text"}
                if text_format is None
                else text_format.model_dump(by_alias=True, exclude_none=True)
            },
            "tool_choice": choice if isinstance(choice, str) else choice.model_dump(),
            "tools": [{"parameters": None, "strict": None, **tool.given} for tool in body.tools or ()],
            "top_logprobs": body.top_logprobs or 0,
            "top_p": params.top_p,
            "truncation": "disabled",
            "usage": self._usage().model_dump() if status in ("completed", "incomplete") else None,
            "user": None,
            "metadata": body.metadata or {},
        }

    def _usage(self) -> ResponseUsage:
        count = self.usage.to_usage()
        cached = count.prompt_tokens_details.cached_tokens if count.prompt_tokens_details is not None else 0
        num_thought = self._form.num_reasoning_tokens(self._token_ids, self._tokenizer)
        return ResponseUsage(
            input_tokens=count.prompt_tokens,
            input_tokens_details=InputTokensDetails(cached_tokens=cached, cache_write_tokens=0),
            output_tokens=count.completion_tokens,
            output_tokens_details=OutputTokensDetails(reasoning_tokens=num_thought if self._output.reasoning else 0),
            total_tokens=count.total_tokens,
        )


def encode_reply(reply: JsonObject) -> bytes:
    """Encode a response. Numbers in the client's metadata and schemas that JSON lacks become null."""
    return to_json(reply, inf_nan_mode="null")


def _unscored(events: Iterable[AnswerEvent]) -> list[ScoredEvent]:
    return [(event, []) for event in events]
