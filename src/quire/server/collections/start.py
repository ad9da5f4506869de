"""Build the collection service from the server's settings, and fail early on missing parts."""

from __future__ import annotations

import sqlite3

from quire.rag.database import Database
from quire.rag.embedder import DEFAULT_EMBEDDER, find_embedder
from quire.server.collections.quotas import Quotas
from quire.server.collections.service import CollectionService, ReaderModel
from quire.server.http.auth import admin_ids
from quire.server.metrics.metrics import Metrics
from quire.server.registry import ModelRegistry
from quire.server.settings import ServerSettings


def make_service(
    registry: ModelRegistry, settings: ServerSettings, metrics: Metrics | None = None
) -> CollectionService:
    """Build the service, possibly without collections or embedder. Raises ValueError for unusable settings."""
    directory = settings.rag_dir.expanduser() if settings.rag_dir is not None else None
    name = settings.embedder or (DEFAULT_EMBEDDER if directory is not None else None)
    source = find_embedder(name) if name is not None else None
    if directory is not None:
        try:
            Database(directory).close()
        except (OSError, sqlite3.OperationalError) as error:
            raise ValueError(f"--rag-dir {directory} cannot be written ({error}); choose another place") from None

    def readers() -> list[ReaderModel]:
        return [
            ReaderModel(model.source, model.async_engine.engine.max_model_len if model.async_engine.is_known else None)
            for model in registry
            if model.source
        ]

    quotas = Quotas(
        settings.max_collections_per_key, settings.max_documents_per_key, settings.max_collection_bytes_per_key
    )
    return CollectionService(
        directory, source, admins=admin_ids(settings), quotas=quotas, readers=readers, metrics=metrics
    )
