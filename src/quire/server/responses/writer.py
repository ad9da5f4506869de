"""Writing a response: its output items, whole or as numbered events."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any

from pydantic_core import to_json

from quire.async_engine.messages import Started
from quire.outputs import Delta, RequestOutput
from quire.server.errors import ApiError
from quire.server.generation.generation import AnswerWriter, GenerationJob, named_events
from quire.server.responses.schema import InputTokensDetails, OutputTokensDetails, ResponsesRequest, ResponseUsage
from quire.server.tools.answer_reader import AnswerForm, AnswerReader
from quire.server.tools.parser import CallArguments, CallStart, Content, Event, Reasoning, random_id

JsonObject = dict[str, Any]
_TEXT = {"type": "text"}


class OutputItems:
    """Reasoning, messages and calls in order. One item is open at a time."""

    def __init__(self) -> None:
        self.items: list[JsonObject] = []
        self._is_open = False
        self._pieces: list[str] = []  # text of the open item

    def add(self, parts: Iterable[Event]) -> list[JsonObject]:
        """Add parts of the answer. Returns the stream's events, without numbers."""
        events: list[JsonObject] = []
        for event in parts:
            match event:
                case Reasoning(text=text):
                    events += self._grow("reasoning", text)
                case Content(text=text):
                    events += self._grow("message", text)
                case CallStart():
                    call = {"id": f"fc_{random_id(24)}", "type": "function_call", "status": "in_progress"}
                    events += self._open({**call, "arguments": "", "call_id": event.id, "name": event.name})
                case CallArguments(text=text):
                    self._pieces.append(text)
                    events.append(self._about("response.function_call_arguments.delta", delta=text))
        return events

    def finish(self, *, is_complete: bool) -> list[JsonObject]:
        """Close the last item, as incomplete if the answer was cut off. Returns the stream's events."""
        return self._close("completed" if is_complete else "incomplete") if self._is_open else []

    @property
    def reasoning(self) -> str:
        parts = (item["content"][0]["text"] for item in self.items if item["type"] == "reasoning" and item["content"])
        return "".join(parts)

    def _grow(self, kind: str, text: str) -> list[JsonObject]:
        events: list[JsonObject] = []
        if not self._is_open or self.items[-1]["type"] != kind:
            if kind == "reasoning":
                events += self._open({"id": f"rs_{random_id(24)}", "type": kind, "summary": [], "content": []})
            else:
                item = {"id": f"msg_{random_id(24)}", "type": kind, "status": "in_progress"}
                events += self._open({**item, "role": "assistant", "content": []})
            events.append(self._about("response.content_part.added", content_index=0, part=self._part("")))
        self._pieces.append(text)
        more: JsonObject = {"logprobs": []} if kind == "message" else {}
        events.append(self._about(f"response.{self._text_type}.delta", content_index=0, delta=text, **more))
        return events

    def _open(self, item: JsonObject) -> list[JsonObject]:
        events = self._close("completed") if self._is_open else []
        self._is_open, self._pieces = True, []
        self.items.append(item)
        return [*events, {"type": "response.output_item.added", "output_index": len(self.items) - 1, "item": {**item}}]

    def _close(self, status: str) -> list[JsonObject]:
        item, text = self.items[-1], "".join(self._pieces)
        self._is_open = False
        events: list[JsonObject] = []
        if item["type"] == "function_call":
            item["arguments"] = text
            events.append(self._about("response.function_call_arguments.done", arguments=text, name=item["name"]))
        else:
            part = self._part(text)
            more: JsonObject = {"logprobs": []} if item["type"] == "message" else {}
            events.append(self._about(f"response.{self._text_type}.done", content_index=0, text=text, **more))
            events.append(self._about("response.content_part.done", content_index=0, part=part))
            item["content"] = [part]
        if "status" in item:
            item["status"] = status
        return [*events, {"type": "response.output_item.done", "output_index": len(self.items) - 1, "item": {**item}}]

    @property
    def _text_type(self) -> str:
        return "output_text" if self.items[-1]["type"] == "message" else "reasoning_text"

    def _part(self, text: str) -> JsonObject:
        if self._text_type == "reasoning_text":
            return {"type": "reasoning_text", "text": text}
        return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}

    def _about(self, kind: str, **more: Any) -> JsonObject:
        return {"type": kind, "item_id": self.items[-1]["id"], "output_index": len(self.items) - 1, **more}


class ResponseWriter(AnswerWriter):
    """Writes one response. `on_end` receives the finished response, and a failed one of a background."""

    def __init__(self, job: GenerationJob, body: ResponsesRequest, on_end: Callable[[JsonObject], None]) -> None:
        super().__init__(job)
        self._body = body
        self._on_end = on_end
        self._form = job.form or AnswerForm()
        self._reader = AnswerReader(self._form)
        self._tokenizer = job.model.async_engine.engine.tokenizer
        self._output = OutputItems()
        self._token_ids: list[int] = []
        self._num_events = 0
        self._finish_reason: str | None = None
        self.status = "queued"
        self._error: JsonObject | None = None

    def whole(self, outputs: list[RequestOutput]) -> bytes:
        (completion,) = outputs[0].outputs
        self._token_ids, self._finish_reason = completion.token_ids, completion.finish_reason
        self._output.add(self._reader.read(completion.text))
        self._output.finish(is_complete=self._is_complete)
        return encode_reply(self._finished_reply())

    def _open(self, number: int, event: Started) -> bytes:
        self.status = "in_progress"
        return self.announce(*([] if self._num_events else ["created"]), "in_progress")

    def close(self) -> bytes:
        reply = self._finished_reply()
        return self._encode({"type": f"response.{self.status}", "response": reply})

    def fail(self, error: ApiError, status: str = "failed") -> bytes:
        ended = self._encode(*self._output.finish(is_complete=False))
        self.status, self._error = status, {"code": error.code or "server_error", "message": error.message}
        if self._body.background:
            self._on_end(self.reply)
        return ended + self.announce("failed")

    def announce(self, *kinds: str) -> bytes:
        """Return events with the response so far."""
        reply = self.reply
        return self._encode(*({"type": f"response.{kind}", "response": reply} for kind in kinds))

    @property
    def _is_complete(self) -> bool:
        return self._finish_reason != "length"

    def _encode_delta(self, number: int, delta: Delta) -> bytes:
        self.usage.num_output_tokens += len(delta.token_ids)
        self._token_ids += delta.token_ids
        events = self._output.add(self._reader.feed(delta.text))
        if delta.finish_reason is not None:
            self._finish_reason = delta.finish_reason
            events += self._output.add(self._reader.finish())
            events += self._output.finish(is_complete=self._is_complete)
        return self._encode(*events)

    def _encode(self, *events: JsonObject) -> bytes:
        numbered = [{**event, "sequence_number": number} for number, event in enumerate(events, self._num_events)]
        self._num_events += len(numbered)
        return named_events(numbered)

    def _finished_reply(self) -> JsonObject:
        self.status = "completed" if self._is_complete else "incomplete"
        self._on_end(reply := self.reply)
        return reply

    @property
    def reply(self) -> JsonObject:
        """The response so far."""
        job, body, params, status = self.job, self._body, self.job.params, self.status
        choice = body.tool_choice if body.tool_choice is not None else "auto"
        text_format = body.text and body.text.format
        return {
            "id": job.request_id,
            "object": "response",
            "created_at": job.created,
            "completed_at": int(time.time()) if status == "completed" else None,
            "status": status,
            "background": bool(body.background),
            "error": self._error,
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
            "text": {"format": text_format.model_dump(by_alias=True, exclude_none=True) if text_format else _TEXT},
            "tool_choice": choice if isinstance(choice, str) else choice.model_dump(),
            "tools": [{"parameters": None, "strict": None, **tool.given} for tool in body.tools or ()],
            "top_logprobs": 0,
            "top_p": params.top_p,
            "truncation": body.truncation or "disabled",
            "usage": self._usage() if status in ("completed", "incomplete") else None,
            "user": None,
            "metadata": body.metadata or {},
        }

    def _usage(self) -> JsonObject:
        count = self.usage.to_usage()
        cached = count.prompt_tokens_details.cached_tokens if count.prompt_tokens_details is not None else 0
        num_thought = self._form.num_reasoning_tokens(self._token_ids, self._tokenizer)
        usage = ResponseUsage(
            input_tokens=count.prompt_tokens,
            input_tokens_details=InputTokensDetails(
                cached_tokens=cached, cache_write_tokens=self.num_stored_tokens(cached)
            ),
            output_tokens=count.completion_tokens,
            output_tokens_details=OutputTokensDetails(reasoning_tokens=num_thought if self._output.reasoning else 0),
            total_tokens=count.total_tokens,
        )
        if count.why is not None:
            usage.why = count.why
        return usage.model_dump(exclude_unset=True)


def encode_reply(reply: JsonObject) -> bytes:
    """Encode a response. Numbers in the client's metadata and schemas that JSON lacks become null."""
    return to_json(reply, inf_nan_mode="null")
