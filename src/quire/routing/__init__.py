"""Routing: choose the model that answers a question. Policies see questions, never answers."""

from quire.routing.policy import SLO, Choice, Policy, RoutingContext, RoutingError
from quire.routing.router import POLICIES, Router, RoutingConfig, parse_models

__all__ = [
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
