"""Adapter from Ray Serve's request router to `Placement`. Keep it small: Serve pickles it by value."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ray.serve.request_router import PendingRequest, RequestRouter, RunningReplica

from quire.cluster.placement import ReplicaCall


class PlacementRouter(RequestRouter):
    """Sends a `ReplicaCall` to its placement's choice, and other calls anywhere."""

    def initialize_state(self, **options: Any) -> None:
        self._placement: Any = None  #: the calls' placement

    async def choose_replicas(
        self, candidate_replicas: list[RunningReplica], pending_request: PendingRequest | None = None
    ) -> list[list[RunningReplica]]:
        """Return the chosen replica; nothing while all replicas load."""
        call = pending_request.args[0] if pending_request is not None and pending_request.args else None
        if pending_request is None or not isinstance(call, ReplicaCall):
            return [candidate_replicas]
        pending_request.routing_context.should_backoff = True  # otherwise Serve retries without a pause
        if self._placement is not call.placement:
            self._placement = call.placement
            self._report()
        name = call.choose(str(each.replica_id.unique_id) for each in candidate_replicas)
        return [[each for each in candidate_replicas if each.replica_id.unique_id == name]]

    def update_replicas(self, replicas: list[RunningReplica]) -> None:
        """Apply Serve's changed list of replicas or reports."""
        super().update_replicas(replicas)
        self._report()

    def _report(self) -> None:
        if self._placement is not None:
            stats: dict[str, Mapping[str, Any]] = {
                each.replica_id.unique_id: each.routing_stats for each in self.curr_replicas.values()
            }
            self._placement.update(stats)
