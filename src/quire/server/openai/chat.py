"""POST /v1/chat/completions: messages in, the assistant's next one out, whole or as a stream."""

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
from quire.server.bodies.replies import Usage
from quire.server.collections.retrieval import last_question
from quire.server.errors import invalid
from quire.server.openai.endpoint import Endpoint
from quire.server.openai.generation import Generation, wait_until_known
from quire.server.openai.logprobs import Entry, chat_logprobs
from quire.server.openai.prompts import Passages, encode_messages
from quire.server.openai.response import ResponseBuilder
from quire.server.openai.schema import ChatCompletion, ChatCompletionChunk, ChatCompletionRequest
from quire.server.openai.tool_calls import answer_form, check_tools, forced_tool_grammar, wants_tools
from quire.server.registry import ServedModel
from quire.server.tools.answer_form import AnswerForm
from quire.server.tools.answer_reader import Answer, AnswerReader
from quire.server.tools.events import CallArguments, CallStart, Content, Event, Reasoning, merge


class _ChatBuilder(ResponseBuilder[ChatCompletionRequest]):
    """A choice's text is in a message, or in the delta of one; its role comes first.

    Where the answer has a form, a chunk shows one thing: reasoning, content, the beginning of a call or a piece of its
    arguments.
    """

    kind, chunk_kind = "chat.completion", "chat.completion.chunk"

    def __init__(self, generation: Generation, body: ChatCompletionRequest) -> None:
        super().__init__(generation, body)
        self._readers: dict[int, AnswerReader] = {}  # of a stream, by the index of a choice

    def whole(self, outputs: list[RequestOutput], usage: Usage) -> ChatCompletion:
        (output,) = outputs
        return ChatCompletion(
            **self.generation.head(self.kind),
            **self.generation.about,
            choices=[self.choice(0, completion) for completion in output.outputs],  # type: ignore[misc]
            usage=usage,
            service_tier=None,
            **self._about_prompt(output),
        )

    def opening(self, number: int, started: Started) -> list[dict[str, Any]]:
        more = {"prompt_token_ids": started.prompt_token_ids} if self._has_token_ids else {}
        delta = {"role": "assistant", "content": self._echo(), "refusal": None}
        opening = {"delta": delta, "logprobs": None, "finish_reason": None}
        return [{"choices": [{"index": index, **opening}], **more} for index in range(self._num_choices)]

    @property
    def is_only_text(self) -> bool:
        return super().is_only_text and self.generation.form is None

    def choice(self, number: int, gained: CompletionOutput | Delta) -> dict[str, Any]:
        shown = super().choice(number, gained)
        has_calls = bool(shown.get("message", {}).get("tool_calls"))
        if gained.finish_reason == "stop" and (has_calls or self._has_called(gained.index)):
            shown["finish_reason"] = "tool_calls"
        return shown

    def choices(self, number: int, delta: Delta) -> list[dict[str, Any]]:
        form = self.generation.form
        if form is None:
            return super().choices(number, delta)
        reader = self._readers.get(delta.index)
        if reader is None:
            reader = self._readers[delta.index] = form.reader()
        events = reader.feed(delta.text)
        if delta.finish_reason is not None:
            events = merge([*events, *reader.finish()])
        pieces = [_piece(event) for event in events]
        if not pieces and delta.finish_reason is None and super().is_only_text:
            return []
        last = self.choice(number, replace(delta, text=""))
        last["delta"] = pieces.pop() if pieces else {}
        about = {"index": last["index"], "logprobs": None, "finish_reason": None}
        return [*({**about, "delta": piece} for piece in pieces), last]

    def _has_called(self, index: int) -> bool:
        return index in self._readers and self._readers[index].num_calls > 0

    def _text(self, gained: CompletionOutput | Delta) -> dict[str, Any]:
        if isinstance(gained, CompletionOutput):
            return {"message": self._message(gained.text)}
        return {"delta": {"content": gained.text} if gained.text else {}}

    def _message(self, text: str) -> dict[str, Any]:
        if self.generation.form is None:
            return {"role": "assistant", "content": self._echo() + text, "refusal": None}
        answer = Answer.of(self.generation.form.reader().read(text))
        content = self._echo() + answer.content
        message: dict[str, Any] = {"role": "assistant", "content": content, "refusal": None}
        if answer.reasoning:
            message["reasoning_content"] = answer.reasoning
        if answer.calls:
            message["content"] = content or None
            message["tool_calls"] = [
                {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
                for call in answer.calls
            ]
        return message

    def _logprobs(self, number: int, gained: CompletionOutput | Delta, entries: Sequence[Entry]) -> dict[str, Any]:
        content = chat_logprobs(self._tokenizer, gained.token_ids, entries, self._num_top, shows_ids=self._shows_ids)
        return {"content": content, "refusal": None}

    def _echo(self) -> str:
        """The last message's text, where that is asked for and the answer goes on with it."""
        last = self.body.messages[-1]
        if not self.body.echo or last.role != "assistant":
            return ""
        return last.text


def _piece(event: Event) -> dict[str, Any]:
    """The delta that shows an event."""
    match event:
        case Reasoning():
            return {"reasoning_content": event.text}
        case Content():
            return {"content": event.text}
        case CallStart():
            begun = {"index": event.index, "id": event.id, "type": "function"}
            return {"tool_calls": [{**begun, "function": {"name": event.name, "arguments": ""}}]}
        case CallArguments():
            return {"tool_calls": [{"index": event.index, "function": {"arguments": event.text}}]}


class ChatEndpoint(Endpoint[ChatCompletionRequest]):
    path, name, summary = "/v1/chat/completions", "create_chat_completion", "Answer a conversation"
    body, whole, chunk = ChatCompletionRequest, ChatCompletion, ChatCompletionChunk
    id_prefix, prompt_field, builder = "chatcmpl", "messages", _ChatBuilder

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
        logprobs = (body.top_logprobs or 0) if body.logprobs else None
        if body.logprob_token_ids and not body.logprobs:
            raise invalid("logprob_token_ids goes with logprobs=true", "logprob_token_ids")
        check_tools(body)
        own: dict[str, Any] = {"max_tokens": next(iter(limits), None), "logprobs": logprobs}
        is_parallel = body.parallel_tool_calls is not False
        schema = forced_tool_grammar(body.tools or (), body.tool_choice, is_parallel=is_parallel)
        if schema is not None:
            own["structured_outputs"] = StructuredOutputsParams(json=schema)  # type: ignore[arg-type]
        return own

    async def count_tokens(self, request: Request, body: ChatCompletionRequest) -> int:
        """The length of a conversation's prompt; nothing runs on the engine."""
        model = self.auto.registry.get(body.model)
        await wait_until_known(model, request.receive)
        check_tools(body)
        (prompt,) = await self._encode(body, model)
        return len(prompt.token_ids)

    def _question(self, body: ChatCompletionRequest) -> str | None:
        return last_question(body.messages)

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
