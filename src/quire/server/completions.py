"""POST /v1/completions: texts or token ids in, what follows them out, whole or as a stream.

Knows what completions look like; how prompts are made and run is elsewhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from quire.async_engine import Delta, Started
from quire.outputs import CompletionOutput, RequestOutput
from quire.sampling_params import SamplingParams
from quire.server.body import JsonRoute
from quire.server.choices import Choices
from quire.server.endpoint import Endpoint, json_reply
from quire.server.errors import invalid
from quire.server.generation import Generation
from quire.server.logprobs import CompletionLogprobsWriter, prompt_logprobs
from quire.server.openapi import streamed
from quire.server.prompts import Prompt, encode_texts, fit, tokenizer_of
from quire.server.protocol import ERROR_RESPONSES
from quire.server.protocol_completions import Completion, CompletionRequest
from quire.server.registry import ServedModel
from quire.server.sampling import sampling_params
from quire.server.settings import ServerSettings
from quire.server.streaming import Chunks, StreamedAnswer

_MAX_TOKENS = 16  # OpenAI's default


def completion_routes(endpoint: Endpoint) -> APIRouter:
    """The route, over the models of `endpoint`."""
    router = APIRouter(route_class=JsonRoute, tags=["generate"])

    @router.post(
        "/v1/completions",
        response_model=Completion,
        responses={**ERROR_RESPONSES, 200: streamed(Completion)},
        summary="Continue a text",
    )
    async def create_completion(request: Request, body: CompletionRequest) -> Response:
        model = endpoint.find_model(request, body)
        params = _sampling_params(body, model)
        prompts = fit(
            await _encode(body, model, endpoint.settings),
            model,
            keep=body.truncate_prompt_tokens,
            max_tokens=params.max_tokens,
            param="prompt",
        )
        generation = endpoint.begin(request, body, model, prompts, params, "cmpl")
        if body.stream:
            return StreamedAnswer(generation, _CompletionChunks(generation, body), endpoint.settings.keep_alive_s)
        return json_reply(await _whole(endpoint, request, body, generation))

    return router


def _sampling_params(body: CompletionRequest, model: ServedModel) -> SamplingParams:
    if body.best_of is not None and body.best_of != (body.n or 1):
        raise invalid(f"best_of={body.best_of} is not served; leave it out, or ask for n", "best_of")
    max_tokens = _MAX_TOKENS if body.max_tokens is None else body.max_tokens
    own: dict[str, Any] = {"max_tokens": max_tokens, "logprobs": body.logprobs}
    if body.echo and body.logprobs is not None:
        if body.stream:
            raise invalid("echo with logprobs is not streamed: leave out one of the three", "stream")
        own["prompt_logprobs"] = max(body.logprobs, body.prompt_logprobs or 0)
    if max_tokens == 0:
        if not body.echo or body.stream:
            raise invalid("max_tokens=0 goes with echo, and without stream", "max_tokens")
        own["max_tokens"] = 1  # the engine makes one token at least; it is not shown
    return sampling_params(body, model, **own)


async def _encode(body: CompletionRequest, model: ServedModel, settings: ServerSettings) -> list[Prompt]:
    given: Sequence[Any] = [body.prompt] if isinstance(body.prompt, str) or _is_ids(body.prompt) else body.prompt
    n = body.n or 1
    if len(given) * n > settings.max_answers:
        raise invalid(
            f"{len(given)} prompts with n={n} are more answers than the {settings.max_answers} that one request may "
            "ask for; send several requests",
            "n" if n > 1 else "prompt",
        )
    if _is_ids(given[0]):
        if body.echo:
            tokenizer_of(model)  # there must be one, to show them as text
        return [Prompt(token_ids) for token_ids in given]
    return await encode_texts(
        model,
        given,
        add_special_tokens=body.add_special_tokens is not False,
        is_truncated=body.truncate_prompt_tokens is not None,
    )


def _is_ids(prompt: Any) -> bool:
    return isinstance(prompt, list) and isinstance(prompt[0], int)


class _CompletionChoices(Choices):
    """How an answer to a prompt is shown; n answers to each prompt, numbered through."""

    def __init__(self, generation: Generation, body: CompletionRequest) -> None:
        super().__init__(generation, body, has_logprobs=body.logprobs is not None)
        self._prompts = generation.prompts
        self._n = generation.params.n
        self._top = body.logprobs
        self._has_echo = bool(body.echo)
        self._hides_special_tokens = generation.params.skip_special_tokens
        self._writers: dict[int, CompletionLogprobsWriter] = {}

    def index(self, number: int, index: int) -> int:
        return number * self._n + index

    def echo(self, number: int) -> str:
        """The prompt's text, where it is asked for."""
        if not self._has_echo:
            return ""
        prompt = self._prompts[number]
        if prompt.text is not None:
            return prompt.text
        text: str = self._tokenizer.decode(prompt.token_ids, skip_special_tokens=self._hides_special_tokens)
        return text

    def writer(self, number: int, index: int) -> CompletionLogprobsWriter:
        """What counts the characters of a choice."""
        index = self.index(number, index)
        if index not in self._writers:
            self._writers[index] = CompletionLogprobsWriter(self._tokenizer, self._hides_special_tokens)
        return self._writers[index]

    def show(self, number: int, gained: CompletionOutput | Delta) -> dict[str, Any]:
        shown = self._frame(self.index(number, gained.index), gained, {"text": gained.text})
        if self._top is not None and gained.logprobs is not None:
            shown["logprobs"] = self.writer(number, gained.index).write(gained.token_ids, gained.logprobs, self._top)
        return shown


async def _whole(endpoint: Endpoint, request: Request, body: CompletionRequest, generation: Generation) -> Completion:
    outputs, usage = await endpoint.run(request, generation)
    choices = _CompletionChoices(generation, body)
    if body.max_tokens == 0:
        usage.total_tokens, usage.completion_tokens = usage.prompt_tokens, 0
        for output in outputs:
            _forget_answers(output)
    return Completion(
        **generation.head("text_completion"),
        choices=[
            _whole_choice(choices, body, number, output, completion)  # type: ignore[misc]
            for number, output in enumerate(outputs)
            for completion in output.outputs
        ],
        usage=usage,
    )


def _forget_answers(output: RequestOutput) -> None:
    for completion in output.outputs:
        completion.text, completion.token_ids, completion.stop_reason = "", [], None
        completion.logprobs = [] if completion.logprobs is not None else None
        completion.finish_reason = "length"


def _whole_choice(
    choices: _CompletionChoices,
    body: CompletionRequest,
    number: int,
    output: RequestOutput,
    completion: CompletionOutput,
) -> dict[str, Any]:
    prompt_part: dict[str, list[Any]] = {}
    more: dict[str, Any] = {}
    if output.prompt_logprobs is not None:
        if body.echo and body.logprobs is not None:
            writer = choices.writer(number, completion.index)
            prompt_part = writer.write(output.prompt_token_ids, output.prompt_logprobs, body.logprobs)
        if body.prompt_logprobs is not None:
            more["prompt_logprobs"] = prompt_logprobs(
                output.prompt_logprobs, output.prompt_token_ids, body.prompt_logprobs
            )
    if body.return_token_ids:
        more["prompt_token_ids"] = output.prompt_token_ids
    shown = choices.show(number, completion)
    if prompt_part:
        shown["logprobs"] = {name: entries + shown["logprobs"][name] for name, entries in prompt_part.items()}
    shown["text"] = choices.echo(number) + completion.text
    return {**shown, **more}


class _CompletionChunks(Chunks):
    """First the prompt where it is echoed, then what each choice gains."""

    def __init__(self, generation: Generation, body: CompletionRequest) -> None:
        self._choices = _CompletionChoices(generation, body)
        super().__init__(generation.head("text_completion"), body, is_only_text=self._choices.is_only_text)
        self._n = generation.params.n
        self._has_echo = bool(body.echo)
        self._has_prompt = bool(body.return_token_ids)

    def open(self, number: int, started: Started) -> list[dict[str, Any]]:
        if not self._has_echo and not self._has_prompt:
            return []
        more = {"prompt_token_ids": started.prompt_token_ids, "token_ids": []} if self._has_prompt else {}
        opening = {"text": self._choices.echo(number), "logprobs": None, "finish_reason": None, **more}
        return [self._chunk({"index": self._choices.index(number, index), **opening}) for index in range(self._n)]

    def grow(self, number: int, delta: Delta) -> dict[str, Any] | None:
        if not self._choices.is_worth_a_chunk(delta):
            return None
        return self._chunk(self._choices.show(number, delta))
