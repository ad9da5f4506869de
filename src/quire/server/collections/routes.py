"""Routes of /v1/collections, of warming their KV, and of /v1/embeddings."""

from __future__ import annotations

import asyncio
import base64
import json
import secrets
import time
from collections.abc import Awaitable, Callable, Sequence
from itertools import accumulate, islice
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response

from quire.rag.embedding import Embeddings
from quire.server.bodies.replies import Deleted, ErrorDetail, PromptUsage, json_reply
from quire.server.bodies.retrieval import PassageCard
from quire.server.collections import schema
from quire.server.collections.passage_kv import PassageKV
from quire.server.collections.service import CollectionService
from quire.server.errors import ApiError, invalid
from quire.server.http.middleware import key_id_of, report_usage
from quire.server.http.protocol import run_while_connected
from quire.server.http.routes import Routes
from quire.server.registry import ModelRegistry
from quire.server.settings import ServerSettings

if TYPE_CHECKING:
    import numpy as np

    from quire.rag.collection import Collection
    from quire.rag.records import DocumentInfo
    from quire.server.collections.uploads import UploadOutcome


_DEFAULT_TOP_K = 5
_OUTCOMES = ("added", "changed", "unchanged", "removed")
Name = Annotated[str, Field(description="Name of the collection.")]
Document = Annotated[str, Field(description="Id or name of a document; a name may contain slashes.")]


def collection_routes(service: CollectionService) -> Routes:
    routes = Routes("collections", responses=schema.RESPONSES)
    _add_routes_with_bodies(routes, service)
    _add_listing_routes(routes, service)
    _add_document_routes(routes, service)
    return routes


def _add_routes_with_bodies(routes: Routes, service: CollectionService) -> None:
    @routes.post("/v1/collections", response_model=schema.CollectionCard, summary="Create a collection")
    async def create(request: Request, body: schema.CollectionRequest) -> Response:
        info = await service.create(
            key_id_of(request.scope),
            body.name,
            is_public=bool(body.public),
            chunk_tokens=body.chunk_tokens,
            overlap_tokens=body.overlap_tokens,
        )
        return json_reply(schema.CollectionCard.of(info))

    @routes.post(
        "/v1/collections/{name}/documents", response_model=schema.DocumentsReply, summary="Add or replace documents"
    )
    async def add(request: Request, body: schema.DocumentsRequest, name: Name) -> Response:
        work = service.add(key_id_of(request.scope), name, body.documents)
        outcomes = await run_while_connected(request.receive, work)
        failed = [outcome for outcome in outcomes if outcome.error is not None]
        if len(failed) == len(outcomes) and all(outcome.is_quota for outcome in failed):
            first = failed[0]
            raise ApiError(413, f"{first.name!r:.80}: {first.error}", "documents", "quota_exceeded")
        counts = {what: sum(outcome.counts[what] for outcome in outcomes) for what in _OUTCOMES}
        shown = [_reply(outcome) for outcome in outcomes]
        return json_reply(
            schema.DocumentsReply(object="collection.changes", **counts, failed=len(failed), documents=shown)
        )

    @routes.post("/v1/collections/{name}/search", response_model=schema.SearchReply, summary="Search for passages")
    async def search(request: Request, body: schema.SearchRequest, name: Name) -> Response:
        top_k = body.top_k or _DEFAULT_TOP_K
        work = service.search(key_id_of(request.scope), name, body.query, top_k, body.filter, body.search)
        found = await run_while_connected(request.receive, work)
        passages, usage = list(map(PassageCard.of, found.passages)), PromptUsage.of(found.num_query_tokens)
        return json_reply(
            schema.SearchReply(object="list", collection=found.collection.name, data=passages, usage=usage)
        )


def _add_listing_routes(routes: Routes, service: CollectionService) -> None:
    @routes.get("/v1/collections", response_model=schema.CollectionList, summary="List readable collections")
    async def list_collections(request: Request) -> Response:
        infos = await service.infos(key_id_of(request.scope))
        return json_reply(schema.CollectionList(object="list", data=[schema.CollectionCard.of(info) for info in infos]))

    @routes.get("/v1/collections/{name}", response_model=schema.CollectionCard, summary="Get a collection")
    async def show(request: Request, name: Name) -> Response:
        key_id = key_id_of(request.scope)
        return json_reply(
            schema.CollectionCard.of(await service.run(key_id, lambda: service.find(key_id, name).info, name))
        )

    @routes.delete("/v1/collections/{name}", response_model=Deleted, summary="Delete a collection and its documents")
    async def delete(request: Request, name: Name) -> Response:
        id_ = await service.delete(key_id_of(request.scope), name)
        return json_reply(Deleted(id=id_, object="collection", deleted=True))


_MAX_PAGE_CHARACTERS = 1 << 20  # of metadata


def _add_document_routes(routes: Routes, service: CollectionService) -> None:
    @routes.get("/v1/collections/{name}/documents", response_model=schema.DocumentList, summary="List documents")
    async def list_documents(
        request: Request,
        name: Name,
        limit: Annotated[int, Field(ge=1, le=1000, description="Maximum number of documents.")] = 100,
        after: Annotated[int, Field(ge=0, lt=2**63, description="Id of the document after which the list starts.")] = 0,
    ) -> Response:
        key_id = key_id_of(request.scope)

        def work() -> Response:
            found = service.find(key_id, name).documents(limit=limit + 1, after=after)
            sizes = accumulate(len(json.dumps(info.metadata)) for info in found)
            num_shown = max(1, sum(size <= _MAX_PAGE_CHARACTERS for size in islice(sizes, limit)))
            shown = [schema.DocumentCard.of(info) for info in found[:num_shown]]
            return json_reply(schema.DocumentList(object="list", data=shown, has_more=len(found) > num_shown))

        return await service.run(key_id, work, name)

    @routes.get(
        "/v1/collections/{name}/documents/{document:path}", response_model=schema.DocumentCard, summary="Get a document"
    )
    async def show_document(request: Request, name: Name, document: Document) -> Response:
        key_id = key_id_of(request.scope)

        def work() -> schema.DocumentCard:
            collection = service.find(key_id, name)
            found = _find_documents(collection, name, document)
            if len(found) > 1:
                ids = ", ".join(str(each.id) for each in found[:10])
                message = f"{len(found):,} documents are named {document!r:.200}; use one of their ids, such as {ids}"
                raise ApiError(409, message, code="several_documents")
            return schema.DocumentCard.of(found[0], text=collection.text(found[0].id))

        return json_reply(await service.run(key_id, work, name))

    @routes.delete(
        "/v1/collections/{name}/documents/{document:path}",
        response_model=Deleted,
        summary="Delete a document, or all documents of a name",
    )
    async def delete_document(request: Request, name: Name, document: Document) -> Response:
        key_id = key_id_of(request.scope)

        def work() -> None:
            collection = service.find_own(key_id, name)
            ids = [each.id for each in _find_documents(collection, name, document)]
            collection.change(removed=ids)

        await service.run(key_id, work, name)
        return json_reply(Deleted(id=document, object="document", deleted=True))


def _find_documents(collection: Collection, name: str, document: str) -> list[DocumentInfo]:
    """Find documents by id or name. Raises ApiError if there are none."""
    if document.isascii() and document.isdigit() and len(document) < 19:
        by_id = collection.document(int(document))
        found = [by_id] if by_id is not None else []
    else:
        found = collection.documents_named(document)
    if not found:
        message = f"there is no document {document!r:.200} in collection {name!r:.200}"
        raise ApiError(404, message, code="document_not_found")
    return found


def warm_routes(service: CollectionService, passage_kv: PassageKV) -> Routes:
    routes = Routes("collections", responses=schema.RESPONSES)
    path = "/v1/collections/{name}/warm"

    @routes.post(path, response_model=schema.WarmReply, status_code=202, summary="Compute the KV of passages")
    async def warm(request: Request, body: schema.WarmRequest, name: str) -> Response:
        key_id = key_id_of(request.scope)
        await service.run(key_id, lambda: service.find_own(key_id, name), name)  # checks the right to change it
        collection = await service.run(key_id, lambda: service.find(key_id, name), name)
        warming = await passage_kv.warm(collection, name, body.model, body.endpoint, body.template, request.receive)
        return Response(warming.model_dump_json(), 202, media_type="application/json")

    @routes.get(path, response_model=schema.WarmList, summary="Show the progress of computing KV")
    async def list_warmings(request: Request, name: str) -> Response:
        key_id = key_id_of(request.scope)
        collection = await service.run(key_id, lambda: service.find(key_id, name), name)
        found = schema.WarmList(object="list", data=passage_kv.warmings(collection.id))
        return Response(found.model_dump_json(), media_type="application/json")

    return routes


_MAX_CHARACTERS = 1 << 16  #: a longer text exceeds any embedder's limit, or is mostly blank
#: Returns the pooled hidden states of texts or token ids, float32, by a served model, and the number of tokens.
EmbedByModel = Callable[[Request, str, Sequence[Any]], Awaitable[tuple[list[bytes], int]]]


def embedding_routes(
    service: CollectionService, models: ModelRegistry, settings: ServerSettings, embed_by_model: EmbedByModel
) -> Routes:
    routes = Routes("embeddings")

    @routes.post(
        "/v1/embeddings", response_model=schema.EmbeddingReply, responses=schema.RESPONSES, summary="Texts to vectors"
    )
    async def embed(request: Request, body: schema.EmbeddingRequest) -> Response:
        texts: Any = body.input
        if isinstance(texts, str) or (texts and isinstance(texts[0], int)):
            texts = [texts]
        if not 1 <= len(texts) <= schema.MAX_INPUTS:
            raise invalid(f"input has {len(texts):,} texts; 1 to {schema.MAX_INPUTS:,} are allowed", "input")
        if body.model is not None and body.model in models.names:
            if body.truncate_prompt_tokens is not None:
                raise invalid("truncate_prompt_tokens goes with an embedder; split the text", "truncate_prompt_tokens")
            pooled, num_tokens = await embed_by_model(request, body.model, texts)
            name = body.model
            answer = await asyncio.to_thread(lambda: _render(name, _shorten(pooled, body), num_tokens, body))
            return Response(answer, media_type="application/json")
        return await _embed(service, request, body, texts, settings.accept_any_model_name)

    return routes


async def _embed(
    service: CollectionService,
    request: Request,
    body: schema.EmbeddingRequest,
    texts: Sequence[Any],
    accepts_any_name: bool,
) -> Response:
    name = service.embedder.name
    if body.model not in (None, name, service.embedder.source.name) and not accepts_any_name:
        message = f"the embedder {body.model!r:.200} does not exist; this server has {name!r}"
        raise ApiError(404, message, "model", "model_not_found")
    keep = body.truncate_prompt_tokens
    if keep == 0:
        raise invalid("truncate_prompt_tokens=0 leaves nothing of a text", "truncate_prompt_tokens")
    bounded = [text if len(text) <= _MAX_CHARACTERS else text[: _MAX_CHARACTERS - 1] + text[-1:] for text in texts]
    try:
        work = service.embed(key_id_of(request.scope), bounded, keep if keep != -1 else None)
        found = await run_while_connected(request.receive, work)
    except ValueError as error:
        raise invalid(f"input: {error}", "input") from None
    if body.dimensions not in (None, dimension := found.vectors.shape[1]):
        raise invalid(f"dimensions={body.dimensions}; {name} only has {dimension}", "dimensions")
    limit = service.embedder.facts.max_tokens
    if keep is None:
        _check_lengths(texts, found, limit)
    elif keep > limit:
        message = f"truncate_prompt_tokens={keep} is more than the {limit} tokens of {name}; ask for fewer, or -1"
        raise invalid(message, "truncate_prompt_tokens")
    most = limit if keep in (None, -1) else keep
    num_tokens = sum(min(count, most) for count in found.num_tokens)
    report_usage(request.scope, model=name, prompt_tokens=num_tokens)
    answer = await asyncio.to_thread(_render, name, found.vectors, num_tokens, body)
    return Response(answer, media_type="application/json")


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


def _shorten(pooled: list[bytes], body: schema.EmbeddingRequest) -> np.ndarray:
    """Return the first `dimensions` of vectors, with length 1."""
    import numpy as np

    vectors = np.frombuffer(b"".join(pooled), "<f4").reshape(len(pooled), -1)
    if (body.dimensions or 0) > (most := vectors.shape[1]):
        raise invalid(f"dimensions={body.dimensions}; {body.model} only has {most}", "dimensions")
    vectors = vectors[:, : body.dimensions]
    return vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)


def _render(name: str, vectors: np.ndarray, num_tokens: int, body: schema.EmbeddingRequest) -> str:
    vectors, is_base64 = vectors.astype("<f4"), body.encoding_format == "base64"
    shown: list[Any] = (
        [base64.b64encode(each.tobytes()).decode() for each in vectors] if is_base64 else vectors.tolist()
    )
    return schema.EmbeddingReply(
        id=f"embd-{secrets.token_hex(12)}",
        object="list",
        created=int(time.time()),
        data=[schema.EmbeddingCard(object="embedding", index=i, embedding=each) for i, each in enumerate(shown)],
        model=name,
        usage=PromptUsage.of(num_tokens),
    ).model_dump_json(exclude_unset=True)


def _reply(outcome: UploadOutcome) -> schema.DocumentOutcome:
    counts: dict[str, Any] = {what: outcome.counts[what] for what in _OUTCOMES}
    if outcome.error is None:
        return schema.DocumentOutcome(name=outcome.name, **counts)
    code = "quota_exceeded" if outcome.is_quota else "invalid_document"
    error = ErrorDetail(message=outcome.error, type="invalid_request_error", param="documents", code=code)
    return schema.DocumentOutcome(name=outcome.name, **counts, error=error)
