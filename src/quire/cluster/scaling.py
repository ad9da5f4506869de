"""Adapter from Ray Serve's autoscaling policy to `Autoscaler`. Keep it small: Serve pickles it by value."""

from __future__ import annotations

from typing import Any

from ray.serve.config import AutoscalingContext

from quire.routing.replicas import Autoscaler, Autoscaling


class FollowLoad:
    """`config` has the fields of `Autoscaling`."""

    def __init__(self, **config: Any) -> None:
        self._autoscaler = Autoscaler(Autoscaling(**config))

    def __call__(self, context: AutoscalingContext) -> tuple[int, dict[str, Any]]:
        """Return the wanted number of replicas, and no state, since this object persists."""
        reported = context.aggregated_metrics or {}  # by replica; empty while any replica has reported nothing
        serving = sum(1 for value in reported.get("serving", {}).values() if value > 0.5)
        ttfts = [seconds for seconds in reported.get("ttft_s", {}).values() if seconds > 0]
        num_replicas = max(context.current_num_replicas, context.target_num_replicas)
        wanted = self._autoscaler.decide(
            context.current_time or 0.0,
            int(context.total_num_requests),
            num_replicas - min(serving, num_replicas),
            min(serving, num_replicas),
            min(ttfts, default=0.0),
        )
        return wanted, {}
