"""POST /v1/embeddings in OpenAI's format, by the server's embedder."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Sequence
from typing import Any

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from quire.rag.embedding import Embeddings
from quire.server.collections.schema import (
    MAX_INPUTS,
    RESPONSES,
    EmbeddingCard,
    EmbeddingReply,
    EmbeddingRequest,
    EmbeddingUsage,
)
from quire.server.collections.service import CollectionService
from quire.server.errors import ApiError, invalid
from quire.server.http.access_log import report_usage
from quire.server.http.body import JsonRoute
from quire.server.http.connection import run_while_connected

_MAX_CHARACTERS = 1 << 16  #: a longer text exceeds any embedder's limit, or is mostly blank


def embedding_routes(service: CollectionService, *, accepts_any_name: bool) -> APIRouter:
    router = APIRouter(route_class=JsonRoute, tags=["embeddings"])

    @router.post("/v1/embeddings", response_model=EmbeddingReply, responses=RESPONSES, summary="Texts to vectors")
    async def embed(request: Request, body: EmbeddingRequest) -> Response:
        name = service.embedder.name
        if body.model not in (None, name, service.embedder.source.name) and not accepts_any_name:
            message = f"the embedder {body.model!r:.200} does not exist; this server has {name!r}"
            raise ApiError(404, message, "model", "model_not_found")
        texts = [body.input] if isinstance(body.input, str) else body.input
        if not 1 <= len(texts) <= MAX_INPUTS:
            raise invalid(f"input has {len(texts):,} texts; 1 to {MAX_INPUTS:,} are allowed", "input")
        work = service.embed([text[:_MAX_CHARACTERS] for text in texts])
        found = await run_while_connected(request.receive, work)
        if body.dimensions not in (None, dimension := found.vectors.shape[1]):
            raise invalid(f"dimensions={body.dimensions}; {name} only has {dimension}", "dimensions")
        if body.truncate_prompt_tokens is None:
            _check_lengths(texts, found, service.embedder.facts.max_tokens)
        report_usage(request.scope, model=name, prompt_tokens=sum(found.num_tokens))
        answer = await asyncio.to_thread(_render, name, found, body.encoding_format == "base64")
        return Response(answer, media_type="application/json")

    return router


def _check_lengths(texts: Sequence[str], found: Embeddings, max_tokens: int) -> None:
    for number, (text, is_truncated) in enumerate(zip(texts, found.is_truncated, strict=True)):
        if is_truncated or len(text) > _MAX_CHARACTERS:
            raise ApiError(
                400,
                f"input[{number}] has more than {max_tokens} tokens, the embedder's limit; split it, or set "
                "truncate_prompt_tokens to -1 to embed its beginning only",
                f"input[{number}]",
                "context_length_exceeded",
            )


def _render(name: str, found: Embeddings, is_base64: bool) -> str:
    vectors = found.vectors.astype("<f4")
    shown: list[Any] = (
        [base64.b64encode(vector.tobytes()).decode() for vector in vectors] if is_base64 else vectors.tolist()
    )
    num_tokens = sum(found.num_tokens)
    return EmbeddingReply(
        object="list",
        data=[EmbeddingCard(object="embedding", index=i, embedding=each) for i, each in enumerate(shown)],
        model=name,
        usage=EmbeddingUsage(prompt_tokens=num_tokens, total_tokens=num_tokens),
    ).model_dump_json(exclude_unset=True)
