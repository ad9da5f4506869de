"""How many replicas there should be, from none on: a target for the requests that each has, and for the first token.

More are wanted at once, since a replica is long in coming; fewer only when for a while fewer would have done.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from math import ceil

from quire.routing.policy import RoutingError


@dataclass(frozen=True)
class Autoscaling:
    """How a model's replicas follow its load.

    Raises:
        RoutingError: there is no number of replicas between the bounds, or a target is not above 0.
    """

    min_replicas: int = 0
    max_replicas: int = 1
    target_requests: float = 16.0  #: that each replica has at once, waiting ones among them
    ttft_s: float | None = None  #: predicted at the best replica, beyond which one more is wanted
    idle_s: float = 30.0  #: for so long fewer must have been enough, before any is given up

    def __post_init__(self) -> None:
        if not 0 <= self.min_replicas <= self.max_replicas or self.max_replicas < 1:
            raise RoutingError(
                f"between {self.min_replicas} and {self.max_replicas} replicas; expected 0 <= MIN <= MAX"
            )
        if not self.target_requests > 0 or not self.idle_s >= 0 or (self.ttft_s is not None and not self.ttft_s > 0):
            raise RoutingError("targets of autoscaling are numbers above 0, and idle_s at least 0")


class Autoscaler:
    """Decides, and starts nothing. Knows no clock but what it is told.

    Args:
        config: targets and bounds.
    """

    def __init__(self, config: Autoscaling) -> None:
        self.config = config
        self._wanted: deque[tuple[float, int]] = deque()  #: when how many were, falling, over the last `idle_s`
        self._since: float | None = None  #: the first decision: nothing is known of before

    def decide(self, now: float, num_requests: int, num_coming: int, num_serving: int, ttft_s: float = 0.0) -> int:
        """How many replicas there should be.

        Args:
            num_requests: that have not ended, with those that are held back.
            num_coming: replicas that load.
            num_serving: replicas that serve, without those that drain.
            ttft_s: that the best of them predicts for a request that came now.
        """
        config, num_replicas = self.config, num_coming + num_serving
        wanted = ceil(num_requests / config.target_requests)
        if config.ttft_s is not None and num_requests and not num_coming and ttft_s > config.ttft_s:
            wanted = max(wanted, num_replicas + 1)
        wanted = min(config.max_replicas, max(config.min_replicas, wanted))
        self._note(now, wanted)
        if wanted >= num_replicas:
            return wanted
        assert self._since is not None
        return min(num_replicas, self._wanted[0][1]) if now - self._since >= config.idle_s else num_replicas

    def _note(self, now: float, wanted: int) -> None:
        if self._since is None:
            self._since = now
        while self._wanted and self._wanted[-1][1] <= wanted:
            self._wanted.pop()
        self._wanted.append((now, wanted))
        while len(self._wanted) > 1 and self._wanted[0][0] < now - self.config.idle_s:
            self._wanted.popleft()
