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


class Placement:
    """Gives `on_load` the most loaded replica's progress, and `on_metrics` the engines' counters by replica."""

    def __init__(
        self,
        policy: str,
        on_load: Callable[[LoadProgress], None] = lambda progress: None,
        on_metrics: Callable[[Mapping[str, Sequence[float]]], None] = lambda metrics: None,
    ) -> None:
        self._router = ReplicaRouter(policy)  #: holds serving replicas only
        self._on_load = on_load
        self._on_metrics = on_metrics
        self._lock = threading.Lock()
        self._heard: dict[str, int] = {}  #: number of the last report, by serving replica
        self._dead: set[str] = set()  #: Serve may list them for a while longer
        self._progress: LoadProgress | None = None
        self._sent: dict[str, str] = {}  #: replica by request

    def update(self, replicas: Mapping[str, Mapping[str, Any]]) -> None:
        """Apply Serve's list of replicas, each with its last report (`ReplicaNews.as_stats`)."""
        news = {name: ReplicaNews.of(stats) for name, stats in replicas.items()}
        with self._lock:
            for name in set(self._router.replicas) - set(news):
                self._remove(name)
            for name, latest in news.items():
                if latest is not None and latest.stage and name not in self._dead:
                    self._apply(name, latest)
            loads = (each.progress for each in news.values() if each is not None and each.progress is not None)
            best = max(loads, key=lambda progress: (progress.stage, progress.bytes_loaded), default=None)
            has_changed, self._progress = best != self._progress, best
            self._on_metrics(
                {name: each.metrics for name, each in news.items() if each is not None and name not in self._dead}
            )
        if has_changed and best is not None:
            self._on_load(best)

    def _apply(self, name: str, news: ReplicaNews) -> None:
        if name not in self._router.replicas:
            self._router.add(name, num_blocks=news.num_blocks, block_size=news.block_size, stage=news.stage)
        elif news.number <= self._heard[name]:
            return  # Serve repeats all reports whenever one is new
        self._heard[name] = news.number
        self._router.report(name, time.monotonic(), news.forecast, stage=news.stage)

    def _remove(self, name: str) -> None:
        self._router.remove(name)
        self._heard.pop(name, None)

    def lose(self, name: str) -> None:
        with self._lock:
            self._dead.add(name)
            self._remove(name)

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
