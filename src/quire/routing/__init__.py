"""Which of several models answers a question. Policies see questions, never answers."""

from quire.routing.policy import Choice, Policy, RoutingError
from quire.routing.router import POLICIES, Router, RoutingConfig, parse_models

__all__ = ["POLICIES", "Choice", "Policy", "Router", "RoutingConfig", "RoutingError", "parse_models"]
