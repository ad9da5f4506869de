"""The HTTP application in its replica: `make_app`'s, over the deployments of a cluster in place of engines."""

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
from quire.cluster.app_spec import AppSpec
from quire.cluster.figures import ClusterMetrics
from quire.cluster.remote_engine import ReplicasHost
from quire.server.assemble import assemble
from quire.server.log_format import configure_logging

if TYPE_CHECKING:
    from fastapi import FastAPI


def start_app(spec: AppSpec) -> FastAPI:
    """The application of this replica. It begins to ask the models' deployments as its lifespan begins."""
    settings = spec.settings
    configure_logging(settings.log_format)
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
                on_figures=partial(metrics.observe_replicas, name),
            ),
            max_queue=settings.max_queue,
            load_wait_s=settings.load_wait_s,
            on_finished=partial(metrics.observe_finished, name),
            on_ready=partial(metrics.observe_limits, name),
            on_accepted=partial(metrics.observe_accepted, name),
            on_load=partial(metrics.observe_load, name),
        )
        for name, deployment in spec.deployments.items()
    }
    sources = {name: config.model for name, config in spec.engines.items()}
    app = assemble(engines, sources, settings, metrics, template=spec.template, aliases=spec.aliases).app
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
    """Leaves X-Request-Id to Ray, which gives each request its id before we see it, and the answer the same. (ASGI
    middleware)"""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_without(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = [each for each in message["headers"] if each[0].lower() != b"x-request-id"]
                message = {**message, "headers": headers}
            await send(message)

        await self._app(scope, receive, send_without if scope["type"] == "http" else send)
