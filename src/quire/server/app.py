"""The HTTP application: routes, the middleware before them, and the handlers of errors."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

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

_CLIENT_LEFT = 499  # nobody reads it; the access log does
#: Paths by the names that clients of other servers know.
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
    """The application over engines that somebody else starts and ends.

    Args:
        metrics: what GET /metrics shows; without them there is no such route.
        service: collections and embedder, which the application closes at its end; None for none.
        router: chooses for `model: "auto"`.
    """
    app = FastAPI(
        title="Quire",
        version=quire.__version__,
        docs_url=None,
        redoc_url=None,
        lifespan=_lifespan,
        servers=[{"url": settings.root_path}] if settings.root_path else None,
    )
    app.state.service = service = service or CollectionService()
    app.state.bodies = BodyReader(registry.prompt_limits, ignore_unknown_fields=settings.ignore_unknown_fields)
    models, passage_kv = ModelChooser(registry, router), PassageKV(registry)
    service.on_deleted = lambda info, passages: passage_kv.delete(info.id, passages)
    app.state.passage_kv = passage_kv
    retriever = CollectionRetriever(service)
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
        app.add_exception_handler(kind, _refuse)
    app.add_exception_handler(HTTPException, _refuse_route)
    app.add_exception_handler(RequestValidationError, _refuse_parameter)
    app.add_exception_handler(ClientDisconnected, _give_up)
    chunks = (ChatCompletionChunk, ResponseEvent, MessageEvent)
    app.openapi = lambda: describe(app, needs_key=bool(settings.api_keys), chunks=chunks)  # type: ignore[method-assign]
    _put_before(app, settings)
    app.add_middleware(PlainPaths, root_path=settings.root_path, aliases=_ALIASES)
    if metrics is None:
        app.add_middleware(AccessLog)
    else:
        paths = frozenset(route.path for each in routers for route in each.routes if isinstance(route, Route))
        app.add_middleware(AccessLog, count=metrics.observe_http, paths=paths)
    return app


def _put_before(app: FastAPI, settings: ServerSettings) -> None:
    """Add the middleware that a request passes on its way to a route; the last one added comes first."""
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


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    yield
    app.state.bodies.close()
    app.state.passage_kv.close()
    await asyncio.to_thread(app.state.service.close)


async def _refuse(request: Request, error: Exception) -> JSONResponse:
    return error_response(error if isinstance(error, ApiError) else as_api_error(error))


async def _refuse_route(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)
    message = f"{request.method} {request.url.path:.200}: {error.detail}; GET /openapi.json lists what there is"
    return error_response(ApiError(error.status_code, message, headers=error.headers or {}))


async def _refuse_parameter(request: Request, error: Exception) -> JSONResponse:
    """Of the query; bodies are checked by `BodyReader`."""
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    name = str(first["loc"][-1])
    return error_response(invalid(f"{name}={first.get('input')!r:.100} is not valid: {first['msg'].lower()}", name))


async def _give_up(request: Request, error: Exception) -> Response:
    return Response(status_code=_CLIENT_LEFT)
