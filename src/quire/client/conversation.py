"""A conversation of several turns with its messages and costs."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Any

from quire.client.answer_cost import AnswerCost
from quire.client.chunk import AnswerStream

if TYPE_CHECKING:
    from quire.client.local_model import LocalModel
    from quire.client.remote_model import RemoteModel


class Conversation:
    """Messages of both sides after the system message. `sampling` are fields of every request."""

    def __init__(self, model: RemoteModel | LocalModel, *, system: str | None = None, **sampling: Any) -> None:
        self.model = model
        self._sampling = sampling
        self._opening = [{"role": "system", "content": system}] if system else []
        self.messages: list[dict[str, str]] = []
        self.costs: list[AnswerCost] = []
        self.reset()

    def reset(self) -> None:
        """Drop all messages but the system message."""
        self.messages = list(self._opening)
        self.costs = []

    def say(self, text: str) -> AnswerStream:
        """Send a message and stream the answer, of which a cut is kept; a message without answer is removed."""
        self.messages.append({"role": "user", "content": text})
        received: list[str] = []
        cost = AnswerCost()
        try:
            with closing(self.model.chat(self.messages, **self._sampling)) as chunks:
                for chunk in cost.watch(chunks):
                    received.append(chunk.text)
                    yield chunk
        finally:
            if answer := "".join(received):
                self.messages.append({"role": "assistant", "content": answer})
                self.costs.append(cost)
            else:
                self.messages.pop()
