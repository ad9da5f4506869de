"""POST /v1/rerank and /v1/score: how well texts answer a query, as a language model judges it; and its embeddings.

The model is asked whether a text meets the query, in the form that Qwen3-Reranker was trained on (arXiv:2506.05176),
and the score is the probability of the answer yes, of yes and no alone. Any chat model can be asked. The query stands
before the text, so that all texts of a query share its KV.
"""

from __future__ import annotations

import math
import secrets
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Annotated, Any, Literal

from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response

from quire.outputs import RequestOutput
from quire.prompt import Prompt
from quire.sampling_params import SamplingParams
from quire.server.bodies.conversation import Message
from quire.server.bodies.fields import Body, Count, Hint, ModelBody, NonEmpty, Reply, ShortText, option
from quire.server.bodies.replies import ERROR_RESPONSES, PromptUsage, json_reply
from quire.server.errors import ApiError, invalid
from quire.server.generation.generation import GenerationJob, turn_of, wait_until_ready
from quire.server.http.middleware import domains_of, hold_sequences, key_id_of, report_usage
from quire.server.http.protocol import run_while_connected
from quire.server.http.routes import Routes
from quire.server.openai.prompts import encode_messages, encode_texts, tokenizer_of
from quire.server.openai.schema import TemplateOptions
from quire.server.registry import ModelRegistry, ServedModel
from quire.server.settings import ServerSettings

_SYSTEM = (
    "Judge whether the Document meets the requirements based on the Query and the Instruct provided. Note that the "
    'answer can only be "yes" or "no".'
)
_INSTRUCTION = "Given a web search query, retrieve relevant passages that answer the query"
_WORDS = ("yes", "no")

Pair = tuple[str, str]  #: a query and a text
MAX_PAIRS = 1024  #: of a query and a text, per request
_AT_ONCE = 256  # prompts of a request in the engine's queue

_Text = Annotated[str, Field(min_length=1)]
_Texts = Annotated[NonEmpty[_Text], Field(max_length=MAX_PAIRS)]


class ScoredText(Body):
    text: _Text


class ScoringBody(ModelBody):
    instruction: Annotated[str, Field(max_length=4096)] | None = option(
        "What makes a text relevant. Default: that it answers the query of a web search."
    )
    request_id: ShortText | None = option("Part of the answer's id.")
    cache_salt: ShortText | None = option("Shares cached KV only with requests of the same salt.")
    priority: int | None = option("Requests with lower values are served first.", ge=-(2**31), lt=2**31)
    user: Hint = option("Accepted for compatibility; has no effect.")


class RerankRequest(ScoringBody):
    query: _Text = Field(description="The query.")
    documents: Annotated[NonEmpty[_Text | ScoredText], Field(max_length=MAX_PAIRS)] = Field(
        description=f"1 to {MAX_PAIRS:,} texts, or objects with a text."
    )
    top_n: Count | None = option("How many of the best to return. Default: all.")
    return_documents: bool | None = option("Return the texts, too. Default: true.")


class ScoreRequest(ScoringBody):
    text_1: _Text | _Texts = Field(description="A query for all texts, or one for each.")
    text_2: _Text | _Texts = Field(description=f"The text, or 1 to {MAX_PAIRS:,} texts.")


class Scored(Reply):
    """The head of an answer."""

    id: str
    model: str
    scoring: Literal["yes_no"] = Field(
        description="How relevance was judged. yes_no: by the probability of the answer yes, against no."
    )
    usage: PromptUsage


class RerankResult(Reply):
    index: int = Field(description="The text's place in the request.")
    document: ScoredText | None = None
    relevance_score: float = Field(description="From 0 to 1.")


class RerankReply(Scored):
    results: list[RerankResult] = Field(description="The most relevant first.")


class ScoreCard(Reply):
    object: Literal["score"]
    index: int
    score: float = Field(description="From 0 to 1.")


class ScoreReply(Scored):
    object: Literal["list"]
    created: int = Field(description="Seconds since 1970.")
    data: list[ScoreCard] = Field(description="Scores in the order of the pairs.")


def scoring_routes(registry: ModelRegistry, settings: ServerSettings) -> Routes:
    routes = Routes("score", responses=ERROR_RESPONSES)

    @routes.post("/v1/rerank", response_model=RerankReply, summary="Order texts by how well they fit a query")
    async def rerank(request: Request, body: RerankRequest) -> Response:
        texts = [each if isinstance(each, str) else each.text for each in body.documents]
        head, scores = await _judge(request, body, [(body.query, text) for text in texts], "documents")
        best = sorted(range(len(texts)), key=lambda index: -scores[index])[: body.top_n]
        results = [RerankResult(index=index, relevance_score=scores[index]) for index in best]
        if body.return_documents is not False:
            for result in results:
                result.document = ScoredText(text=texts[result.index])
        return json_reply(RerankReply(**head, results=results))

    @routes.post("/v1/score", response_model=ScoreReply, summary="Score how well texts fit queries")
    async def score(request: Request, body: ScoreRequest) -> Response:
        texts = [body.text_2] if isinstance(body.text_2, str) else body.text_2
        queries = [body.text_1] * len(texts) if isinstance(body.text_1, str) else body.text_1
        if len(queries) != len(texts):
            raise invalid(f"text_1 has {len(queries)} texts and text_2 {len(texts)}; give one, or as many", "text_1")
        head, scores = await _judge(request, body, list(zip(queries, texts, strict=True)), "text_2")
        cards = [ScoreCard(object="score", index=index, score=each) for index, each in enumerate(scores)]
        return json_reply(ScoreReply(**head, object="list", created=int(time.time()), data=cards))

    async def _judge(
        request: Request, body: ScoringBody, pairs: Sequence[Pair], field: str
    ) -> tuple[dict[str, Any], list[float]]:
        """Return the head of the answer, and each pair's score."""
        model, key_id = registry.get(body.model), key_id_of(request.scope)
        report_usage(request.scope, model=model.name)
        await wait_until_ready(model, request.receive)
        given = body.instruction or _INSTRUCTION
        prompts, words = await model.async_engine.in_thread(key_id, _encode, model, given, pairs)
        params = SamplingParams(temperature=0.0, max_tokens=1, logprobs=len(words), logprob_token_ids=words)
        id_ = f"score-{body.request_id or secrets.token_hex(12)}"
        salt, priority = body.cache_salt, body.priority or 0
        outputs, usage = await read_prompts(request, settings, model, prompts, params, field, id_, salt, priority)
        head = {"id": id_, "model": model.name, "scoring": "yes_no", "usage": usage}
        return head, [_score(output, words) for output in outputs]

    return routes


def model_embedder(
    registry: ModelRegistry, settings: ServerSettings
) -> Callable[..., Awaitable[tuple[list[bytes], int]]]:
    """Return a function of a request, a model's name, and texts or token ids to pooled hidden states and usage."""

    async def embed(request: Request, name: str, texts: Sequence[Any]) -> tuple[list[bytes], int]:
        model, id_ = registry.get(name), f"embd-{secrets.token_hex(12)}"
        await wait_until_ready(model, request.receive)
        pooling = settings.pooling or model.async_engine.engine.pooling
        params = SamplingParams(temperature=0.0, max_tokens=1, pooling=pooling, detokenize=False)
        encode = partial(encode_texts, model, texts, add_special_tokens=True, is_truncated=False)
        try:
            prompts = await model.async_engine.in_thread(key_id_of(request.scope), encode)
            outputs, usage = await read_prompts(request, settings, model, prompts, params, "input", id_)
        except ApiError as error:
            raise replace(error, param="input") if error.param == "prompt" else error from None
        return [output.pooled or b"" for output in outputs], usage.prompt_tokens

    return embed


async def read_prompts(
    request: Request,
    settings: ServerSettings,
    model: ServedModel,
    prompts: Sequence[Prompt],
    params: SamplingParams,
    field: str,
    id_: str,
    salt: str | None = None,
    priority: int = 0,
) -> tuple[list[RequestOutput], PromptUsage]:
    """Run the prompts of a request without an answer's text. Raises ApiError, such as for a long item of `field`."""
    longest, key_id = model.async_engine.engine.max_model_len, key_id_of(request.scope)
    for number, prompt in enumerate(prompts):
        if (length := len(prompt.token_ids)) >= longest:
            message = f"{field}[{number}] takes {length} tokens; this model's maximum context length is {longest}"
            raise ApiError(400, f"{message}; split the text", field, "context_length_exceeded")
    priority, owner = turn_of(key_id, priority, settings, request.headers)
    prompts = [replace(prompt, domains=domains_of(key_id, settings, salt)) for prompt in prompts]
    hold_sequences(request.scope, len(prompts))

    async def run() -> list[RequestOutput]:
        outputs = []
        for start in range(0, len(prompts), _AT_ONCE):
            some = prompts[start : start + _AT_ONCE]
            outputs += await GenerationJob(model, some, params, id_, int(time.time()), priority, owner).outputs()
        return outputs

    outputs = await run_while_connected(request.receive, run())
    num_tokens = sum(len(prompt.token_ids) for prompt in prompts)
    report_usage(request.scope, model=model.name, prompt_tokens=num_tokens)
    return outputs, PromptUsage.of(num_tokens)


def _score(output: RequestOutput, words: tuple[int, ...]) -> float:
    entry = output.outputs[0].logprobs[0]  # type: ignore[index]
    yes, no = (entry[word].logprob for word in words)
    return 1.0 / (1.0 + math.exp(min(no - yes, 700.0)))


def _encode(model: ServedModel, instruction: str, pairs: Sequence[Pair]) -> tuple[list[Prompt], tuple[int, ...]]:
    """Return the prompts, and the tokens of yes and no. Raises ApiError."""
    tokenizer = tokenizer_of(model)
    questions = [f"<Instruct>: {instruction}\n<Query>: {query}\n<Document>: {text}" for query, text in pairs]
    if model.chat_template is not None or tokenizer.chat_templates:
        system = Message(role="system", content=_SYSTEM)
        options = TemplateOptions(chat_template_kwargs={"enable_thinking": False})
        encode = partial(encode_messages, model, options=options, trusts_template=False, is_truncated=False)
        prompts = [encode(messages=[system, Message(role="user", content=question)]) for question in questions]
    else:
        texts = [f"{_SYSTEM}\n\n{question}\n\nAnswer:" for question in questions]
        encoded = encode_texts(model, texts, add_special_tokens=True, is_truncated=False)
        prompts = [replace(prompt, answer_lead=" ") for prompt in encoded]
    yes, no = (tokenizer.encode_plain(prompts[0].answer_lead + word) for word in _WORDS)
    words = next((pair for pair in zip(yes, no, strict=False) if pair[0] != pair[1]), None)
    if words is None:
        raise invalid(
            f"the model {model.name!r} has no tokens for yes and no, so it cannot judge; name another", "model"
        )
    return prompts, words
