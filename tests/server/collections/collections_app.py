"""An application with collections, requested without a socket."""

from __future__ import annotations

from starlette.testclient import TestClient

from quire.server.app import make_app
from quire.server.collections.service import make_service
from quire.server.metrics import Metrics
from quire.server.registry import ModelRegistry
from quire.server.settings import ServerSettings
from serving import make_model

ANN, BOB, ADMIN = ({"Authorization": f"Bearer {key}"} for key in ("ann", "bob", "admin"))


def served(settings: ServerSettings) -> TestClient:
    """Serve collections over a model that is never loaded."""
    registry, metrics = ModelRegistry([make_model()]), Metrics()
    return TestClient(make_app(registry, settings, metrics, service=make_service(registry, settings, metrics)))
