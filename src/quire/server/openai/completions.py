"""POST /v1/completions: continue texts or token ids."""

from __future__ import annotations

import asyncio
from typing import Any

from quire.prompt import Prompt
from quire.server.bodies.retrieval import Passages
from quire.server.errors import invalid
from quire.server.openai.chunks import CompletionWriter
from quire.server.openai.endpoint import GenerationEndpoint
from quire.server.openai.prompts import encode_question, encode_texts, tokenizer_of
from quire.server.openai.schema import Completion, CompletionRequest
from quire.server.registry import ServedModel

_MAX_TOKENS = 16  # OpenAI's default


class CompletionEndpoint(GenerationEndpoint[CompletionRequest]):
    path, name, summary = "/v1/completions", "create_completion", "Continue a text"
    body, whole, chunk = CompletionRequest, Completion, Completion
    id_prefix, prompt_field, writer = "cmpl", "prompt", CompletionWriter

    def _own_sampling(self, body: CompletionRequest) -> dict[str, Any]:
        if body.best_of is not None and body.best_of != (body.n or 1):
            raise invalid(f"best_of={body.best_of} is not served; leave it out, or ask for n", "best_of")
        max_tokens = _MAX_TOKENS if body.max_tokens is None else body.max_tokens
        own: dict[str, Any] = {"max_tokens": max_tokens, "logprobs": body.logprobs}
        if body.echo and body.logprobs is not None:
            if body.stream:
                raise invalid("echo with logprobs is not streamed: leave out one of the three", "stream")
            if body.logprob_token_ids:
                raise invalid("logprob_token_ids do not go with echo and logprobs", "logprob_token_ids")
            asked = (body.logprobs, body.prompt_logprobs or 0)
            own["prompt_logprobs"] = -1 if -1 in asked else max(asked)
        if max_tokens == 0:
            if not body.echo or body.stream:
                raise invalid("max_tokens=0 goes with echo, and without stream", "max_tokens")
            own["max_tokens"] = 1  # the engine makes one token at least; it is not shown
        return own

    def _question(self, body: CompletionRequest) -> str | None:
        given = body.prompts
        return given[0] if len(given) == 1 and isinstance(given[0], str) else None

    def _num_characters(self, body: CompletionRequest) -> int:
        return len(self._question(body) or "")

    async def _encode(
        self, body: CompletionRequest, model: ServedModel, passages: Passages | None = None
    ) -> list[Prompt]:
        given = body.prompts
        if passages is not None:
            return [await asyncio.to_thread(encode_question, model, given[0], passages)]
        n = body.n or 1
        if len(given) * n > self.settings.max_answers:
            raise invalid(
                f"{len(given)} prompts with n={n} are more answers than the {self.settings.max_answers} that one "
                "request may ask for; send several requests",
                "n" if n > 1 else "prompt",
            )
        if isinstance(given[0], list):
            if body.echo:
                tokenizer_of(model)  # raises for a model without one, which cannot show them as text
            return [Prompt(token_ids=token_ids) for token_ids in given]
        return await asyncio.to_thread(
            encode_texts,
            model,
            given,
            add_special_tokens=body.add_special_tokens is not False,
            is_truncated=body.truncate_prompt_tokens is not None,
        )
