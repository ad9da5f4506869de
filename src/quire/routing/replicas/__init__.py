"""Which replica of a model answers a request, and how many replicas there are. Knows no Ray, no engine and no clock."""

from quire.routing.replicas.autoscaler import Autoscaler, Autoscaling
from quire.routing.replicas.residency import Residency
from quire.routing.replicas.router import POLICIES, ReplicaChoice, ReplicaRouter, RoutedRequest

__all__ = ["POLICIES", "Autoscaler", "Autoscaling", "ReplicaChoice", "ReplicaRouter", "Residency", "RoutedRequest"]
