"""Choose the number of replicas: it grows at once, since they start slowly, and shrinks after a while."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from math import ceil

from quire.routing.policy import RoutingError


@dataclass(frozen=True)
class Autoscaling:
    """Bounds and targets. Raises RoutingError for an empty range or a target that is not above 0."""

    min_replicas: int = 0
    max_replicas: int = 1
    target_requests: float = 16.0  #: running and waiting requests per replica
    ttft_s: float | None = None  #: predicted TTFT of the best replica above which another one is added
    idle_s: float = 30.0  #: seconds for which fewer replicas must have sufficed before the number shrinks

    def __post_init__(self) -> None:
        if not 0 <= self.min_replicas <= self.max_replicas or self.max_replicas < 1:
            raise RoutingError(
                f"between {self.min_replicas} and {self.max_replicas} replicas; expected 0 <= MIN <= MAX"
            )
        if not self.target_requests > 0 or not self.idle_s >= 0 or (self.ttft_s is not None and not self.ttft_s > 0):
            raise RoutingError("targets of autoscaling are numbers above 0, and idle_s at least 0")


class Autoscaler:
    """Decides the number of replicas; the caller starts and stops them, and supplies the time."""

    def __init__(self, config: Autoscaling) -> None:
        self.config = config
        self._wanted: deque[tuple[float, int]] = deque()  #: (time, replicas), decreasing, over the last `idle_s`
        self._since: float | None = None  #: time of the first decision

    def decide(self, now: float, num_requests: int, num_coming: int, num_serving: int, ttft_s: float = 0.0) -> int:
        """Return the wanted number of replicas, given unfinished requests (held ones included), loading and serving
        (not draining) replicas, and the predicted TTFT of the best one."""
        config, num_replicas = self.config, num_coming + num_serving
        wanted = ceil(num_requests / config.target_requests)
        if config.ttft_s is not None and num_requests and not num_coming and ttft_s > config.ttft_s:
            wanted = max(wanted, num_replicas + 1)
        wanted = min(config.max_replicas, max(config.min_replicas, wanted))
        self._record(now, wanted)
        if wanted >= num_replicas:
            return wanted
        assert self._since is not None
        return min(num_replicas, self._wanted[0][1]) if now - self._since >= config.idle_s else num_replicas

    def _record(self, now: float, wanted: int) -> None:
        if self._since is None:
            self._since = now
        while self._wanted and self._wanted[-1][1] <= wanted:
            self._wanted.pop()
        self._wanted.append((now, wanted))
        while len(self._wanted) > 1 and self._wanted[0][0] < now - self.config.idle_s:
            self._wanted.popleft()
