"""The HTTP application: routes, middleware, handlers of errors, and assembly from engines and settings."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.middleware.exceptions import ExceptionMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Match
from starlette.types import Receive, Scope, Send

from quire.async_engine.async_engine import AsyncEngine
from quire.async_engine.messages import EngineUnavailable, RequestFailed
from quire.routing import NEED_EMBEDDER, Router, RoutingConfig
from quire.server.anthropic.endpoint import message_routes
from quire.server.anthropic.schema import MessageEvent
from quire.server.batches.routes import batch_routes
from quire.server.batches.service import MAX_CONCURRENT, BatchService
from quire.server.collections.passage_kv import PassageKV
from quire.server.collections.retrieval import CollectionRetriever
from quire.server.collections.routes import collection_routes, embedding_routes, warm_routes
from quire.server.collections.service import MAX_QUERY_CHARACTERS, CollectionService, make_service
from quire.server.errors import ApiError, ErrorResponse
from quire.server.generation.generation import as_api_error
from quire.server.health import health_routes
from quire.server.history.routes import request_routes
from quire.server.history.store import RequestHistory
from quire.server.http.body import BodyReader
from quire.server.http.keys import ADMIN_KEYS_VARIABLE, load_api_keys, load_tenant_secret
from quire.server.http.middleware import AccessLog, Authenticate, Concurrency, LimitBody, PlainPaths
from quire.server.http.protocol import ClientDisconnected
from quire.server.live import live_routes
from quire.server.metrics import Metrics, metrics_routes
from quire.server.openai.adapters import adapter_routes
from quire.server.openai.endpoint import ChatEndpoint, CompletionEndpoint
from quire.server.openai.models import model_routes
from quire.server.openai.openapi import ApiDescription
from quire.server.openai.prompts import tokenize_routes
from quire.server.openai.schema import ChatCompletionChunk
from quire.server.openai.scoring import model_embedder, scoring_routes
from quire.server.pages import page_routes
from quire.server.registry import AUTO, ModelChooser, ModelRegistry, ServedModel
from quire.server.responses.endpoint import ResponsesEndpoint, ResponseStore
from quire.server.responses.schema import ResponseEvent
from quire.server.running_models.model_set import ModelSet
from quire.server.running_models.routes import running_model_routes
from quire.server.settings import ServerSettings

if TYPE_CHECKING:
    from quire.server.tracing import Tracing

_CLIENT_CLOSED = 499  # for the access log
#: Paths of other servers -> ours.
_ALIASES = {
    "/chat/completions": "/v1/chat/completions",
    "/completions": "/v1/completions",
    "/responses": "/v1/responses",
    "/embeddings": "/v1/embeddings",
    "/rerank": "/v1/rerank",
    "/v2/rerank": "/v1/rerank",
    "/score": "/v1/score",
    "/messages": "/v1/messages",
    "/models": "/v1/models",
    **{f"/models/{change}": f"/v1/models/{change}" for change in ("load", "unload", "reload")},
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
    tracing: Tracing | None = None,
) -> Starlette:
    """Make the application, which closes `service` and `tracing` at its end. The caller starts and stops the engines.
    Without `metrics` there is no GET /metrics; `router` is for `model: "auto"`."""
    errors: dict[Any, Any] = dict.fromkeys((ApiError, EngineUnavailable, RequestFailed), _on_error)
    errors |= {HTTPException: _on_unknown_route, ClientDisconnected: _on_disconnect}
    app = Starlette(lifespan=_lifespan, exception_handlers=errors)
    passage_kv = app.state.passage_kv = PassageKV(registry)
    app.state.service = service = service or CollectionService()
    app.state.bodies = BodyReader(
        ignore_unknown_fields=settings.ignore_unknown_fields, max_body_bytes=settings.max_body_bytes
    )
    service.on_deleted = lambda info, passages: passage_kv.delete(info.id, passages)
    models, retriever = ModelChooser(registry, router), CollectionRetriever(service)
    app.state.models = ModelSet(registry)
    history = app.state.history = RequestHistory(
        settings.max_stored_requests, None if metrics is None else metrics.observe_causes
    )
    app.state.tracing = tracing
    batches = app.state.batches = _make_batches(app, settings, metrics)
    chat = ChatEndpoint(models, settings, retriever, history, tracing)
    parts = (
        chat.routes(),
        message_routes(chat),
        ResponsesEndpoint(chat, ResponseStore(settings.max_stored_responses)).routes(),
        CompletionEndpoint(models, settings, retriever, history, tracing).routes(),
        request_routes(history),
        tokenize_routes(registry, settings),
        model_routes(registry, has_auto=router is not None, embedder=service.embedder_name),
        running_model_routes(app.state.models, settings),
        adapter_routes(registry, settings),
        collection_routes(service),
        warm_routes(service, passage_kv),
        batch_routes(batches),
        embedding_routes(service, registry, settings, model_embedder(registry, settings)),
        scoring_routes(registry, settings),
        health_routes(registry, settings),
        live_routes(registry, settings, {} if metrics is None else metrics.recent),
        *([metrics_routes(metrics)] if metrics is not None else []),
    )
    routes = [route for part in parts for route in part]
    description = ApiDescription(
        routes,
        root_path=settings.root_path,
        needs_key=bool(settings.api_keys),
        chunks=(ChatCompletionChunk, ResponseEvent, MessageEvent),
    )
    routes += page_routes(settings, description)
    app.router.routes.extend(routes)
    paths = frozenset(route.path for route in routes)
    _add_middleware(app, settings, {} if metrics is None else {"count": metrics.observe_http, "paths": paths})
    return app


def _make_batches(app: Starlette, settings: ServerSettings, metrics: Metrics | None) -> BatchService:
    """Make the service that sends the application requests of its own, whose state has the key's id."""
    endpoints = ExceptionMiddleware(app.router, app.exception_handlers)

    async def call(scope: Scope, receive: Receive, send: Send) -> None:
        scope["app"] = app
        await endpoints(scope, receive, send)

    logged = AccessLog(call) if metrics is None else AccessLog(call, metrics.observe_http)
    num_lines = min(MAX_CONCURRENT, max(1, settings.max_queue // 2))
    return BatchService(logged, settings.batch_dir, settings.max_batch_bytes_per_key, num_lines)


def _add_middleware(app: Starlette, settings: ServerSettings, counting: dict[str, Any]) -> None:
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
async def _lifespan(app: Starlette) -> AsyncIterator[None]:
    app.state.batches.start()
    yield
    await app.state.batches.close()
    app.state.bodies.close()
    app.state.passage_kv.close()
    app.state.history.executor.close()
    await asyncio.to_thread(app.state.service.close)
    if app.state.tracing is not None:
        await asyncio.to_thread(app.state.tracing.close)


async def _on_error(request: Request, error: Exception) -> JSONResponse:
    return ErrorResponse(error if isinstance(error, ApiError) else as_api_error(error))


async def _on_unknown_route(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)
    message = f"{request.method} {request.url.path:.200}: {error.detail}; GET /openapi.json lists the endpoints"
    headers = dict(error.headers or {})
    if error.status_code == 405:  # the router names only the methods of the first route
        matching = (route for route in request.app.routes if route.matches(request.scope)[0] is not Match.NONE)
        headers["Allow"] = ", ".join(sorted({method for route in matching for method in route.methods}))
    return ErrorResponse(ApiError(error.status_code, message, headers=headers))


async def _on_disconnect(request: Request, error: Exception) -> Response:
    return Response(status_code=_CLIENT_CLOSED)


def with_keys(settings: ServerSettings) -> ServerSettings:
    """Return the settings with keys from files and the environment, and with the tenants' secret. ValueError if a file
    cannot be read, or has no keys."""
    keys = load_api_keys(settings.api_keys, file=settings.api_key_file)
    admins = load_api_keys(
        settings.admin_keys, file=settings.admin_key_file, option="--admin-key", variable=ADMIN_KEYS_VARIABLE
    )
    secret = load_tenant_secret() if keys or admins else None
    return replace(settings, api_keys=keys, admin_keys=admins, tenant_secret=secret)


def assemble(
    engines: Mapping[str, AsyncEngine],
    sources: Mapping[str, str],
    settings: ServerSettings,
    metrics: Metrics,
    *,
    template: str | None = None,
    aliases: tuple[str, ...] = (),
    adapters: Mapping[str, Mapping[str, str]] = MappingProxyType({}),
) -> Starlette:
    """Make the application of engines by served name, which the caller starts and stops. `sources` are their
    directories, hub ids or presets, `adapters` the directories of their adapters by name; `settings` have keys
    (`with_keys`), `template` replaces the models' own, and `aliases` are further names of the only model. Raises
    ValueError if a setting names a missing file or model."""
    created = int(time.time())
    models = [
        ServedModel(name, engine, created, chat_template=template, source=sources[name], aliases=aliases)
        for name, engine in engines.items()
    ]
    models += [model.with_adapter(*pair) for model in models for pair in adapters.get(model.name, {}).items()]
    registry = ModelRegistry(models, accepts_any_name=settings.accept_any_model_name)
    metrics.engine_pids = lambda: {engine.name: engine.pid for engine in registry.engines}
    service = make_service(registry, settings, metrics)
    router = _router(registry, settings, service)
    tracing = None if settings.otlp_traces_endpoint is None else _tracing(settings.otlp_traces_endpoint)
    return make_app(registry, settings, metrics, service=service, router=router, tracing=tracing)


def _tracing(endpoint: str) -> Tracing:
    try:
        from quire.server.tracing import Tracing, otlp_exporter

        return Tracing(otlp_exporter(endpoint))
    except ImportError as error:
        raise ValueError(f"otlp_traces_endpoint: {error}; pip install 'quire-llm[otel]'") from None


def _router(registry: ModelRegistry, settings: ServerSettings, service: CollectionService) -> Router | None:
    """Return the routing policy for `model: "auto"`."""
    if settings.routing is None:
        return None
    served = registry.names
    if AUTO in served:
        raise ValueError(f"a model is named {AUTO!r}, which asks for any of them where --routing is given; rename it")
    config = RoutingConfig.from_file(settings.routing.expanduser())

    def embed(texts: Sequence[str]) -> Any:
        return service.embedder.embed([text[:MAX_QUERY_CHARACTERS] for text in texts], use="search").vectors

    try:
        return Router(config, served, embed if config.policy in NEED_EMBEDDER else None)
    except ApiError as error:  # the embedder's
        raise ValueError(f"the policy {config.policy} compares vectors: {error}") from None
