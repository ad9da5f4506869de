"""An answer in Anthropic's form, whole and as a stream."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from pydantic_core import from_json

from quire.async_engine.messages import Started
from quire.outputs import CompletionOutput, Delta, RequestOutput
from quire.server.anthropic.schema import MessagesRequest, MessageUsage
from quire.server.errors import ApiError, anthropic_body
from quire.server.openai.generation import Generation
from quire.server.openai.streaming import EventWriter, UsageCount, named_event
from quire.server.tools.answer_form import AnswerForm
from quire.server.tools.events import CallArguments, CallStart, Content, Event, Reasoning

JsonObject = dict[str, Any]


class MessageWriter(EventWriter):
    """The form of one answer."""

    def __init__(self, generation: Generation, body: MessagesRequest) -> None:
        super().__init__(UsageCount())
        self._generation = generation
        self._body = body
        self._reader = (generation.form or AnswerForm()).reader()
        self._blocks: list[JsonObject] = []
        self._arguments = ""  # of the call that is open
        self._is_open = False
        self._stop_reason: str | None = None
        self._stop_sequence: str | None = None

    def whole(self, output: RequestOutput, usage: UsageCount) -> JsonObject:
        """The message that an output is."""
        (completion,) = output.outputs
        self.usage = usage
        self._take(self._reader.read(completion.text))
        self._close()
        self._note_end(completion)
        return self._reply()

    def _begin(self, number: int, event: Started) -> bytes:
        return _tell({"type": "message_start", "message": self._reply()})

    def close(self) -> bytes:
        ending = {"stop_reason": self._stop_reason, "stop_sequence": self._stop_sequence}
        usage = self._usage().model_dump()
        return _tell({"type": "message_delta", "delta": ending, "usage": usage}, {"type": "message_stop"})

    def fail(self, error: ApiError) -> bytes:
        return _tell(anthropic_body(error))

    def _encode_delta(self, number: int, delta: Delta) -> bytes:
        self.usage.num_output_tokens += len(delta.token_ids)
        told = self._take(self._reader.feed(delta.text))
        if delta.finish_reason is not None:
            told += self._take(self._reader.finish())
            told += self._close()
            self._note_end(delta)
        return _tell(*told)

    def _note_end(self, ended: CompletionOutput | Delta) -> None:
        if ended.finish_reason == "length":
            has_room = self.usage.num_output_tokens < self._body.max_tokens
            self._stop_reason = "model_context_window_exceeded" if has_room else "max_tokens"
        elif self._reader.num_calls:
            self._stop_reason = "tool_use"
        elif isinstance(ended.stop_reason, str):
            self._stop_reason, self._stop_sequence = "stop_sequence", ended.stop_reason
        else:
            self._stop_reason = "end_turn"

    def _take(self, events: Iterable[Event]) -> list[JsonObject]:
        """Add what the answer turned out to hold. Returns the events of the stream."""
        told: list[JsonObject] = []
        for event in events:
            match event:
                case Reasoning(text=text):
                    if not self._is_open or self._blocks[-1]["type"] != "thinking":
                        told += self._open({"type": "thinking", "thinking": "", "signature": ""})
                    self._blocks[-1]["thinking"] += text
                    told.append(self._delta(type="thinking_delta", thinking=text))
                case Content(text=text):
                    if not self._is_open or self._blocks[-1]["type"] != "text":
                        told += self._open({"type": "text", "text": ""})
                    self._blocks[-1]["text"] += text
                    told.append(self._delta(type="text_delta", text=text))
                case CallStart():
                    told += self._open({"type": "tool_use", "id": event.id, "name": event.name, "input": {}})
                case CallArguments(text=text):
                    self._arguments += text
                    told.append(self._delta(type="input_json_delta", partial_json=text))
        return told

    def _open(self, block: JsonObject) -> list[JsonObject]:
        told = self._close()
        self._is_open, self._arguments = True, ""
        self._blocks.append(block)
        return [*told, {"type": "content_block_start", "index": len(self._blocks) - 1, "content_block": {**block}}]

    def _close(self) -> list[JsonObject]:
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
            "id": self._generation.request_id,
            "type": "message",
            "role": "assistant",
            "model": self._generation.model.name,
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
    """A call's arguments as an object, as far as they go."""
    try:
        found = from_json(arguments, allow_partial=True)
        json.dumps(found, allow_nan=False)  # what JSON has no numbers for cannot be sent
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _tell(*events: JsonObject) -> bytes:
    return b"".join([named_event(event["type"], event) for event in events])
