"""Ray Serve's way to ask `Placement` for a replica. A thin file: Serve pickles all of it by value."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ray.serve.request_router import PendingRequest, RequestRouter, RunningReplica

from quire.cluster.placement import ReplicaCall


class PlacementRouter(RequestRouter):
    """Sends a `ReplicaCall` where its placement says, and other calls anywhere."""

    def initialize_state(self, **options: Any) -> None:
        self._placement: Any = None  #: of the calls; they bring it along

    async def choose_replicas(
        self, candidate_replicas: list[RunningReplica], pending_request: PendingRequest | None = None
    ) -> list[list[RunningReplica]]:
        """The one replica that the call is to go to; none yet where all that there are still load."""
        call = pending_request.args[0] if pending_request is not None and pending_request.args else None
        if pending_request is None or not isinstance(call, ReplicaCall):
            return [candidate_replicas]
        pending_request.routing_context.should_backoff = True  # or Serve asks again without a pause
        if self._placement is not call.placement:
            self._placement = call.placement
            self._tell()
        name = call.choose(str(each.replica_id.unique_id) for each in candidate_replicas)
        return [[each for each in candidate_replicas if each.replica_id.unique_id == name]]

    def update_replicas(self, replicas: list[RunningReplica]) -> None:
        """Serve's list of replicas has changed, or what they tell."""
        super().update_replicas(replicas)
        self._tell()

    def _tell(self) -> None:
        if self._placement is not None:
            stats: dict[str, Mapping[str, Any]] = {
                each.replica_id.unique_id: each.routing_stats for each in self.curr_replicas.values()
            }
            self._placement.update(stats)
