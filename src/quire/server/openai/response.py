"""The form of an answer, whole and chunk by chunk, as far as both generating endpoints share it.

The forms of text and logprobs are each endpoint's own.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, Generic, TypeVar

from quire.async_engine.messages import Started
from quire.outputs import CompletionOutput, Delta, RequestOutput
from quire.sampling_params import SamplingParams
from quire.server.bodies.fields import Reply
from quire.server.bodies.replies import Usage
from quire.server.openai.generation import Generation
from quire.server.openai.logprobs import Entry, prompt_logprobs
from quire.server.openai.schema import GenerationRequest

B = TypeVar("B", bound=GenerationRequest)


class ResponseBuilder(ABC, Generic[B]):
    """The form of one answer to a body. Subclasses add their endpoint's own."""

    kind: ClassVar[str]  #: `object` of a whole answer
    chunk_kind: ClassVar[str]  #: and of a chunk

    def __init__(self, generation: Generation, body: B) -> None:
        self.generation = generation
        self.body = body
        self._num_choices = generation.params.n  # of each prompt
        self._tokenizer = generation.model.async_engine.engine.tokenizer
        self._has_logprobs = generation.params.logprobs is not None
        self._num_top = _num_shown(generation.params)
        self._shows_ids = bool(body.return_tokens_as_token_ids)  # in place of tokens' texts
        self._has_token_ids = bool(body.return_token_ids)

    @abstractmethod
    def whole(self, outputs: list[RequestOutput], usage: Usage) -> Reply:
        """The whole answer, of an output to each prompt."""

    @abstractmethod
    def opening(self, number: int, started: Started) -> list[dict[str, Any]]:
        """The chunks with which the answers to prompt `number` begin, without their head."""

    @abstractmethod
    def _text(self, gained: CompletionOutput | Delta) -> dict[str, Any]:
        """The field of a choice, or of its delta, that holds text."""

    @abstractmethod
    def _logprobs(self, number: int, gained: CompletionOutput | Delta, entries: Sequence[Entry]) -> dict[str, Any]:
        """The form of `entries`, one for each token that a choice gained."""

    @property
    def is_only_text(self) -> bool:
        """Whether a choice's chunks before its end show nothing but text."""
        return not self._has_logprobs and not self._has_token_ids

    def choices(self, number: int, delta: Delta) -> list[dict[str, Any]]:
        """The choices of the chunks that a delta makes, one a chunk."""
        is_worth_a_chunk = bool(delta.text or delta.finish_reason or not self.is_only_text)
        return [self.choice(number, delta)] if is_worth_a_chunk else []

    def choice(self, number: int, gained: CompletionOutput | Delta) -> dict[str, Any]:
        """A choice of prompt `number`, or its delta."""
        shown = {
            "index": self._index(number, gained.index),
            **self._text(gained),
            "logprobs": None,
            "finish_reason": gained.finish_reason,
        }
        if self._has_logprobs and gained.logprobs is not None:
            shown["logprobs"] = self._logprobs(number, gained, gained.logprobs)
        if gained.finish_reason is not None:
            shown["stop_reason"] = gained.stop_reason
        if self._has_token_ids:
            shown["token_ids"] = gained.token_ids
        return shown

    def _index(self, number: int, index: int) -> int:
        """Choices are numbered through, prompt by prompt."""
        return number * self._num_choices + index

    def _about_prompt(self, output: RequestOutput) -> dict[str, Any]:
        """The fields of a whole answer that show its prompt."""
        shown: dict[str, Any] = {}
        top = self.body.prompt_logprobs
        if self._has_token_ids:
            shown["prompt_token_ids"] = output.prompt_token_ids
        if top is not None and output.prompt_logprobs is not None:
            num_top = top if top >= 0 else None
            shown["prompt_logprobs"] = prompt_logprobs(output.prompt_logprobs, output.prompt_token_ids, num_top)
        return shown


def _num_shown(params: SamplingParams) -> int | None:
    """How many entries of a position's log-probabilities were asked for; None is all."""
    if params.logprob_token_ids:
        return len(set(params.logprob_token_ids))
    return None if params.logprobs == -1 else params.logprobs or 0
