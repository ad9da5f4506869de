"""Chooses a replica of one model for a request, by what replicas have reported and what was sent to them since.

    round-robin     each in its turn
    least-loaded    the fewest requests that it has not finished
    prefix          the longest prefix that it is believed to hold (`residency`); among equals the least loaded. Nobody
                    is sent to a replica that is much busier than the least loaded one for a prefix's sake
    slo             the soonest first token that is predicted (`quire.forecast`), given that prefix

The router is told the time, on its own clock, and never asks for it. A report's age counts from when the router got it:
clocks of other machines do not matter. Replicas that serve no stage yet, or not the one that a request wants, and those
that are draining get no requests; where none is left, the caller holds the request back.

One thread. Several routers may send to the same replicas: each knows what it has sent, and reports say the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from typing import NamedTuple

from quire.forecast import Forecast
from quire.routing.policy import RoutingError
from quire.routing.replicas.residency import Residency

_MUCH_BUSIER = 1.5, 8  #: times the least load, and requests more than it, from which on a prefix is no reason to go
_CAPACITY = 1 << 16  #: keys remembered of a replica that does not say how many blocks it has


class RoutedRequest(NamedTuple):
    """What a router has to know of a request."""

    request_id: str
    num_tokens: int  #: of its prompt; a good guess will do
    keys: Sequence[bytes] = ()  #: of its prompt's full blocks (`core.block_keys`), as far as anybody may share them
    min_stage: int = 1  #: of the model, that it wants


class ReplicaChoice(NamedTuple):
    """Where a request goes."""

    replica: str
    num_resident: int = 0  #: tokens of its prompt that are believed to be there
    ttft_s: float | None = None  #: that is predicted; None where nobody asked the forecast


@dataclass(slots=True)
class Replica:
    """What a router knows of a replica."""

    name: str
    residency: Residency
    block_size: int
    stage: int = 0  #: of the model, that it serves; 0 is none yet
    is_draining: bool = False
    forecast: Forecast = field(default_factory=Forecast)  #: the latest that it has reported
    reported_at: float = 0.0  #: on the router's clock
    untaken: dict[str, int] = field(default_factory=dict)  #: prompt tokens of requests that no report has counted
    ongoing: set[str] = field(default_factory=set)  #: requests of this router that have not ended

    @property
    def load(self) -> int:
        """Requests that it has not finished: its own count, with those that it has not counted yet."""
        reported = self.forecast.num_running + self.forecast.num_waiting + len(self.untaken)
        return max(reported, len(self.ongoing))

    def predict(self, request: RoutedRequest, num_resident: int, now: float) -> float:
        """Seconds to a request's first token, if it is sent there now."""
        return self.forecast_at(now).predict_ttft(request.num_tokens, num_resident)

    def forecast_at(self, now: float) -> Forecast:
        """Its forecast, with the time since, and the requests that it has not counted yet."""
        known = self.forecast
        known.age_s = now - self.reported_at
        untaken = self.untaken
        known.num_sent, known.sent_tokens = len(untaken), sum(untaken.values()) if untaken else 0
        return known


_Chosen = tuple[Replica, ReplicaChoice]


class ReplicaRouter:
    """Routes the requests of one model.

    Args:
        policy: one of `POLICIES`.

    Raises:
        RoutingError: there is no such policy.
    """

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

    # -- replicas come, tell of themselves, and go ---------------------------------------------------------------------

    def add(self, name: str, *, num_blocks: int = _CAPACITY, block_size: int = 16, stage: int = 1) -> None:
        """A replica is there. One that serves nothing yet is at stage 0, until it reports another."""
        self._replicas[name] = Replica(name, Residency(num_blocks), block_size, stage)

    def report(
        self, name: str, now: float, forecast: Forecast | None = None, taken: Iterable[str] = (), stage: int = 0
    ) -> None:
        """A replica tells of its state.

        Args:
            now: on the router's clock.
            forecast: None where its last one still holds.
            taken: requests that it has taken in since it told of any; the forecast counts them.
            stage: of the model, that it serves now; 0 is the one that it served before.
        """
        replica = self._replicas.get(name)
        if replica is None:
            return  # it is gone; its report was on the way
        for request_id in taken:
            replica.untaken.pop(request_id, None)
        if forecast is not None:
            replica.forecast, replica.reported_at = replace(forecast), now
        if stage > replica.stage:
            replica.residency.clear()
            replica.stage = stage

    def note_stored(self, name: str, keys: Sequence[bytes]) -> None:
        """A replica has KV of these blocks, in the order of their prompt, whoever sent it there."""
        if name in self._replicas:
            self._replicas[name].residency.store(keys)

    def note_evicted(self, name: str, keys: Iterable[bytes]) -> None:
        """A replica has lost KV of these blocks."""
        if name in self._replicas:
            self._replicas[name].residency.evict(keys)

    def drain(self, name: str) -> None:
        """Send a replica nothing more: it ends once its requests have."""
        self._replicas[name].is_draining = True

    def remove(self, name: str) -> list[str]:
        """A replica is gone. Returns this router's requests that it has not finished: they go elsewhere."""
        replica = self._replicas.pop(name, None)
        return sorted(replica.ongoing) if replica is not None else []

    # -- requests ------------------------------------------------------------------------------------------------------

    def _candidates(self, min_stage: int) -> list[Replica]:
        return [each for each in self._replicas.values() if each.stage >= min_stage and not each.is_draining]

    def soonest_ttft_s(self, num_tokens: int, now: float) -> float:
        """What a prompt of so many new tokens is predicted to wait for at best; 0 where there is nobody to ask."""
        request = RoutedRequest("", num_tokens)
        return min((each.predict(request, 0, now) for each in self._candidates(1)), default=0.0)

    def route(self, request: RoutedRequest, now: float) -> ReplicaChoice | None:
        """Choose a replica, and count the request as sent there. None where no replica may have it yet."""
        candidates = self._candidates(request.min_stage)
        if not candidates:
            return None
        chosen, routed = self._choose(self, candidates, request, now)
        chosen.untaken[request.request_id] = request.num_tokens
        chosen.ongoing.add(request.request_id)
        if self.policy in ("prefix", "slo"):
            chosen.residency.store(request.keys)
        return routed

    def end(self, name: str, request_id: str) -> None:
        """A request has ended, in whatever way; harmless where its replica is gone."""
        replica = self._replicas.get(name)
        if replica is not None:
            replica.ongoing.discard(request_id)
            replica.untaken.pop(request_id, None)

    # -- policies ------------------------------------------------------------------------------------------------------

    def _in_turn(self, candidates: list[Replica], request: RoutedRequest, now: float) -> _Chosen:
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
    "round-robin": ReplicaRouter._in_turn,
    "least-loaded": ReplicaRouter._by_load,
    "prefix": ReplicaRouter._by_prefix,
    "slo": ReplicaRouter._by_forecast,
}
