"""The output of a response while it grows: items, and the events about them in OpenAI's order."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from quire.server.tools.events import CallArguments, CallStart, Content, Event, Reasoning
from quire.server.tools.parser import random_id

JsonObject = dict[str, Any]


class OutputItems:
    """Reasoning, messages and calls in order. One item is open at a time."""

    def __init__(self) -> None:
        self.items: list[JsonObject] = []
        self._is_open = False
        self._pieces: list[str] = []  # text of the open item
        self._logprobs: list[JsonObject] = []  # of an open message

    def add(self, scored: Iterable[tuple[Event, list[JsonObject]]]) -> list[JsonObject]:
        """Add parts of the answer with their log-probabilities. Returns the stream's events, without numbers."""
        events: list[JsonObject] = []
        for event, logprobs in scored:
            match event:
                case Reasoning(text=text):
                    events += self._grow("reasoning", text)
                case Content(text=text):
                    events += self._grow("message", text, logprobs)
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

    def _grow(self, kind: str, text: str, logprobs: Sequence[JsonObject] = ()) -> list[JsonObject]:
        events: list[JsonObject] = []
        if not self._is_open or self.items[-1]["type"] != kind:
            if kind == "reasoning":
                events += self._open({"id": f"rs_{random_id(24)}", "type": kind, "summary": [], "content": []})
            else:
                item = {"id": f"msg_{random_id(24)}", "type": kind, "status": "in_progress"}
                events += self._open({**item, "role": "assistant", "content": []})
            events.append(self._about("response.content_part.added", content_index=0, part=self._part("")))
        self._pieces.append(text)
        self._logprobs += logprobs
        more: JsonObject = {"logprobs": list(logprobs)} if kind == "message" else {}
        events.append(self._about(f"response.{self._text_type}.delta", content_index=0, delta=text, **more))
        return events

    def _open(self, item: JsonObject) -> list[JsonObject]:
        events = self._close("completed") if self._is_open else []
        self._is_open, self._pieces, self._logprobs = True, [], []
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
            more: JsonObject = {"logprobs": self._logprobs} if item["type"] == "message" else {}
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
        return {"type": "output_text", "text": text, "annotations": [], "logprobs": self._logprobs if text else []}

    def _about(self, kind: str, **more: Any) -> JsonObject:
        return {"type": kind, "item_id": self.items[-1]["id"], "output_index": len(self.items) - 1, **more}
