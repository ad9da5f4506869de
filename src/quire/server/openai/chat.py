"""POST /v1/chat/completions: answer a conversation."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from starlette.requests import Request

from quire.async_engine.messages import Started
from quire.outputs import CompletionOutput, Delta, RequestOutput
from quire.prompt import Prompt
from quire.sampling_params import StructuredOutputsParams
from quire.server.bodies.retrieval import Passages
from quire.server.errors import invalid
from quire.server.generation.generation import GenerationJob, wait_until_known
from quire.server.openai.chunks import ChunkWriter
from quire.server.openai.endpoint import GenerationEndpoint
from quire.server.openai.logprobs import Entry, chat_logprobs
from quire.server.openai.prompts import encode_messages
from quire.server.openai.schema import ChatCompletion, ChatCompletionChunk, ChatCompletionRequest
from quire.server.openai.tool_calls import answer_form, check_tools, forced_tool_grammar, wants_tools
from quire.server.registry import ServedModel
from quire.server.tools.answer_reader import AnswerForm, AnswerReader, ParsedAnswer
from quire.server.tools.events import CallArguments, CallStart, Content, Event, Reasoning, merge


class ChatWriter(ChunkWriter[ChatCompletionRequest]):
    """A choice is a message, or the delta of one, whose role comes first.

    A chunk of an answer with a form shows one thing: reasoning, content, the start of a call or a piece of its
    arguments.
    """

    kind, chunk_kind = "chat.completion", "chat.completion.chunk"

    def __init__(self, job: GenerationJob, body: ChatCompletionRequest, *, has_usage: bool) -> None:
        super().__init__(job, body, has_usage=has_usage)
        self._readers: dict[int, AnswerReader] = {}  #: of a stream, by the index of a choice
        last = body.messages[-1]
        self._echo = last.text if body.echo and last.role == "assistant" else ""

    def whole(self, outputs: list[RequestOutput]) -> bytes:
        (output,) = outputs
        choices = [self._whole_choice(completion) for completion in output.outputs]
        return self._encode_whole(ChatCompletion, choices=choices, service_tier=None, **self._prompt_fields(output))

    def _whole_choice(self, completion: CompletionOutput) -> dict[str, Any]:
        message: dict[str, Any] = {"role": "assistant", "content": self._echo + completion.text, "refusal": None}
        choice = self._choice(0, completion, {"message": message})
        if self.job.form is None:
            return choice
        answer = ParsedAnswer.of(self.job.form.reader().read(completion.text))
        message["content"] = self._echo + answer.content
        if answer.reasoning:
            message["reasoning_content"] = answer.reasoning
        if answer.calls:
            message["content"] = message["content"] or None
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
        form = self.job.form
        if form is None:
            return super()._choices(number, delta)
        reader = self._readers.get(delta.index)
        if reader is None:
            reader = self._readers[delta.index] = form.reader()
        events = reader.feed(delta.text)
        if delta.finish_reason is not None:
            events = merge([*events, *reader.finish()])
        pieces = [_piece(event) for event in events]
        if not pieces and delta.finish_reason is None and self._is_only_text:
            return []
        last = self._choice(number, replace(delta, text=""), {"delta": pieces.pop() if pieces else {}})
        if delta.finish_reason == "stop" and reader.num_calls:
            last["finish_reason"] = "tool_calls"
        about = {"index": last["index"], "logprobs": None, "finish_reason": None}
        return [*({**about, "delta": piece} for piece in pieces), last]

    def _text_delta(self, text: str) -> dict[str, Any]:
        return {"delta": {"content": text} if text else {}}

    def _logprobs(self, number: int, gained: CompletionOutput | Delta, entries: Sequence[Entry]) -> dict[str, Any]:
        content = chat_logprobs(self._tokenizer, gained.token_ids, entries, self._num_top, shows_ids=self._shows_ids)
        return {"content": content, "refusal": None}


def _piece(event: Event) -> dict[str, Any]:
    """Return the delta for an event."""
    match event:
        case Reasoning():
            return {"reasoning_content": event.text}
        case Content():
            return {"content": event.text}
        case CallStart():
            call = {"index": event.index, "id": event.id, "type": "function"}
            return {"tool_calls": [{**call, "function": {"name": event.name, "arguments": ""}}]}
        case CallArguments():
            return {"tool_calls": [{"index": event.index, "function": {"arguments": event.text}}]}


class ChatEndpoint(GenerationEndpoint[ChatCompletionRequest]):
    path, name, summary = "/v1/chat/completions", "create_chat_completion", "Answer a conversation"
    body, whole, chunk = ChatCompletionRequest, ChatCompletion, ChatCompletionChunk
    id_prefix, prompt_field, writer = "chatcmpl", "messages", ChatWriter

    def _own_sampling(self, body: ChatCompletionRequest) -> dict[str, Any]:
        limits = {body.max_completion_tokens, body.max_tokens} - {None}
        if len(limits) > 1:
            raise invalid(
                f"max_tokens={body.max_tokens} and max_completion_tokens={body.max_completion_tokens} are two names of "
                "one limit; give one of them",
                "max_tokens",
            )
        if body.top_logprobs is not None and not body.logprobs:
            raise invalid("top_logprobs goes with logprobs=true", "top_logprobs")
        if body.logprob_token_ids and not body.logprobs:
            raise invalid("logprob_token_ids goes with logprobs=true", "logprob_token_ids")
        check_tools(body)
        logprobs = (body.top_logprobs or 0) if body.logprobs else None
        own: dict[str, Any] = {"max_tokens": next(iter(limits), None), "logprobs": logprobs}
        schema = forced_tool_grammar(body)
        if schema is not None:
            own["structured_outputs"] = StructuredOutputsParams(json=schema)  # type: ignore[arg-type]
        return own

    async def count_tokens(self, request: Request, body: ChatCompletionRequest) -> int:
        """Return the length of a conversation's prompt, without running it."""
        model = self.models.registry.get(body.model)
        await wait_until_known(model, request.receive)
        check_tools(body)
        (prompt,) = await self._encode(body, model)
        return len(prompt.token_ids)

    def _question(self, body: ChatCompletionRequest) -> str | None:
        return next((message.text for message in reversed(body.messages) if message.role == "user"), "")

    def _num_characters(self, body: ChatCompletionRequest) -> int:
        return sum(len(message.text) for message in body.messages)

    async def _encode(
        self, body: ChatCompletionRequest, model: ServedModel, passages: Passages | None = None
    ) -> list[Prompt]:
        is_truncated = body.truncate_prompt_tokens is not None
        prompt = await asyncio.to_thread(
            encode_messages,
            model,
            body.messages,
            body,
            trusts_template=self.settings.trust_request_chat_template,
            is_truncated=is_truncated,
            passages=passages,
            shows_tools=wants_tools(body),
        )
        return [prompt]

    def _form(self, body: ChatCompletionRequest, model: ServedModel, prompts: Sequence[Prompt]) -> AnswerForm | None:
        return answer_form(body, model, self.settings, prompts[0])
