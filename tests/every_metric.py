"""A server's metrics with at least one series each."""

from __future__ import annotations

from quire.config import SchedulerConfig
from quire.server.metrics import Metrics


def render_every_metric() -> str:
    """Render every metric."""
    metrics = Metrics(["m"])
    metrics.observe_limits("m", SchedulerConfig(128))
    metrics.observe_http("/v1/models", "GET", 401, "invalid_api_key")
    return metrics.render().decode()
