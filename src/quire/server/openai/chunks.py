"""Writing answers of chat and completions, whole or in chunks, with log-probabilities."""

from __future__ import annotations

import codecs
import re
import secrets
from abc import abstractmethod
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from json.encoder import encode_basestring_ascii
from typing import Any, ClassVar, Generic, TypeVar, cast

from pydantic_core import to_json

from quire.async_engine.messages import Event, Finished, Started
from quire.outputs import CompletionOutput, Delta, Logprob, Logprobs, RequestOutput
from quire.server.errors import ApiError, error_body
from quire.server.generation.generation import MANY_LOGPROBS, AnswerWriter, GenerationJob, event_of
from quire.server.openai.schema import ChatCompletionRequest, CompletionRequest, GenerationRequest
from quire.server.tools.answer_reader import AnswerForm, AnswerReader, ParsedAnswer
from quire.server.tools.parser import CallArguments, CallStart, Content, Reasoning, merge
from quire.server.tools.parser import Event as AnswerEvent

_LOWEST = -9999.0  #: OpenAI's value for minus infinity, which JSON lacks

Entry = Mapping[int, Logprob]
#: Makes a JSON list from its length, its width, and a function that returns a range of its items.
MakeList = Callable[[int, int, Callable[[int, int], list[Any]]], Any]


class HeldLists:
    """Long JSON lists of one answer, encoded piece by piece while it is sent; until then placeholders stand for them.

    An instance is a `MakeList`. A stream does not use it.
    """

    def __init__(self, *, is_used: bool) -> None:
        self._is_used = is_used
        self._mark = secrets.token_hex(8)  # cannot occur in a text by accident
        self._held: list[tuple[int, int, Callable[[int, int], list[Any]]]] = []

    def __call__(self, length: int, width: int, items: Callable[[int, int], list[Any]]) -> Any:
        if not self._is_used or length * width <= MANY_LOGPROBS:
            return items(0, length)
        self._held.append((length, max(1, MANY_LOGPROBS // width), items))
        return f"{self._mark}{len(self._held) - 1}"

    def expand(self, answer: bytes) -> Iterator[bytes]:
        """Return an answer with the lists in place of their placeholders."""
        for position, part in enumerate(re.split(rb'"%b(\d+)"' % self._mark.encode(), answer)):
            if position % 2 == 0:
                yield part
                continue
            length, step, items = self._held[int(part)]
            for start in range(0, length, step):
                encoded = to_json(items(start, min(start + step, length)))
                yield (b"," if start else b"[") + encoded[1:-1]
            yield b"]"


def chat_logprobs(
    tokenizer: Any, token_ids: Sequence[int], entries: Sequence[Entry], top: int | None, *, shows_ids: bool
) -> list[dict[str, Any]]:
    """Return the `content` of a chat choice's logprobs with the `top` likeliest tokens, or with all if None; with
    `shows_ids` tokens are `token_id:123`."""

    def show(token_id: int, logprob: Logprob) -> dict[str, Any]:
        data = list(tokenizer.token_bytes(token_id)) if tokenizer is not None else None
        return {"token": _text(token_id, logprob, shows_ids), "logprob": _finite(logprob), "bytes": data}

    return [
        {**show(token_id, entry[token_id]), "top_logprobs": [show(*likely) for likely in islice(entry.items(), top)]}
        for token_id, entry in zip(token_ids, entries, strict=True)
    ]


def prompt_logprobs(
    entries: Sequence[Entry | None], token_ids: Sequence[int], top: int | None
) -> list[dict[str, Any] | None]:
    """Return vLLM's form: for each prompt token a dict by token id, None for the first."""

    def show(token_id: int, entry: Entry) -> dict[str, Any]:
        kept = {**dict(islice(entry.items(), top)), token_id: entry[token_id]}
        return {
            str(id_): {"logprob": _finite(found), "rank": found.rank, "decoded_token": found.decoded_token}
            for id_, found in kept.items()
        }

    return [
        None if entry is None else show(token_id, entry) for token_id, entry in zip(token_ids, entries, strict=True)
    ]


class CompletionLogprobsWriter:
    """Writes the logprobs of one completion choice piece by piece, with each token's offset in the text, which may lack
    special tokens; with `shows_ids` tokens are `token_id:123`. `tokenizer` is None for a model without one."""

    def __init__(self, tokenizer: Any, *, hides_special_tokens: bool, shows_ids: bool) -> None:
        self._tokenizer = tokenizer
        self._shows_ids = shows_ids
        self._hidden = tokenizer.special_ids if tokenizer is not None and hides_special_tokens else frozenset()
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode  # tokens may be parts of a character
        self._num_characters = 0

    def write(self, token_ids: Sequence[int], entries: Logprobs, top: int | None, make: MakeList) -> dict[str, Any]:
        """Return the next tokens as parallel lists, with the `top` likeliest (None: all)."""
        offsets: list[int] = []
        for token_id in token_ids:
            offsets.append(self._num_characters)
            if self._tokenizer is not None and token_id not in self._hidden:
                self._num_characters += len(self._decode(self._tokenizer.token_bytes(token_id)))
        has_text = self._tokenizer is not None and not self._shows_ids
        tokens = [self._tokenizer.token_text(each) if has_text else f"token_id:{each}" for each in token_ids]
        chosen = [
            None if known < 0 else max(logprob, _LOWEST)  # unknown: the first token of a prompt
            for known, logprob in zip(entries.token_ids, entries.logprobs, strict=True)
        ]

        def tops(start: int, end: int) -> list[dict[str, float] | None]:
            return [
                None if entry is None or logprob is None else self._likely(entry, top, token, logprob)
                for entry, token, logprob in zip(entries[start:end], tokens[start:end], chosen[start:end], strict=True)
            ]

        return {
            "text_offset": make(len(offsets), 1, lambda start, end: offsets[start:end]),
            "tokens": make(len(tokens), 1, lambda start, end: tokens[start:end]),
            "token_logprobs": make(len(chosen), 1, lambda start, end: chosen[start:end]),
            "top_logprobs": make(len(entries), entries.num_entries // max(1, len(entries)), tops),
        }

    def _likely(self, entry: Entry, top: int | None, token: str, logprob: float) -> dict[str, float]:
        likely: dict[str, float] = {}
        for id_, found in islice(entry.items(), top):  # of several with one text, keep the likeliest
            likely.setdefault(_text(id_, found, self._shows_ids), _finite(found))
        likely.setdefault(token, logprob)
        return likely


def _text(token_id: int, logprob: Logprob, shows_ids: bool) -> str:
    return f"token_id:{token_id}" if shows_ids or logprob.decoded_token is None else logprob.decoded_token


def _finite(logprob: Logprob) -> float:
    return max(logprob.logprob, _LOWEST)


B = TypeVar("B", bound=GenerationRequest)

DONE = b"data: [DONE]\n\n"
_TEXT = "\0text\0"  # placeholder for the text in a chunk's template


class ChunkWriter(AnswerWriter, Generic[B]):
    """Writes one answer to a body. Subclasses add the form of text and log-probabilities."""

    kind: ClassVar[str]  #: `object` of a whole answer
    chunk_kind: ClassVar[str]  #: `object` of a chunk

    def __init__(self, job: GenerationJob, body: B) -> None:
        super().__init__(job)
        params, engine = job.params, job.model.async_engine.engine
        self.body = body
        self._tokenizer = engine.tokenizer
        self._has_logprobs = params.logprobs is not None
        shows_all = params.logprobs == -1 or bool(params.logprob_token_ids)
        self._num_top = None if shows_all else params.logprobs or 0  #: entries to show; None is all
        self._shows_ids = bool(body.return_tokens_as_token_ids)
        self._has_token_ids = bool(body.return_token_ids)
        self._has_usage = body.wants_usage
        self._has_running_usage = body.wants_usage and body.wants_running_usage
        self._is_only_text = not self._has_logprobs and not self._has_token_ids
        self._lists = HeldLists(is_used=not body.stream)
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
        shown: dict[str, Any] = {"prompt_token_ids": None, "prompt_logprobs": None}  # keys that clients expect
        top = self.body.prompt_logprobs
        if self._has_token_ids:
            shown["prompt_token_ids"] = output.prompt_token_ids
        if top is not None and output.prompt_logprobs is not None:
            num_top = top if top >= 0 else None
            entries, ids = cast(Logprobs, output.prompt_logprobs), output.prompt_token_ids
            shown["prompt_logprobs"] = self._lists(
                len(ids),
                max(1, entries.num_entries // len(ids)),
                lambda start, end: prompt_logprobs(entries[start:end], ids[start:end], num_top),
            )
        return shown

    def pieces(self, whole: bytes) -> Iterator[bytes]:
        return self._lists.expand(whole)

    def _encode_whole(self, **fields: Any) -> bytes:
        about = {name: field.model_dump(exclude_unset=True) for name, field in self.job.about.items()}
        return to_json({**self._head, "object": self.kind, **about, "usage": self._usage(), **fields})

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


class ChatWriter(ChunkWriter[ChatCompletionRequest]):
    """A choice is a message, or the delta of one, whose role comes first.

    A chunk of an answer with a form shows one thing: reasoning, content, the start of a call or a piece of its
    arguments.
    """

    kind, chunk_kind = "chat.completion", "chat.completion.chunk"

    def __init__(self, job: GenerationJob, body: ChatCompletionRequest) -> None:
        super().__init__(job, body)
        make = partial(AnswerReader, job.form or AnswerForm())
        self._readers: defaultdict[int, AnswerReader] = defaultdict(make)  #: of a stream, by the index of a choice
        self._token_ids: defaultdict[int, list[int]] = defaultdict(list)  #: of a stream, by the index of a choice
        last = body.messages[-1]
        self._echo = last.text if body.echo and last.role == "assistant" else ""

    def whole(self, outputs: list[RequestOutput]) -> bytes:
        (output,) = outputs
        choices = [self._whole_choice(completion) for completion in output.outputs]
        return self._encode_whole(choices=choices, service_tier=None, **self._prompt_fields(output))

    def _whole_choice(self, completion: CompletionOutput) -> dict[str, Any]:
        message: dict[str, Any] = {"role": "assistant", "content": self._echo + completion.text, "refusal": None}
        choice = {"token_ids": None, **self._choice(0, completion, {"message": message})}
        if self.job.form is None:
            return choice
        self._count_reasoning(completion.token_ids)
        answer = ParsedAnswer.of(AnswerReader(self.job.form).read(completion.text))
        message["content"] = self._echo + answer.content
        if answer.reasoning or answer.calls:
            message["content"] = message["content"] or None
        if answer.reasoning:
            message |= _thought(answer.reasoning)
        if answer.calls:
            message["tool_calls"] = [
                {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
                for call in answer.calls
            ]
            if completion.finish_reason == "stop":
                choice["finish_reason"] = "tool_calls"
        return choice

    def _openings(self, number: int, started: Started) -> list[dict[str, Any]]:
        more = {"prompt_token_ids": started.prompt_token_ids} if self._has_token_ids else {}
        delta = {"role": "assistant", "content": self._echo, "refusal": None}
        opening = {"delta": delta, "logprobs": None, "finish_reason": None}
        return [{"choices": [{"index": index, **opening}], **more} for index in range(self.job.params.n)]

    @property
    def _has_template(self) -> bool:
        return self.job.form is None and super()._has_template

    def _choices(self, number: int, delta: Delta) -> list[dict[str, Any]]:
        if self.job.form is None:
            return super()._choices(number, delta)
        reader = self._readers[delta.index]
        events = reader.feed(delta.text)
        self._token_ids[delta.index] += delta.token_ids
        if delta.finish_reason is not None:
            self._count_reasoning(self._token_ids.pop(delta.index))
            events = merge([*events, *reader.finish()])
        pieces = [_piece(event) for event in events]
        if not pieces and delta.finish_reason is None and self._is_only_text:
            return []
        last = self._choice(number, replace(delta, text=""), {"delta": pieces.pop() if pieces else {}})
        if delta.finish_reason == "stop" and reader.num_calls:
            last["finish_reason"] = "tool_calls"
        about = {"index": last["index"], "logprobs": None, "finish_reason": None}
        return [*({**about, "delta": piece} for piece in pieces), last]

    def _count_reasoning(self, token_ids: Sequence[int]) -> None:
        """Count the reasoning in the tokens of a whole answer."""
        if self.job.form is not None and self.job.form.reasoning is not None:
            number = self.job.form.num_reasoning_tokens(token_ids, self._tokenizer)
            self.usage.num_reasoning_tokens = (self.usage.num_reasoning_tokens or 0) + number

    def _text_delta(self, text: str) -> dict[str, Any]:
        return {"delta": {"content": text} if text else {}}

    def _logprobs(self, number: int, gained: CompletionOutput | Delta, entries: Sequence[Entry]) -> dict[str, Any]:
        ids, top, shows_ids = gained.token_ids, self._num_top, self._shows_ids

        def content(start: int, end: int) -> list[dict[str, Any]]:
            return chat_logprobs(self._tokenizer, ids[start:end], entries[start:end], top, shows_ids=shows_ids)

        return {"content": self._lists(len(ids), 1 + (top or 0), content), "refusal": None}


def _thought(text: str) -> dict[str, str]:
    return {"reasoning_content": text, "reasoning": text}


def _piece(event: AnswerEvent) -> dict[str, Any]:
    match event:
        case Reasoning():
            return _thought(event.text)
        case Content():
            return {"content": event.text}
        case CallStart():
            call = {"index": event.index, "id": event.id, "type": "function"}
            return {"tool_calls": [{**call, "function": {"name": event.name, "arguments": ""}}]}
        case CallArguments():
            return {"tool_calls": [{"index": event.index, "function": {"arguments": event.text}}]}


class CompletionWriter(ChunkWriter[CompletionRequest]):
    """A choice is a text, after its prompt's text if `echo` is set."""

    kind = chunk_kind = "text_completion"

    def __init__(self, job: GenerationJob, body: CompletionRequest) -> None:
        super().__init__(job, body)
        self._hides_special_tokens = hides = job.params.skip_special_tokens
        make = partial(CompletionLogprobsWriter, self._tokenizer, hides_special_tokens=hides, shows_ids=self._shows_ids)
        self._writers: defaultdict[tuple[int, int], CompletionLogprobsWriter] = defaultdict(make)  #: by prompt, index

    def whole(self, outputs: list[RequestOutput]) -> bytes:
        if self.body.max_tokens == 0:
            self.usage.num_output_tokens = 0
            self.usage.by_stage.clear()
            for output in outputs:
                for completion in output.outputs:
                    completion.text, completion.token_ids, completion.stop_reason = "", [], None
                    completion.logprobs = completion.logprobs and completion.logprobs[:0]
                    completion.finish_reason = "length"
        choices = [
            self._whole_choice(number, output, completion)
            for number, output in enumerate(outputs)
            for completion in output.outputs
        ]
        return self._encode_whole(choices=choices)

    def encode(self, number: int, event: Event) -> bytes:
        """Return the events for an event of prompt `number`. Log-probabilities of an echo are known at its end."""
        if not self.body.echo or not self._has_logprobs:
            return super().encode(number, event)
        if not isinstance(event, Finished):
            return b""
        self.usage.add_output(number, event.output)
        choices = [self._whole_choice(number, event.output, completion) for completion in event.output.outputs]
        return b"".join([self._encode_chunk(choices=[choice]) for choice in choices])

    def _whole_choice(self, number: int, output: RequestOutput, completion: CompletionOutput) -> dict[str, Any]:
        text = {"text": self._echo(number) + completion.text}
        unscored = replace(completion, logprobs=None)
        choice = {"token_ids": None, **self._choice(number, unscored, text), **self._prompt_fields(output)}
        if self._has_logprobs and completion.logprobs is not None:
            ids, entries = completion.token_ids, cast(Logprobs, completion.logprobs)
            if self.body.echo and output.prompt_logprobs is not None:
                ids, entries = output.prompt_token_ids + ids, cast(Logprobs, output.prompt_logprobs[:])
                entries.extend(cast(Logprobs, completion.logprobs))
            writer = self._writers[number, completion.index]
            choice["logprobs"] = writer.write(ids, entries, self._num_top, self._lists)
        return choice

    def _openings(self, number: int, started: Started) -> list[dict[str, Any]]:
        if not self.body.echo and not self._has_token_ids and not self.job.about:
            return []
        more = {"prompt_token_ids": started.prompt_token_ids, "token_ids": []} if self._has_token_ids else {}
        opening = {"text": self._echo(number), "logprobs": None, "finish_reason": None, **more}
        n = self.job.params.n
        return [{"choices": [{"index": number * n + index, **opening}]} for index in range(n)]

    def _text_delta(self, text: str) -> dict[str, Any]:
        return {"text": text}

    def _logprobs(self, number: int, gained: CompletionOutput | Delta, entries: Sequence[Entry]) -> dict[str, Any]:
        writer = self._writers[number, gained.index]
        return writer.write(gained.token_ids, cast(Logprobs, entries), self._num_top, self._lists)

    def _echo(self, number: int) -> str:
        """Return the prompt's text if the answer repeats it."""
        if not self.body.echo:
            return ""
        prompt = self.job.prompts[number]
        if prompt.text is not None:
            return prompt.text
        text: str = self._tokenizer.decode(prompt.token_ids, skip_special_tokens=self._hides_special_tokens)
        return text
