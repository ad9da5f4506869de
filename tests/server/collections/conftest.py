"""One application for all tests of collections."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from starlette.testclient import TestClient

from quire.server.settings import ServerSettings
from server.collections.collections_app import ANN, served


@pytest.fixture(scope="package")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    """A client with Ann's key; each test uses its own collection names."""
    settings = ServerSettings(
        api_keys=("ann", "bob"),
        admin_keys=("admin",),
        tenant_secret=b"secret",
        rag_dir=tmp_path_factory.mktemp("rag"),
        embedder="hashing",
        max_documents_per_key=30,
        max_collections_per_key=12,
        max_collection_bytes_per_key=128 << 10,
    )
    with served(settings) as client:
        client.headers = ANN
        yield client
