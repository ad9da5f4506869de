"""Where the requests of one model go: the router over replicas, kept in step with those that Ray Serve tells of.

Knows no Ray. Serve's own router asks it in a thread of its own, the application tells it what has become of requests in
another; so each call is one turn under a lock.
"""

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
    """Args:
    policy: of `ReplicaRouter`.
    on_load: is told of the progress of the replica that has come furthest, whenever that changes.
    on_figures: is told what the engine of each replica has counted, whenever there is news.
    """

    def __init__(
        self,
        policy: str,
        on_load: Callable[[LoadProgress], None] = lambda progress: None,
        on_figures: Callable[[Mapping[str, Sequence[float]]], None] = lambda figures: None,
    ) -> None:
        self._router = ReplicaRouter(policy)  #: knows the replicas that serve; those that still load are none to it
        self._on_load = on_load
        self._on_figures = on_figures
        self._lock = threading.Lock()
        self._heard: dict[str, int] = {}  #: by replica that serves, the number of the news that was taken last
        self._dead: set[str] = set()  #: Serve may go on to name them for a while
        self._progress: LoadProgress | None = None
        self._sent: dict[str, str] = {}  #: by request, the replica that it was sent to

    # -- what Serve tells ----------------------------------------------------------------------------------------------

    def update(self, replicas: Mapping[str, Mapping[str, Any]]) -> None:
        """These are the replicas that there are, each with what it told last (`ReplicaNews.as_stats`)."""
        news = {name: ReplicaNews.of(stats) for name, stats in replicas.items()}
        with self._lock:
            for name in set(self._router.replicas) - set(news):
                self._forget(name)
            for name, latest in news.items():
                if latest is not None and latest.stage and name not in self._dead:
                    self._take(name, latest)
            loads = (each.progress for each in news.values() if each is not None and each.progress is not None)
            best = max(loads, key=lambda progress: (progress.stage, progress.bytes_loaded), default=None)
            has_changed, self._progress = best != self._progress, best
            self._on_figures(
                {name: each.figures for name, each in news.items() if each is not None and name not in self._dead}
            )
        if has_changed and best is not None:
            self._on_load(best)

    def _take(self, name: str, news: ReplicaNews) -> None:
        if name not in self._router.replicas:
            self._router.add(name, num_blocks=news.num_blocks, block_size=news.block_size, stage=news.stage)
        elif news.number <= self._heard[name]:
            return  # Serve repeats what it knows of all whenever there is news of one
        self._heard[name] = news.number
        self._router.report(name, time.monotonic(), news.forecast, stage=news.stage)

    def _forget(self, name: str) -> None:
        self._router.remove(name)
        self._heard.pop(name, None)

    def lose(self, name: str) -> None:
        """A replica has died."""
        with self._lock:
            self._dead.add(name)
            self._forget(name)

    # -- requests ------------------------------------------------------------------------------------------------------

    def choose(self, request: RoutedRequest, names: Iterable[str]) -> str | None:
        """The one of these replicas that a request goes to, which is counted as sent there; None where it has to wait.
        Asked again for the same request, it has not been sent after all."""
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

    def note_taken(self, name: str, request_id: str, forecast: Forecast | None) -> None:
        """A replica has taken a request in, and its forecast counts it."""
        with self._lock:
            self._router.report(name, time.monotonic(), forecast, (request_id,))

    def end(self, request_id: str) -> None:
        """A request has ended, in whatever way."""
        with self._lock:
            self._end(request_id)

    def _end(self, request_id: str) -> None:
        name = self._sent.pop(request_id, None)
        if name is not None:
            self._router.end(name, request_id)

    # -- what it knows -------------------------------------------------------------------------------------------------

    @property
    def forecast(self) -> Forecast | None:
        """Of the replica that would answer first; None where none serves."""
        now = time.monotonic()
        with self._lock:
            serving = self._router.replicas.values()
            best = min(serving, key=lambda each: each.predict(RoutedRequest("", 1), 0, now), default=None)
            return None if best is None else replace(best.forecast_at(now))
