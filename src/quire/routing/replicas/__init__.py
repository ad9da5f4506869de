"""Route requests to a model's replicas, and choose the number of replicas. Independent of Ray, engines and clocks."""

from quire.routing.replicas.autoscaler import Autoscaler, Autoscaling
from quire.routing.replicas.residency import Residency
from quire.routing.replicas.router import POLICIES, ReplicaChoice, ReplicaRouter, RoutedRequest

__all__ = ["POLICIES", "Autoscaler", "Autoscaling", "ReplicaChoice", "ReplicaRouter", "Residency", "RoutedRequest"]
