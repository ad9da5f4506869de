"""Routes of /v1/files and /v1/batches."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Annotated, Literal

from pydantic import Field
from starlette.requests import ClientDisconnect, Request
from starlette.responses import FileResponse, Response

from quire.server.batches import schema
from quire.server.batches.service import BatchService, disk_errors
from quire.server.batches.store import Record, new_id, output_ids
from quire.server.bodies.replies import Deleted, json_reply, page
from quire.server.errors import ApiError, invalid
from quire.server.http.middleware import BODY_TIMEOUT_S, key_id_of
from quire.server.http.protocol import ClientDisconnected
from quire.server.http.routes import Routes

_UPLOAD = {
    "type": "object",
    "required": ["file", "purpose"],
    "additionalProperties": False,
    "properties": {"file": {"type": "string", "format": "binary"}, "purpose": {"enum": ["batch"]}},
}
_UPLOAD_BODY = {"requestBody": {"required": True, "content": {"multipart/form-data": {"schema": _UPLOAD}}}}
_CONTENT = {200: {"description": "The content.", "content": {"application/octet-stream": {}}}}

FileId = Annotated[str, Field(description="Id of a file.")]
BatchId = Annotated[str, Field(description="Id of a batch.")]
Limit = Annotated[int, Field(ge=1, le=10_000, description="Maximum number of entries.")]
After = Annotated[str, Field(description="Id behind which the list starts.")]


def batch_routes(service: BatchService) -> Routes:
    routes = Routes("batches", responses=schema.RESPONSES)
    _add_file_routes(routes, service)
    _add_batch_routes(routes, service)
    return routes


def _add_file_routes(routes: Routes, service: BatchService) -> None:
    @routes.post("/v1/files", response_model=schema.FileCard, summary="Upload a file", openapi_extra=_UPLOAD_BODY)
    async def upload(request: Request) -> Response:
        return json_reply(schema.FileCard(**await _receive(service, request)))

    @routes.get("/v1/files", response_model=schema.FileList, summary="List files")
    async def list_files(
        request: Request,
        purpose: Annotated[str, Field(description="Show those with this purpose.")] = "",
        order: Annotated[Literal["asc", "desc"], Field(description="By time.")] = "desc",
        limit: Limit = 10_000,
        after: After = "",
    ) -> Response:
        found = service.store.all(key_id_of(request.scope), "file")
        found = [each for each in found if purpose in ("", each["purpose"])][:: 1 if order == "desc" else -1]
        return json_reply(schema.FileList(**page(found, [each["id"] for each in found], limit, after)))

    @routes.get("/v1/files/{file_id}", response_model=schema.FileCard, summary="Show a file")
    async def show_file(request: Request, file_id: FileId) -> Response:
        return json_reply(schema.FileCard(**service.store.get(key_id_of(request.scope), file_id, "file")))

    @routes.get("/v1/files/{file_id}/content", responses=_CONTENT, summary="Get the content of a file")
    async def content(request: Request, file_id: FileId) -> Response:
        owner = key_id_of(request.scope)
        service.store.get(owner, file_id, "file")
        return FileResponse(service.store.path(owner, file_id), media_type="application/octet-stream")

    @routes.delete("/v1/files/{file_id}", response_model=Deleted, summary="Delete a file")
    async def delete(request: Request, file_id: FileId) -> Response:
        store, owner = service.store, key_id_of(request.scope)
        store.get(owner, file_id, "file")
        used = [(batch["input_file_id"], *output_ids(batch["id"])) for batch in store.open_batches(owner)]
        if any(file_id in ids for ids in used):
            raise ApiError(409, "a batch that has not ended uses the file; cancel it first", code="file_in_use")
        with disk_errors():
            await asyncio.to_thread(store.remove, owner, file_id)
        return json_reply(Deleted(id=file_id, object="file", deleted=True))


async def _receive(service: BatchService, request: Request) -> Record:
    """Store an upload, piece by piece. Raises ApiError; ClientDisconnected."""
    from quire.server.batches.form import FormReader

    store, owner, id_ = service.store, key_id_of(request.scope), new_id("file-")
    form, part, num_bytes = FormReader(request.headers.get("content-type", "")), store.path(owner, id_, ".part"), 0
    pieces = request.stream()
    try:
        with disk_errors():
            store.make_room(owner)
            part.parent.mkdir(mode=0o700, exist_ok=True)
            with part.open("wb") as file:
                while data := await _next(pieces):
                    content = form.feed(data)
                    store.charge(owner, len(content))
                    num_bytes += len(content)
                    await asyncio.to_thread(file.write, content)
            purpose = form.finish().get("purpose")
            if purpose != "batch":
                raise invalid(f"purpose={purpose!r:.40} is not batch", "purpose")
            part.rename(store.path(owner, id_))
            return await asyncio.to_thread(store.add_file, owner, id_, form.file_name, "batch")
    except BaseException as error:
        part.unlink(missing_ok=True)
        store.charge(owner, -num_bytes)
        if isinstance(error, ClientDisconnect):
            raise ClientDisconnected from None
        raise


async def _next(pieces: AsyncGenerator[bytes, None]) -> bytes:
    """Return the next piece of a body, or b"" at its end. Raises ApiError if it does not arrive."""
    try:
        return await asyncio.wait_for(anext(pieces, b""), BODY_TIMEOUT_S)
    except TimeoutError:
        message = f"the upload paused for {BODY_TIMEOUT_S:g} s"
        raise ApiError(408, message, code="request_timeout") from None


def _add_batch_routes(routes: Routes, service: BatchService) -> None:
    @routes.post("/v1/batches", response_model=schema.BatchCard, summary="Answer the requests of a file")
    async def create(request: Request, body: schema.BatchRequest) -> Response:
        fields = body.model_dump(exclude_none=True)
        return json_reply(schema.BatchCard(**await service.create(key_id_of(request.scope), **fields)))

    @routes.get("/v1/batches", response_model=schema.BatchList, summary="List batches")
    async def list_batches(request: Request, limit: Limit = 20, after: After = "") -> Response:
        owner = key_id_of(request.scope)
        found = [service.show(owner, batch["id"]) for batch in service.store.all(owner, "batch")]
        return json_reply(schema.BatchList(**page(found, [each["id"] for each in found], limit, after)))

    @routes.get("/v1/batches/{batch_id}", response_model=schema.BatchCard, summary="Show a batch")
    async def show(request: Request, batch_id: BatchId) -> Response:
        return json_reply(schema.BatchCard(**service.show(key_id_of(request.scope), batch_id)))

    @routes.post("/v1/batches/{batch_id}/cancel", response_model=schema.BatchCard, summary="Cancel a batch")
    async def cancel(request: Request, batch_id: BatchId) -> Response:
        await service.cancel(key_id_of(request.scope), batch_id)
        return json_reply(schema.BatchCard(**service.show(key_id_of(request.scope), batch_id)))
