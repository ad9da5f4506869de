"""The form of answers that chat and completions share: choices, whole or in chunks, whose last one is [DONE]."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from json.encoder import encode_basestring_ascii
from typing import Any, ClassVar, Generic, TypeVar

from quire.async_engine.messages import Started
from quire.outputs import CompletionOutput, Delta, RequestOutput
from quire.server.bodies.replies import Generated
from quire.server.errors import ApiError, error_body
from quire.server.generation.generation import GenerationJob
from quire.server.generation.writer import AnswerWriter, event_of
from quire.server.openai.logprobs import Entry, prompt_logprobs
from quire.server.openai.schema import GenerationRequest

B = TypeVar("B", bound=GenerationRequest)

DONE = b"data: [DONE]\n\n"
_TEXT = "\0text\0"  # placeholder for the text in a chunk's template


class ChunkWriter(AnswerWriter, Generic[B]):
    """Writes one answer to a body. Subclasses add the form of text and log-probabilities.

    Args:
        has_usage: end the stream with a usage chunk.
    """

    kind: ClassVar[str]  #: `object` of a whole answer
    chunk_kind: ClassVar[str]  #: `object` of a chunk

    def __init__(self, job: GenerationJob, body: B, *, has_usage: bool) -> None:
        super().__init__(job)
        params, options, engine = job.params, body.stream_options, job.model.async_engine.engine
        self.body = body
        self._tokenizer = engine.tokenizer
        self._has_logprobs = params.logprobs is not None
        self._num_top = None if params.logprobs == -1 else params.logprobs or 0  #: entries to show; None is all
        if params.logprob_token_ids:
            self._num_top = len(set(params.logprob_token_ids))
        self._shows_ids = bool(body.return_tokens_as_token_ids)
        self._has_token_ids = bool(body.return_token_ids)
        self._has_usage = has_usage
        self._has_running_usage = has_usage and options is not None and bool(options.continuous_usage_stats)
        self._is_only_text = not self._has_logprobs and not self._has_token_ids
        self._templates: dict[tuple[int, int], tuple[str, str]] = {}  #: chunk before and after its text
        self._head = {
            "id": job.request_id,
            "object": self.chunk_kind,
            "created": job.created,
            "model": job.model.name,
            "system_fingerprint": engine.system_fingerprint,
        }

    # -- what subclasses add ---------------------------------------------------------------------------------------

    @abstractmethod
    def _openings(self, number: int, started: Started) -> list[dict[str, Any]]:
        """Return the chunks that open the answers to prompt `number`, without their head."""

    @abstractmethod
    def _text_delta(self, text: str) -> dict[str, Any]:
        """Return the field of a chunk's choice that holds text."""

    @abstractmethod
    def _logprobs(self, number: int, gained: CompletionOutput | Delta, entries: Sequence[Entry]) -> dict[str, Any]:
        """Return the log-probabilities of the tokens that a choice gained."""

    def _choices(self, number: int, delta: Delta) -> list[dict[str, Any]]:
        """Return the choices of the chunks for a delta, one a chunk."""
        if self._is_only_text and not delta.text and delta.finish_reason is None:
            return []
        return [self._choice(number, delta, self._text_delta(delta.text))]

    @property
    def _has_template(self) -> bool:
        """Whether chunks before the end of an answer differ in nothing but their text."""
        return self._is_only_text and not self._has_running_usage

    # -- what they share -------------------------------------------------------------------------------------------

    def _choice(self, number: int, gained: CompletionOutput | Delta, text: dict[str, Any]) -> dict[str, Any]:
        """Return a choice of prompt `number`, or its delta. Choices are numbered prompt by prompt."""
        index = number * self.job.params.n + gained.index
        choice = {"index": index, **text, "logprobs": None, "finish_reason": gained.finish_reason}
        if self._has_logprobs and gained.logprobs is not None:
            choice["logprobs"] = self._logprobs(number, gained, gained.logprobs)
        if gained.finish_reason is not None:
            choice["stop_reason"] = gained.stop_reason
        if self._has_token_ids:
            choice["token_ids"] = gained.token_ids
        return choice

    def _prompt_fields(self, output: RequestOutput) -> dict[str, Any]:
        """Return the fields of a whole answer that describe its prompt."""
        shown: dict[str, Any] = {}
        top = self.body.prompt_logprobs
        if self._has_token_ids:
            shown["prompt_token_ids"] = output.prompt_token_ids
        if top is not None and output.prompt_logprobs is not None:
            num_top = top if top >= 0 else None
            shown["prompt_logprobs"] = prompt_logprobs(output.prompt_logprobs, output.prompt_token_ids, num_top)
        return shown

    def _encode_whole(self, kind: type[Generated], **fields: Any) -> bytes:
        head = {**self._head, "object": self.kind}
        reply = kind(**head, **self.job.about, usage=self.usage.to_usage(), **fields)  # type: ignore[call-arg]
        return reply.model_dump_json(exclude_unset=True).encode()

    def _open(self, number: int, event: Started) -> bytes:
        openings = self._openings(number, event)
        if number == 0 and openings:
            openings[0] |= {name: field.model_dump(exclude_unset=True) for name, field in self.job.about.items()}
        return b"".join([self._encode_chunk(**fields) for fields in openings])

    def _encode_delta(self, number: int, delta: Delta) -> bytes:
        self.usage.num_output_tokens += len(delta.token_ids)
        if delta.finish_reason is None and self._has_template:
            return self._encode_text(number, delta) if delta.text else b""
        return b"".join([self._encode_chunk(choices=[choice]) for choice in self._choices(number, delta)])

    def _encode_text(self, number: int, delta: Delta) -> bytes:
        """Return the chunk for text alone: a template that was encoded once, with the text in its place."""
        template = self._templates.get((number, delta.index))
        if template is None:
            choice = self._choice(number, Delta(delta.index, _TEXT, []), self._text_delta(_TEXT))
            before, _, after = self._encode_chunk(choices=[choice]).decode().partition(encode_basestring_ascii(_TEXT))
            template = self._templates[number, delta.index] = before, after
        return (template[0] + encode_basestring_ascii(delta.text) + template[1]).encode()

    def _encode_chunk(self, **fields: Any) -> bytes:
        if self._has_usage:
            fields["usage"] = self._usage() if self._has_running_usage else None
        return event_of({**self._head, **fields})

    def _usage(self) -> dict[str, Any]:
        return self.usage.to_usage().model_dump(exclude_unset=True)

    def close(self) -> bytes:
        return (event_of({**self._head, "choices": [], "usage": self._usage()}) if self._has_usage else b"") + DONE

    def fail(self, error: ApiError) -> bytes:
        return event_of(error_body(error)) + DONE
