"""POST /v1/chat/completions: messages in, the assistant's next one out, whole or as a stream."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from quire.async_engine.messages import Started
from quire.outputs import CompletionOutput, Delta, RequestOutput
from quire.prompt import Prompt
from quire.server.collections.retrieval import last_question
from quire.server.errors import invalid
from quire.server.openai.endpoint import Endpoint
from quire.server.openai.logprobs import Entry, chat_logprobs
from quire.server.openai.prompts import Passages, encode_messages
from quire.server.openai.response import ResponseBuilder
from quire.server.openai.schema import ChatCompletion, ChatCompletionChunk, ChatCompletionRequest, Usage
from quire.server.registry import ServedModel


class _ChatBuilder(ResponseBuilder[ChatCompletionRequest]):
    """A choice's text is in a message, or in the delta of one; its role comes first."""

    kind, chunk_kind = "chat.completion", "chat.completion.chunk"

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

    def _text(self, gained: CompletionOutput | Delta) -> dict[str, Any]:
        if isinstance(gained, CompletionOutput):
            return {"message": {"role": "assistant", "content": self._echo() + gained.text, "refusal": None}}
        return {"delta": {"content": gained.text} if gained.text else {}}

    def _logprobs(self, number: int, gained: CompletionOutput | Delta, entries: Sequence[Entry]) -> dict[str, Any]:
        content = chat_logprobs(self._tokenizer, gained.token_ids, entries, self._num_top, shows_ids=self._shows_ids)
        return {"content": content, "refusal": None}

    def _echo(self) -> str:
        """The last message's text, where that is asked for and the answer goes on with it."""
        last = self.body.messages[-1]
        if not self.body.echo or last.role != "assistant":
            return ""
        return last.text


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
        return {"max_tokens": next(iter(limits), None), "logprobs": logprobs}

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
        )
        return [prompt]
