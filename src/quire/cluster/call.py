"""A call of a replica, which on this side knows how its replica is chosen, and on the other only what it brings."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from quire.cluster.placement import Placement
from quire.routing.replicas import RoutedRequest


class Call:
    """Args:
    placement: chooses the replica.
    request: what is known of it for that; None goes to any replica, be it still loading.
    data: what the replica gets.

    Attributes:
        replica: that it was sent to last; None while it waits for one.
        waits_since: it has waited for a replica, or did last (`time.monotonic`).
    """

    def __init__(self, placement: Placement, request: RoutedRequest | None = None, data: bytes = b"") -> None:
        self.placement = placement
        self.replica: str | None = None
        self.waits_since = time.monotonic()
        self._request = request
        self._data = data
        self._is_over = False

    def choose(self, names: Iterable[str]) -> str | None:
        """The one of these replicas that it goes to; None where it has to wait."""
        if self.replica is not None:  # it does not serve after all
            self.waits_since = time.monotonic()
        if self._request is None:
            self.replica = next(iter(names), None)
        else:
            self.replica = self.placement.choose(self._request, names)
            if self._is_over:  # which Serve's thread has not heard yet: it goes nowhere, and is not to count there
                self.end()
        return self.replica

    def end(self) -> None:
        """It has ended, in whatever way, and counts nowhere from now on."""
        self._is_over = True
        if self._request is not None:
            self.placement.end(self._request.request_id)

    def __reduce__(self) -> tuple[Callable[[bytes], bytes], tuple[bytes]]:
        return bytes, (self._data,)
