"""Choose a replica for each request of one model, by a router that follows Ray Serve's replicas. Knows no Ray. Serve's
router and the application use it from different threads."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from quire.cluster.wire import ReplicaNews
from quire.forecast import Forecast
from quire.outputs import LoadProgress
from quire.routing.replicas import ReplicaRouter, RoutedRequest

SILENT_S = 5.0  #: time without reports, while other replicas report, after which a replica counts as lost


class Placement:
    """Gives `on_load` the most loaded replica's progress, `on_metrics` the engines' counters by replica, and `on_lost`
    the names of replicas that stopped reporting, as after a failure of their machine or its network."""

    def __init__(
        self,
        policy: str,
        on_load: Callable[[LoadProgress], None] = lambda progress: None,
        on_metrics: Callable[[Mapping[str, Sequence[float]]], None] = lambda metrics: None,
        on_lost: Callable[[str], None] = lambda name: None,
    ) -> None:
        self._router = ReplicaRouter(policy)  #: holds serving replicas only
        self._on_load = on_load
        self._on_metrics = on_metrics
        self._on_lost = on_lost
        self._lock = threading.Lock()
        self._heard: dict[str, tuple[int, float]] = {}  #: number and time of the last report, by listed replica
        self._dead: set[str] = set()  #: Serve may list them for a while longer
        self._silent: set[str] = set()  #: listed replicas that stopped reporting, and may do so again
        self._progress: LoadProgress | None = None
        self._sent: dict[str, str] = {}  #: replica by request

    def update(self, replicas: Mapping[str, Mapping[str, Any]]) -> None:
        """Apply Serve's list of replicas, each with its last report (`ReplicaNews.as_stats`)."""
        news = {name: ReplicaNews.of(stats) for name, stats in replicas.items()}
        with self._lock:
            lost = self._hear(news)
            for name in (set(self._router.replicas) - set(news)) | lost:
                self._router.remove(name)
            loads = (each.progress for each in news.values() if each is not None and each.progress is not None)
            best = max(loads, key=lambda progress: (progress.stage, progress.bytes_loaded), default=None)
            has_changed, self._progress = best != self._progress, best
            gone = self._dead | self._silent
            self._on_metrics(
                {name: each.metrics for name, each in news.items() if each is not None and name not in gone}
            )
        if has_changed and best is not None:
            self._on_load(best)
        for name in lost:
            self._on_lost(name)

    def _hear(self, news: Mapping[str, ReplicaNews | None]) -> set[str]:
        """Apply new reports; return the replicas that have become silent. Serve repeats all reports if one is new."""
        now = time.monotonic()
        for name, latest in news.items():
            if latest is None or name in self._dead or latest.number <= self._heard.get(name, (-1, now))[0]:
                continue
            self._heard[name] = latest.number, now
            self._silent.discard(name)
            if latest.stage:
                if name not in self._router.replicas:
                    sizes = {"num_blocks": latest.num_blocks, "block_size": latest.block_size}
                    self._router.add(name, stage=latest.stage, **sizes)
                self._router.report(name, now, latest.forecast, stage=latest.stage)
        newest = max((heard for name, (_, heard) in self._heard.items() if name in news), default=now)
        lost = {
            name
            for name, (_, heard) in self._heard.items()
            if heard < (newest if name in news else now) - SILENT_S and name not in self._silent | self._dead
        }
        self._silent = (self._silent | lost) & set(news)
        self._heard = {name: heard for name, heard in self._heard.items() if name in news}
        return lost

    def lose(self, name: str) -> None:
        with self._lock:
            self._dead.add(name)
            self._router.remove(name)

    def choose(self, request: RoutedRequest, names: Iterable[str]) -> str | None:
        """Choose among these replicas and count the request there, not at an earlier choice; None to wait."""
        able = set(names)
        with self._lock:
            self._end(request.request_id)
            for name, replica in self._router.replicas.items():
                replica.is_draining = name not in able
            routed = self._router.route(request, time.monotonic())
            if routed is None:
                return None
            self._sent[request.request_id] = routed.replica
            return routed.replica

    def report_started(self, name: str, request_id: str, forecast: Forecast | None) -> None:
        """Record that a replica has admitted a request, which its forecast includes."""
        with self._lock:
            self._router.report(name, time.monotonic(), forecast, (request_id,))

    def end(self, request_id: str) -> None:
        """Stop counting a request."""
        with self._lock:
            self._end(request_id)

    def _end(self, request_id: str) -> None:
        name = self._sent.pop(request_id, None)
        if name is not None:
            self._router.end(name, request_id)

    @property
    def forecast(self) -> Forecast | None:
        """Forecast of the replica that would answer first; None if none serves."""
        now = time.monotonic()
        with self._lock:
            serving = self._router.replicas.values()
            best = min(serving, key=lambda each: each.predict(RoutedRequest("", 1), 0, now), default=None)
            return None if best is None else replace(best.forecast_at(now))


class ReplicaCall:
    """One call of a replica. The caller's side chooses the replica by the `request`'s features (None accepts any, even
    one that loads); pickled, it is its data alone. `replica` is the last choice, None during a wait since
    `waits_since`."""

    def __init__(self, placement: Placement, request: RoutedRequest | None = None, data: bytes = b"") -> None:
        self.placement = placement
        self.replica: str | None = None
        self.waits_since = time.monotonic()
        self.is_lost = False  #: the replica stopped reporting
        self._request = request
        self._data = data
        self._is_over = False

    def choose(self, names: Iterable[str]) -> str | None:
        """Choose among these replicas; None if the call must wait."""
        if self.replica is not None:  # the last choice does not serve after all
            self.waits_since = time.monotonic()
        if self._request is None:
            self.replica = next(iter(names), None)
        else:
            self.replica = self.placement.choose(self._request, names)
            if self._is_over:  # Serve's thread does not know yet; the call must not be counted
                self.end()
        return self.replica

    def end(self) -> None:
        """End the call, which counts nowhere from now on."""
        self._is_over = True
        if self._request is not None:
            self.placement.end(self._request.request_id)

    def __reduce__(self) -> tuple[Callable[[bytes], bytes], tuple[bytes]]:
        return bytes, (self._data,)
