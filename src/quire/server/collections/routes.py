"""/v1/collections: create, list, search and delete collections and their documents."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from fastapi import APIRouter, Path, Query
from starlette.requests import Request
from starlette.responses import Response

from quire.server.bodies.replies import json_reply
from quire.server.bodies.retrieval import PassageCard
from quire.server.collections.schema import (
    RESPONSES,
    CollectionCard,
    CollectionList,
    CollectionRequest,
    Deleted,
    DocumentCard,
    DocumentList,
    DocumentOutcome,
    DocumentsReply,
    DocumentsRequest,
    EmbeddingUsage,
    SearchReply,
    SearchRequest,
)
from quire.server.collections.service import CollectionService
from quire.server.collections.uploads import DocumentInput
from quire.server.errors import ApiError
from quire.server.http.auth import key_id_of
from quire.server.http.body import JsonRoute
from quire.server.http.connection import run_while_connected

if TYPE_CHECKING:
    from quire.rag.collection import Collection
    from quire.rag.records import DocumentInfo

_DEFAULT_TOP_K = 5
_OUTCOMES = ("added", "changed", "unchanged", "removed")
Name = Annotated[str, Path(description="Name of the collection.")]
Document = Annotated[str, Path(description="Id or name of a document; a name may contain slashes.")]


def collection_routes(service: CollectionService) -> APIRouter:
    router = APIRouter(tags=["collections"], responses=RESPONSES)
    router.include_router(_routes_with_bodies(service))
    router.include_router(_listing_routes(service))
    router.include_router(_document_routes(service))
    return router


def _routes_with_bodies(service: CollectionService) -> APIRouter:
    router = APIRouter(route_class=JsonRoute)

    @router.post("/v1/collections", response_model=CollectionCard, summary="Create a collection")
    async def create(request: Request, body: CollectionRequest) -> Response:
        info = await service.create(
            key_id_of(request.scope),
            body.name,
            is_public=bool(body.public),
            chunk_tokens=body.chunk_tokens,
            overlap_tokens=body.overlap_tokens,
        )
        return json_reply(CollectionCard.of(info))

    @router.post("/v1/collections/{name}/documents", response_model=DocumentsReply, summary="Add or replace documents")
    async def add(request: Request, body: DocumentsRequest, name: Name) -> Response:
        given = [
            DocumentInput(each.name, each.text, each.data, each.kind, each.metadata or {}) for each in body.documents
        ]
        work = service.add(key_id_of(request.scope), name, given)
        outcomes = await run_while_connected(request.receive, work)
        failed = [outcome for outcome in outcomes if outcome.error is not None]
        if len(failed) == len(outcomes) and all(outcome.is_quota for outcome in failed):
            first = failed[0]
            raise ApiError(413, f"{first.name!r:.80}: {first.error}", "documents", "quota_exceeded")
        counts = {what: sum(outcome.counts[what] for outcome in outcomes) for what in _OUTCOMES}
        shown = [DocumentOutcome.of(outcome) for outcome in outcomes]
        return json_reply(DocumentsReply(object="collection.changes", **counts, failed=len(failed), documents=shown))

    @router.post("/v1/collections/{name}/search", response_model=SearchReply, summary="Search for passages")
    async def search(request: Request, body: SearchRequest, name: Name) -> Response:
        work = service.search(
            key_id_of(request.scope), name, body.query, top_k=body.top_k or _DEFAULT_TOP_K, where=body.filter
        )
        found = await run_while_connected(request.receive, work)
        usage = EmbeddingUsage(prompt_tokens=found.num_query_tokens, total_tokens=found.num_query_tokens)
        passages = [PassageCard.of(passage) for passage in found.passages]
        return json_reply(SearchReply(object="list", collection=found.collection.name, data=passages, usage=usage))

    return router


def _listing_routes(service: CollectionService) -> APIRouter:
    router = APIRouter()

    @router.get("/v1/collections", response_model=CollectionList, summary="List readable collections")
    async def list_collections(request: Request) -> Response:
        infos = await service.infos(key_id_of(request.scope))
        return json_reply(CollectionList(object="list", data=[CollectionCard.of(info) for info in infos]))

    @router.get("/v1/collections/{name}", response_model=CollectionCard, summary="Get a collection")
    async def show(request: Request, name: Name) -> Response:
        key_id = key_id_of(request.scope)
        return json_reply(CollectionCard.of(await service.run(lambda: service.find(key_id, name).info, name)))

    @router.delete("/v1/collections/{name}", response_model=Deleted, summary="Delete a collection and its documents")
    async def delete(request: Request, name: Name) -> Response:
        id_ = await service.delete(key_id_of(request.scope), name)
        return json_reply(Deleted(id=id_, object="collection", deleted=True))

    return router


def _document_routes(service: CollectionService) -> APIRouter:
    router = APIRouter()

    @router.get("/v1/collections/{name}/documents", response_model=DocumentList, summary="List documents")
    async def list_documents(
        request: Request,
        name: Name,
        limit: Annotated[int, Query(ge=1, le=1000, description="Maximum number of documents.")] = 100,
        after: Annotated[int, Query(ge=0, lt=2**63, description="Id of the document after which the list starts.")] = 0,
    ) -> Response:
        key_id = key_id_of(request.scope)

        def work() -> list[DocumentInfo]:
            return service.find(key_id, name).documents(limit=limit + 1, after=after)

        found = await service.run(work, name)
        shown = [DocumentCard.of(info) for info in found[:limit]]
        return json_reply(DocumentList(object="list", data=shown, has_more=len(found) > limit))

    @router.get(
        "/v1/collections/{name}/documents/{document:path}", response_model=DocumentCard, summary="Get a document"
    )
    async def show_document(request: Request, name: Name, document: Document) -> Response:
        key_id = key_id_of(request.scope)

        def work() -> DocumentCard:
            collection = service.find(key_id, name)
            found = _find_documents(collection, name, document)
            if len(found) > 1:
                ids = ", ".join(str(each.id) for each in found[:10])
                message = f"{len(found):,} documents are named {document!r:.200}; use one of their ids, such as {ids}"
                raise ApiError(409, message, code="several_documents")
            return DocumentCard.of(found[0], text=collection.text(found[0].id))

        return json_reply(await service.run(work, name))

    @router.delete(
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

        await service.run(work, name)
        return json_reply(Deleted(id=document, object="document", deleted=True))

    return router


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
