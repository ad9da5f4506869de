"""Writing a message: whole, or as events."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from pydantic_core import from_json

from quire.async_engine.messages import Started
from quire.outputs import CompletionOutput, Delta, RequestOutput
from quire.server.anthropic.schema import MessagesRequest, MessageUsage
from quire.server.errors import ApiError, anthropic_body
from quire.server.generation.generation import GenerationJob
from quire.server.generation.streaming import AnswerWriter, named_events
from quire.server.tools.answer_reader import AnswerForm
from quire.server.tools.parser import CallArguments, CallStart, Content, Event, Reasoning

JsonObject = dict[str, Any]


class MessageWriter(AnswerWriter):
    """Writes one message."""

    def __init__(self, job: GenerationJob, body: MessagesRequest) -> None:
        super().__init__(job)
        self._body = body
        self._reader = (job.form or AnswerForm()).reader()
        self._blocks: list[JsonObject] = []
        self._arguments = ""  # of the call that is open
        self._is_open = False
        self._stop_reason: str | None = None
        self._stop_sequence: str | None = None

    def whole(self, outputs: list[RequestOutput]) -> bytes:
        (completion,) = outputs[0].outputs
        self._add(self._reader.read(completion.text))
        self._close_block()
        self._set_stop_reason(completion)
        return json.dumps(self._reply(), ensure_ascii=False, separators=(",", ":")).encode()

    def _open(self, number: int, event: Started) -> bytes:
        return named_events([{"type": "message_start", "message": self._reply()}])

    def close(self) -> bytes:
        ending = {"stop_reason": self._stop_reason, "stop_sequence": self._stop_sequence}
        usage = self._usage().model_dump()
        return named_events([{"type": "message_delta", "delta": ending, "usage": usage}, {"type": "message_stop"}])

    def fail(self, error: ApiError) -> bytes:
        return named_events([anthropic_body(error)])

    def _encode_delta(self, number: int, delta: Delta) -> bytes:
        self.usage.num_output_tokens += len(delta.token_ids)
        events = self._add(self._reader.feed(delta.text))
        if delta.finish_reason is not None:
            events += self._add(self._reader.finish())
            events += self._close_block()
            self._set_stop_reason(delta)
        return named_events(events)

    def _set_stop_reason(self, ended: CompletionOutput | Delta) -> None:
        if ended.finish_reason == "length":
            has_room = self.usage.num_output_tokens < self._body.max_tokens
            self._stop_reason = "model_context_window_exceeded" if has_room else "max_tokens"
        elif self._reader.num_calls:
            self._stop_reason = "tool_use"
        elif isinstance(ended.stop_reason, str):
            self._stop_reason, self._stop_sequence = "stop_sequence", ended.stop_reason
        else:
            self._stop_reason = "end_turn"

    def _add(self, events: Iterable[Event]) -> list[JsonObject]:
        """Add parts of the answer to the blocks. Returns the events of the stream."""
        shown: list[JsonObject] = []
        for event in events:
            match event:
                case Reasoning(text=text):
                    if not self._is_open or self._blocks[-1]["type"] != "thinking":
                        shown += self._open_block({"type": "thinking", "thinking": "", "signature": ""})
                    self._blocks[-1]["thinking"] += text
                    shown.append(self._delta(type="thinking_delta", thinking=text))
                case Content(text=text):
                    if not self._is_open or self._blocks[-1]["type"] != "text":
                        shown += self._open_block({"type": "text", "text": ""})
                    self._blocks[-1]["text"] += text
                    shown.append(self._delta(type="text_delta", text=text))
                case CallStart():
                    shown += self._open_block({"type": "tool_use", "id": event.id, "name": event.name, "input": {}})
                case CallArguments(text=text):
                    self._arguments += text
                    shown.append(self._delta(type="input_json_delta", partial_json=text))
        return shown

    def _open_block(self, block: JsonObject) -> list[JsonObject]:
        shown = self._close_block()
        self._is_open, self._arguments = True, ""
        self._blocks.append(block)
        return [*shown, {"type": "content_block_start", "index": len(self._blocks) - 1, "content_block": {**block}}]

    def _close_block(self) -> list[JsonObject]:
        if not self._is_open:
            return []
        self._is_open = False
        if self._blocks[-1]["type"] == "tool_use":
            self._blocks[-1]["input"] = _as_input(self._arguments)
        return [{"type": "content_block_stop", "index": len(self._blocks) - 1}]

    def _delta(self, **delta: str) -> JsonObject:
        return {"type": "content_block_delta", "index": len(self._blocks) - 1, "delta": delta}

    def _reply(self) -> JsonObject:
        return {
            "id": self.job.request_id,
            "type": "message",
            "role": "assistant",
            "model": self.job.model.name,
            "content": [{**block} for block in self._blocks],
            "stop_reason": self._stop_reason,
            "stop_sequence": self._stop_sequence,
            "usage": self._usage().model_dump(),
        }

    def _usage(self) -> MessageUsage:
        count = self.usage.to_usage()
        cached = count.prompt_tokens_details.cached_tokens if count.prompt_tokens_details is not None else 0
        return MessageUsage(
            input_tokens=count.prompt_tokens - cached,
            cache_creation_input_tokens=0,
            cache_read_input_tokens=cached,
            output_tokens=count.completion_tokens,
        )


def _as_input(arguments: str) -> JsonObject:
    """Return a call's arguments as an object, cut-off ones in part."""
    try:
        found = from_json(arguments, allow_partial=True)
        json.dumps(found, allow_nan=False)  # raises for numbers that JSON lacks
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
