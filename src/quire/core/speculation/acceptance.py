"""Learn how often draft tokens are accepted."""

from __future__ import annotations

_MEMORY = 256.0  #: tokens
_OWN_MEMORY = 32.0
_PRIOR_WEIGHT = 8.0


class AcceptanceRate:
    """The share of draft tokens that are accepted once all before them were, over the last ones."""

    __slots__ = ("accepted", "memory", "tried")

    def __init__(self, rate: float = 0.0, weight: float = 0.0, memory: float = _MEMORY) -> None:
        self.accepted, self.tried, self.memory = rate * weight, weight, memory

    def observe(self, num_accepted: int, num_drafts: int) -> None:
        """Record that the first `num_accepted` of a sequence's draft tokens were right, and the next one was not."""
        if self.tried > self.memory:
            share = self.memory / self.tried
            self.accepted, self.tried = self.accepted * share, self.memory
        self.accepted += num_accepted
        self.tried += num_accepted + (num_accepted < num_drafts)


class Acceptance:
    """Rates by kind of draft over all requests, from which each sequence's own rate starts."""

    def __init__(self) -> None:
        self._kinds: dict[tuple[str, int], AcceptanceRate] = {}

    def rate(self, kind: tuple[str, int], prior: float, own: AcceptanceRate) -> float:
        """Return the probability that the next draft token of a kind is right, for a sequence with its `own` rate."""
        known = self._kinds.get(kind)
        if known is None:
            known = self._kinds[kind] = AcceptanceRate(prior, _PRIOR_WEIGHT)
        general = known.accepted / known.tried
        return (general * _PRIOR_WEIGHT + own.accepted) / (_PRIOR_WEIGHT + own.tried)

    def observe(self, kind: tuple[str, int], own: AcceptanceRate, num_accepted: int, num_drafts: int) -> None:
        self._kinds[kind].observe(num_accepted, num_drafts)
        own.observe(num_accepted, num_drafts)


def own_rate() -> AcceptanceRate:
    """Return the rate of a sequence that has had no drafts."""
    return AcceptanceRate(memory=_OWN_MEMORY)
