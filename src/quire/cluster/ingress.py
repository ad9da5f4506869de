"""The HTTP application in its Ray Serve replica, with the models' deployments as engines."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from ray import serve
from ray.exceptions import ActorDiedError
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from quire.async_engine.async_engine import AsyncEngine
from quire.cluster.metrics import ClusterMetrics
from quire.cluster.replicas_host import ReplicasHost
from quire.cluster.settings import AppSpec
from quire.server.app import assemble
from quire.server.log_format import configure_logging

if TYPE_CHECKING:
    from starlette.applications import Starlette


def start_app(spec: AppSpec) -> Starlette:
    """Make the application. Its lifespan starts the connections to the models' deployments."""
    settings = spec.settings
    configure_logging(settings.log_format, settings.log_level)
    metrics = ClusterMetrics(spec.engines)
    app_name = serve.get_replica_context().app_name
    engines = {
        name: AsyncEngine(
            ReplicasHost(
                name,
                serve.get_deployment_handle(deployment, app_name),
                is_dead=lambda error: isinstance(error, ActorDiedError),
                policy=spec.cluster.replica_routing,
                load_wait_s=settings.load_wait_s,
                starts_on_demand=spec.cluster.min_replicas == 0,
                on_metrics=partial(metrics.observe_replicas, name),
            ),
            max_queue=settings.max_queue,
            load_wait_s=settings.load_wait_s,
            **metrics.callbacks(name),
        )
        for name, deployment in spec.deployments.items()
    }
    sources = {name: config.model for name, config in spec.engines.items()}
    app = assemble(engines, sources, settings, metrics, template=spec.template, aliases=spec.aliases)
    lifespan = app.router.lifespan_context

    @asynccontextmanager
    async def with_engines(app: Any) -> AsyncIterator[Any]:
        async with lifespan(app) as state:
            for engine in engines.values():
                engine.start(asyncio.get_running_loop())
            yield state
            for engine in engines.values():
                await asyncio.to_thread(engine.shutdown)

    app.router.lifespan_context = with_engines
    app.add_middleware(OneRequestId)
    return app


class OneRequestId:
    """ASGI middleware that removes our X-Request-Id header, since Ray adds its own to requests and responses."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_without(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = [each for each in message["headers"] if each[0].lower() != b"x-request-id"]
                message = {**message, "headers": headers}
            await send(message)

        await self._app(scope, receive, send_without if scope["type"] == "http" else send)
