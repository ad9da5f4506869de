"""Assembly of the HTTP application from engines, local or remote, and settings."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from fastapi import FastAPI

from quire.async_engine.async_engine import AsyncEngine
from quire.routing import Router, RoutingConfig
from quire.server.app import make_app
from quire.server.collections.service import MAX_QUERY_CHARACTERS, CollectionService
from quire.server.collections.start import make_service
from quire.server.errors import ApiError
from quire.server.http.auth import ADMIN_KEYS_VARIABLE, load_api_keys, load_tenant_secret
from quire.server.metrics.metrics import Metrics
from quire.server.registry import AUTO, ModelRegistry, ServedModel
from quire.server.settings import ServerSettings


@dataclass(frozen=True)
class Assembly:
    """An application and its parts with a life of their own."""

    app: FastAPI
    registry: ModelRegistry
    service: CollectionService  #: closed by the application


def with_keys(settings: ServerSettings) -> ServerSettings:
    """Return the settings with keys from files and the environment, and with the tenants' secret.

    Raises:
        ValueError: a file cannot be read, or has no keys.
    """
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
) -> Assembly:
    """Make the application. The caller starts and stops the engines.

    Args:
        engines: served name -> engine, in order.
        sources: served name -> directory, hub id or preset.
        settings: settings with keys (`with_keys`).
        template: chat template in place of the models' own.
        aliases: further names of the only model.

    Raises:
        ValueError: a setting names a missing file or model.
    """
    created = int(time.time())
    models = [
        ServedModel(name, engine, created, chat_template=template, source=sources[name], aliases=aliases)
        for name, engine in engines.items()
    ]
    registry = ModelRegistry(models, accepts_any_name=settings.accept_any_model_name)
    service = make_service(registry, settings, metrics)
    router = _router(registry, settings, service)
    return Assembly(make_app(registry, settings, metrics, service=service, router=router), registry, service)


def _router(registry: ModelRegistry, settings: ServerSettings, service: CollectionService) -> Router | None:
    """Return the routing policy for `model: "auto"`."""
    if settings.routing is None:
        return None
    served = [name for model in registry for name in model.names]
    if AUTO in served:
        raise ValueError(f"a model is named {AUTO!r}, which asks for any of them where --routing is given; rename it")
    config = RoutingConfig.from_file(settings.routing.expanduser())
    try:
        return Router(config, served, _Vectors(service) if config.policy == "domain" else None)
    except ApiError as error:  # the embedder's
        raise ValueError(f"the policy domain compares vectors: {error}") from None


class _Vectors:
    """Adapts the service's embedder to routing."""

    def __init__(self, service: CollectionService) -> None:
        self._service = service

    def embed(self, texts: Sequence[str]) -> Any:
        cut = [text[:MAX_QUERY_CHARACTERS] for text in texts]
        return self._service.embedder.embed(cut, use="search").vectors
