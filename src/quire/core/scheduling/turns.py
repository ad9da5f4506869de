"""Turns between tenants: of those that wait, the one with the fewest computed tokens is next.

Source: virtual token counters (Sheng et al., "Fairness in Serving Large Language Models", OSDI '24, algorithm 2).
"""

from __future__ import annotations

from collections import Counter

MAX_PASSES = 64  #: requests that may delay a waiting one of another tenant


class Turns:
    """Counts computed tokens by tenant; an idle tenant returns with the least active count, and so earns no credit."""

    def __init__(self) -> None:
        #: Tokens by tenant; "" is the server itself, and every client of a server without keys.
        self.served: dict[str, int] = {"": 0}
        self.num_open: Counter[str] = Counter()  #: unfinished requests by active tenant
        self._least = 0  #: count of an entering tenant if no other is active

    @property
    def are_taken(self) -> bool:
        """Whether there has been a tenant but ""."""
        return len(self.served) > 1

    def enter(self, tenant: str) -> None:
        """Count a new request."""
        if tenant not in self.num_open:
            least = min((self.served[each] for each in self.num_open), default=self._least)
            self.served[tenant] = max(self.served.get(tenant, 0), least)
        self.num_open[tenant] += 1

    def leave(self, tenant: str) -> None:
        """Count a request's end."""
        self.num_open[tenant] -= 1
        if not self.num_open[tenant]:
            del self.num_open[tenant]
            self._least = self.served[tenant]

    def charge(self, tenant: str, num_tokens: int) -> None:
        self.served[tenant] += num_tokens
