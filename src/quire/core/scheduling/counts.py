"""Totals of one scheduler since it started."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field


@dataclass(slots=True)
class SchedulerCounts:
    """Events since the scheduler started; the `Stats` of a step are differences of it."""

    preemptions: int = 0
    recomputed_tokens: int = 0
    prefix_queries: int = 0  #: tokens looked up by requests that began
    prefix_hits: int = 0  #: tokens found
    hits_by_tier: Counter[str] = field(default_factory=Counter)  #: found tokens by tier, "device" among them
    ahead_tokens: int = 0  #: of documents, computed for requests while they waited
    sampled_tokens: int = 0
    begun_requests: int = 0
    ended_sequences: int = 0
