"""Choose a replica of one model for a request, by the replicas' reports and the requests sent since.

    round-robin     each in turn
    least-loaded    the fewest unfinished requests
    prefix          the longest resident prefix (`residency`), then the least loaded; a replica that is much busier
                    than the least loaded one is never chosen for its prefix
    slo             the lowest predicted TTFT (`quire.forecast`), given the resident prefix

Callers supply the time. A report's age counts from its arrival, so the clocks of other machines do not matter. Draining
replicas, and those that do not serve the request's stage yet, get no requests; if none is left, the caller holds the
request.

Not thread-safe. Several routers may share replicas: each knows its own requests, and reports cover the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from typing import NamedTuple

from quire.forecast import Forecast
from quire.routing.policy import RoutingError
from quire.routing.replicas.residency import Residency

_MUCH_BUSIER = 1.5, 8  #: factor of, and requests above, the least load; beyond both a prefix does not count
_CAPACITY = 1 << 16  #: remembered keys if a replica does not report its number of blocks


class RoutedRequest(NamedTuple):
    """A request as the router sees it."""

    request_id: str
    num_tokens: int  #: estimated prompt length
    keys: Sequence[bytes] = ()  #: block keys of the prompt's shareable full blocks (`core.block_keys`)
    min_stage: int = 1  #: lowest acceptable stage of the model


class ReplicaChoice(NamedTuple):
    replica: str
    num_resident: int = 0  #: prompt tokens with resident KV, estimated
    ttft_s: float | None = None  #: predicted; None unless the policy uses forecasts


@dataclass(slots=True)
class Replica:
    """A router's view of a replica."""

    name: str
    residency: Residency
    block_size: int
    stage: int = 0  #: served stage of the model; 0 for none yet
    is_draining: bool = False
    forecast: Forecast = field(default_factory=Forecast)  #: latest report
    reported_at: float = 0.0  #: on the router's clock
    uncounted: dict[str, int] = field(default_factory=dict)  #: prompt tokens of requests missing in the latest report
    ongoing: set[str] = field(default_factory=set)  #: this router's unfinished requests

    @property
    def load(self) -> int:
        """Unfinished requests: the reported ones and those sent since."""
        reported = self.forecast.num_running + self.forecast.num_waiting + len(self.uncounted)
        return max(reported, len(self.ongoing))

    def predict(self, request: RoutedRequest, num_resident: int, now: float) -> float:
        """Predicted TTFT in seconds of a request sent now."""
        return self.forecast_at(now).predict_ttft(request.num_tokens, num_resident)

    def forecast_at(self, now: float) -> Forecast:
        """The latest forecast, updated by its age and the requests sent since."""
        forecast = self.forecast
        forecast.age_s = now - self.reported_at
        forecast.num_sent, forecast.sent_tokens = len(self.uncounted), sum(self.uncounted.values())
        return forecast


_Chosen = tuple[Replica, ReplicaChoice]


class ReplicaRouter:
    """Routes the requests of one model. Raises RoutingError for a policy that is not in `POLICIES`."""

    def __init__(self, policy: str = "prefix") -> None:
        if policy not in POLICIES:
            raise RoutingError(f"routing={policy!r} is none of {', '.join(POLICIES)}")
        self.policy = policy
        self._choose = POLICIES[policy]
        self._replicas: dict[str, Replica] = {}
        self._turn = 0

    @property
    def replicas(self) -> Mapping[str, Replica]:
        return self._replicas

    # -- replicas ------------------------------------------------------------------------------------------------------

    def add(self, name: str, *, num_blocks: int = _CAPACITY, block_size: int = 16, stage: int = 1) -> None:
        """Add a replica. It is at stage 0 until it serves."""
        self._replicas[name] = Replica(name, Residency(num_blocks), block_size, stage)

    def report(
        self, name: str, now: float, forecast: Forecast | None = None, taken: Iterable[str] = (), stage: int = 0
    ) -> None:
        """Handle a replica's report at `now`: a new `forecast`, if it changed; requests `taken` since the last report,
        which it counts; and the served `stage` (0: no change)."""
        replica = self._replicas.get(name)
        if replica is None:
            return  # removed while the report was under way
        for request_id in taken:
            replica.uncounted.pop(request_id, None)
        if forecast is not None:
            replica.forecast, replica.reported_at = replace(forecast), now
        if stage > replica.stage:
            replica.residency.clear()
            replica.stage = stage

    def drain(self, name: str) -> None:
        """Send no more requests to a replica."""
        self._replicas[name].is_draining = True

    def remove(self, name: str) -> list[str]:
        """Remove a replica and return this router's unfinished requests there, to be sent elsewhere."""
        replica = self._replicas.pop(name, None)
        return sorted(replica.ongoing) if replica is not None else []

    # -- requests ------------------------------------------------------------------------------------------------------

    def _candidates(self, min_stage: int) -> list[Replica]:
        return [each for each in self._replicas.values() if each.stage >= min_stage and not each.is_draining]

    def soonest_ttft_s(self, num_tokens: int, now: float) -> float:
        """Lowest predicted TTFT for a prompt of `num_tokens` new tokens; 0 without replicas."""
        request = RoutedRequest("", num_tokens)
        return min((each.predict(request, 0, now) for each in self._candidates(1)), default=0.0)

    def route(self, request: RoutedRequest, now: float) -> ReplicaChoice | None:
        """Choose a replica and count the request as sent; None if no replica can take it yet."""
        candidates = self._candidates(request.min_stage)
        if not candidates:
            return None
        chosen, routed = self._choose(self, candidates, request, now)
        chosen.uncounted[request.request_id] = request.num_tokens
        chosen.ongoing.add(request.request_id)
        if self.policy in ("prefix", "slo"):
            chosen.residency.store(request.keys)
        return routed

    def end(self, name: str, request_id: str) -> None:
        """Remove a finished, failed or aborted request; its replica may be gone already."""
        replica = self._replicas.get(name)
        if replica is not None:
            replica.ongoing.discard(request_id)
            replica.uncounted.pop(request_id, None)

    # -- policies ------------------------------------------------------------------------------------------------------

    def _round_robin(self, candidates: list[Replica], request: RoutedRequest, now: float) -> _Chosen:
        chosen = candidates[self._turn % len(candidates)]
        self._turn += 1
        return chosen, ReplicaChoice(chosen.name)

    def _by_load(self, candidates: list[Replica], request: RoutedRequest, now: float) -> _Chosen:
        chosen = min(candidates, key=_load_and_stage)
        return chosen, ReplicaChoice(chosen.name)

    def _by_prefix(
        self, candidates: list[Replica], request: RoutedRequest, now: float
    ) -> tuple[Replica, ReplicaChoice]:
        least = min(each.load for each in candidates)
        factor, more = _MUCH_BUSIER
        bound = max(factor * least, least + more)
        best, best_rank = candidates[0], None
        for each in candidates:
            if (load := each.load) <= bound:
                rank = -each.residency.count_prefix(request.keys), load, -each.stage
                if best_rank is None or rank < best_rank:
                    best, best_rank = each, rank
        assert best_rank is not None
        return best, ReplicaChoice(best.name, -best_rank[0] * best.block_size)

    def _by_forecast(
        self, candidates: list[Replica], request: RoutedRequest, now: float
    ) -> tuple[Replica, ReplicaChoice]:
        best, best_s, best_resident = candidates[0], inf, 0
        for each in candidates:
            num_resident = each.residency.count_prefix(request.keys) * each.block_size if request.keys else 0
            ttft_s = each.predict(request, num_resident, now)
            if ttft_s < best_s or (ttft_s == best_s and _load_and_stage(each) < _load_and_stage(best)):
                best, best_s, best_resident = each, ttft_s, num_resident
        return best, ReplicaChoice(best.name, best_resident, best_s)


def _load_and_stage(replica: Replica) -> tuple[int, int]:
    return replica.load, -replica.stage


_Policy = Callable[[ReplicaRouter, list[Replica], RoutedRequest, float], _Chosen]

POLICIES: dict[str, _Policy] = {
    "round-robin": ReplicaRouter._round_robin,
    "least-loaded": ReplicaRouter._by_load,
    "prefix": ReplicaRouter._by_prefix,
    "slo": ReplicaRouter._by_forecast,
}
