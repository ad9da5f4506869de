"""POST /v1/completions: continue texts or token ids."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from quire.async_engine.messages import Started
from quire.outputs import CompletionOutput, Delta, RequestOutput
from quire.prompt import Prompt
from quire.server.bodies.retrieval import Passages
from quire.server.errors import invalid
from quire.server.generation.generation import GenerationJob
from quire.server.openai.chunks import ChunkWriter
from quire.server.openai.endpoint import GenerationEndpoint
from quire.server.openai.logprobs import CompletionLogprobsWriter, Entry
from quire.server.openai.prompts import encode_question, encode_texts, tokenizer_of
from quire.server.openai.schema import Completion, CompletionRequest
from quire.server.registry import ServedModel

_MAX_TOKENS = 16  # OpenAI's default


class CompletionWriter(ChunkWriter[CompletionRequest]):
    """A choice is a text, after its prompt's text if `echo` is set."""

    kind = chunk_kind = "text_completion"

    def __init__(self, job: GenerationJob, body: CompletionRequest, *, has_usage: bool) -> None:
        super().__init__(job, body, has_usage=has_usage)
        self._hides_special_tokens = job.params.skip_special_tokens
        self._writers: dict[tuple[int, int], CompletionLogprobsWriter] = {}  #: by prompt and index

    def whole(self, outputs: list[RequestOutput]) -> bytes:
        if self.body.max_tokens == 0:
            self.usage.num_output_tokens = 0
            self.usage.by_stage.clear()
            for output in outputs:
                for completion in output.outputs:
                    completion.text, completion.token_ids, completion.stop_reason = "", [], None
                    completion.logprobs = [] if completion.logprobs is not None else None
                    completion.finish_reason = "length"
        choices = [
            self._whole_choice(number, output, completion)
            for number, output in enumerate(outputs)
            for completion in output.outputs
        ]
        return self._encode_whole(Completion, choices=choices)

    def _whole_choice(self, number: int, output: RequestOutput, completion: CompletionOutput) -> dict[str, Any]:
        echoed: dict[str, list[Any]] = {}
        if self.body.echo and self._has_logprobs and output.prompt_logprobs is not None:
            writer = self._writer(number, completion.index)
            echoed = writer.write(output.prompt_token_ids, output.prompt_logprobs, self._num_top)
        text = {"text": self._echo(number) + completion.text}
        choice = {**self._choice(number, completion, text), **self._prompt_fields(output)}
        if echoed:
            choice["logprobs"] = {name: entries + choice["logprobs"][name] for name, entries in echoed.items()}
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
        return self._writer(number, gained.index).write(gained.token_ids, entries, self._num_top)

    def _echo(self, number: int) -> str:
        """Return the prompt's text if the answer repeats it."""
        if not self.body.echo:
            return ""
        prompt = self.job.prompts[number]
        if prompt.text is not None:
            return prompt.text
        text: str = self._tokenizer.decode(prompt.token_ids, skip_special_tokens=self._hides_special_tokens)
        return text

    def _writer(self, number: int, index: int) -> CompletionLogprobsWriter:
        """Return the logprobs writer of a choice, which counts the choice's characters."""
        if (number, index) not in self._writers:
            self._writers[number, index] = CompletionLogprobsWriter(
                self._tokenizer, hides_special_tokens=self._hides_special_tokens, shows_ids=self._shows_ids
            )
        return self._writers[number, index]


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
