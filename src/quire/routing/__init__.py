"""Routing: choose the model that answers a question. Policies see questions, never answers."""

from quire.routing.policy import SLO, Choice, Policy, RoutingContext, RoutingError
from quire.routing.router import NEED_EMBEDDER, POLICIES, Router, RoutingConfig, parse_models

__all__ = [
    "NEED_EMBEDDER",
    "POLICIES",
    "SLO",
    "Choice",
    "Policy",
    "Router",
    "RoutingConfig",
    "RoutingContext",
    "RoutingError",
    "parse_models",
]
