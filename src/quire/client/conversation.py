"""A conversation of several turns: its messages and its costs."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Any

from quire.client.answer_cost import AnswerCost
from quire.client.chunk import AnswerStream

if TYPE_CHECKING:
    from quire.client.local_model import LocalModel
    from quire.client.remote_model import RemoteModel


class Conversation:
    """The messages of both sides so far, after the system's message. `sampling` are fields of every request."""

    def __init__(self, model: RemoteModel | LocalModel, *, system: str | None = None, **sampling: Any) -> None:
        self.model = model
        self._sampling = sampling
        self._opening = [{"role": "system", "content": system}] if system else []
        self.messages: list[dict[str, str]] = []
        self.costs: list[AnswerCost] = []
        self.reset()

    def reset(self) -> None:
        """Forget everything that was said but the system's message."""
        self.messages = list(self._opening)
        self.costs = []

    def say(self, text: str) -> AnswerStream:
        """Say something and hear the answer.

        An answer that ends early, because the iterator is closed or the model fails, is kept as far as it came; a
        message that got no answer at all is taken back, so that it can be said again.
        """
        self.messages.append({"role": "user", "content": text})
        heard: list[str] = []
        cost = AnswerCost()
        try:
            with closing(self.model.chat(self.messages, **self._sampling)) as chunks:
                for chunk in cost.watch(chunks):
                    heard.append(chunk.text)
                    yield chunk
        finally:
            if answer := "".join(heard):
                self.messages.append({"role": "assistant", "content": answer})
                self.costs.append(cost)
            else:
                self.messages.pop()

    def stats(self) -> dict[str, str]:
        """The costs of the conversation so far, for people."""
        usages = [cost.usage for cost in self.costs if cost.usage is not None]
        rates = [cost.tokens_per_s for cost in self.costs if cost.tokens_per_s is not None]
        firsts = [cost.first_s for cost in self.costs if cost.first_s is not None]
        found = {"model": self.model.name, "answers": f"{len(self.costs)}"}
        if usages:
            found["context"] = f"{usages[-1].prompt_tokens + usages[-1].completion_tokens:,} tokens"
            found["tokens in"] = f"{sum(usage.prompt_tokens for usage in usages):,}"
            cached = sum(usage.cached_tokens or 0 for usage in usages)
            found["tokens in, cached"] = f"{cached:,}"
        if self.costs:
            found["tokens out"] = f"{sum(cost.num_tokens for cost in self.costs):,}"
        if firsts:
            found["first token"] = f"after {firsts[-1] * 1e3:,.0f} ms (mean {sum(firsts) / len(firsts) * 1e3:,.0f} ms)"
        if rates:
            found["speed"] = f"{rates[-1]:,.1f} tokens/s (mean {sum(rates) / len(rates):,.1f})"
        return found
