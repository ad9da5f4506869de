"""GET /v1/requests and /v1/requests/{id}: how a key's recent prompts were read, and why."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response

from quire.server.bodies.replies import ERROR_RESPONSES, json_reply
from quire.server.bodies.requests import RequestList, RequestReply
from quire.server.errors import ApiError
from quire.server.history.store import RequestHistory
from quire.server.http.middleware import key_id_of
from quire.server.http.routes import Routes


def request_routes(history: RequestHistory) -> Routes:
    routes = Routes("requests", responses=ERROR_RESPONSES)

    @routes.get("/v1/requests", response_model=RequestList, summary="List this key's recent requests, newest first")
    async def list_requests(
        request: Request,
        limit: Annotated[int, Field(ge=1, le=1000, description="Maximum number of requests.")] = 20,
    ) -> Response:
        return json_reply(RequestList(object="list", data=history.recent(key_id_of(request.scope), limit)))

    @routes.get("/v1/requests/{request_id}", response_model=RequestReply, summary="Show how a prompt was read, and why")
    async def show_request(request: Request, request_id: str) -> Response:
        found = history.find(key_id_of(request.scope), request_id)
        if found is None:
            why = "this key has none of that id, or it is no longer among the last ones"
            raise ApiError(404, f"there is no request {request_id!r:.100}: {why}", "request_id", "request_not_found")
        return json_reply(found)

    return routes
