"""The HTTP application: routes, middleware, and handlers of errors."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

import quire
from quire.async_engine.messages import EngineUnavailable, RequestFailed
from quire.routing.router import Router
from quire.server.anthropic.endpoint import message_routes
from quire.server.anthropic.schema import MessageEvent
from quire.server.collections.embeddings import embedding_routes
from quire.server.collections.passage_kv import PassageKV
from quire.server.collections.retrieval import CollectionRetriever
from quire.server.collections.routes import collection_routes
from quire.server.collections.service import CollectionService
from quire.server.collections.warm_routes import warm_routes
from quire.server.errors import ApiError, error_response, invalid
from quire.server.generation.engine_errors import as_api_error
from quire.server.health import health_routes
from quire.server.http.access_log import AccessLog
from quire.server.http.auth import Authenticate
from quire.server.http.body import BodyReader
from quire.server.http.connection import ClientDisconnected
from quire.server.http.limits import Concurrency, LimitBody
from quire.server.http.paths import PlainPaths
from quire.server.metrics.metrics import Metrics, metrics_routes
from quire.server.openai.chat import ChatEndpoint
from quire.server.openai.completions import CompletionEndpoint
from quire.server.openai.models import model_routes
from quire.server.openai.openapi import describe
from quire.server.openai.schema import ChatCompletionChunk
from quire.server.openai.tokenize import tokenize_routes
from quire.server.pages import page_routes
from quire.server.registry import ModelChooser, ModelRegistry
from quire.server.responses.endpoint import ResponsesEndpoint
from quire.server.responses.schema import ResponseEvent
from quire.server.responses.store import ResponseStore
from quire.server.settings import ServerSettings

_CLIENT_CLOSED = 499  # for the access log
#: Paths of other servers -> ours.
_ALIASES = {
    "/chat/completions": "/v1/chat/completions",
    "/completions": "/v1/completions",
    "/responses": "/v1/responses",
    "/embeddings": "/v1/embeddings",
    "/messages": "/v1/messages",
    "/models": "/v1/models",
    "/v1/health": "/health",
    "/ping": "/health",
}


def make_app(
    registry: ModelRegistry,
    settings: ServerSettings,
    metrics: Metrics | None = None,
    *,
    service: CollectionService | None = None,
    router: Router | None = None,
) -> FastAPI:
    """Make the application. The caller starts and stops the engines.

    Args:
        metrics: metrics for GET /metrics; None leaves the route out.
        service: collections and embedder, which the application closes at its end.
        router: routing policy for `model: "auto"`.
    """
    app = FastAPI(
        title="Quire",
        version=quire.__version__,
        docs_url=None,
        redoc_url=None,
        lifespan=_lifespan,
        servers=[{"url": settings.root_path}] if settings.root_path else None,
    )
    passage_kv = PassageKV(registry)
    app.state.service = service = service or CollectionService()
    app.state.bodies = BodyReader(ignore_unknown_fields=settings.ignore_unknown_fields)
    app.state.passage_kv = passage_kv
    service.on_deleted = lambda info, passages: passage_kv.delete(info.id, passages)
    models, retriever = ModelChooser(registry, router), CollectionRetriever(service)
    chat = ChatEndpoint(models, settings, retriever)
    routers = (
        chat.route(),
        message_routes(chat),
        ResponsesEndpoint(chat, ResponseStore(settings.max_stored_responses)).route(),
        CompletionEndpoint(models, settings, retriever).route(),
        tokenize_routes(registry, settings),
        model_routes(registry, has_auto=router is not None),
        collection_routes(service),
        warm_routes(service, passage_kv),
        embedding_routes(service, accepts_any_name=settings.accept_any_model_name),
        health_routes(registry, settings),
        page_routes(registry, settings),
        *([metrics_routes(metrics)] if metrics is not None else []),
    )
    for each in routers:
        app.include_router(each)
    for kind in (ApiError, EngineUnavailable, RequestFailed):
        app.add_exception_handler(kind, _on_error)
    app.add_exception_handler(HTTPException, _on_unknown_route)
    app.add_exception_handler(RequestValidationError, _on_invalid_parameter)
    app.add_exception_handler(ClientDisconnected, _on_disconnect)
    chunks = (ChatCompletionChunk, ResponseEvent, MessageEvent)
    app.openapi = lambda: describe(app, needs_key=bool(settings.api_keys), chunks=chunks)  # type: ignore[method-assign]
    paths = frozenset(route.path for each in routers for route in each.routes if isinstance(route, Route))
    _add_middleware(app, settings, {} if metrics is None else {"count": metrics.observe_http, "paths": paths})
    return app


def _add_middleware(app: FastAPI, settings: ServerSettings, counting: dict[str, Any]) -> None:
    """Add the middleware, innermost first."""
    app.add_middleware(LimitBody, settings=settings)
    if settings.max_concurrent_per_key is not None:
        app.add_middleware(Concurrency, limit=settings.max_concurrent_per_key)
    app.add_middleware(Authenticate, settings=settings)
    if settings.cors_origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=settings.cors_origins,
            allow_methods=["*"],
            allow_headers=["*"],
            expose_headers=["X-Request-Id", "X-Quire-Stage"],
        )
    app.add_middleware(PlainPaths, root_path=settings.root_path, aliases=_ALIASES)
    app.add_middleware(AccessLog, **counting)


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    yield
    app.state.bodies.close()
    app.state.passage_kv.close()
    await asyncio.to_thread(app.state.service.close)


async def _on_error(request: Request, error: Exception) -> JSONResponse:
    return error_response(error if isinstance(error, ApiError) else as_api_error(error))


async def _on_unknown_route(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)
    message = f"{request.method} {request.url.path:.200}: {error.detail}; GET /openapi.json lists the endpoints"
    return error_response(ApiError(error.status_code, message, headers=error.headers or {}))


async def _on_invalid_parameter(request: Request, error: Exception) -> JSONResponse:
    """Reject a parameter of the path or query; `BodyReader` checks bodies."""
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    name = str(first["loc"][-1])
    return error_response(invalid(f"{name}={first.get('input')!r:.100} is not valid: {first['msg'].lower()}", name))


async def _on_disconnect(request: Request, error: Exception) -> Response:
    return Response(status_code=_CLIENT_CLOSED)
