"""The interface of routing policies: a question in, one of the served models out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from quire.forecast import Forecast


@dataclass(frozen=True)
class SLO:
    """Latency limits of a request in seconds; None is no limit. Raises RoutingError unless they are above 0."""

    ttft_s: float | None = None
    tpot_s: float | None = None

    def __post_init__(self) -> None:
        for name, limit in (("ttft_s", self.ttft_s), ("tpot_s", self.tpot_s)):
            if limit is not None and not 0 < limit < float("inf"):
                raise RoutingError(f"an SLO's {name} is a number of seconds above 0, got {limit!r}")

    def is_kept(self, ttft_s: float, tpot_s: float) -> bool:
        """Whether both latencies are within the limits; a single token has a TPOT of 0."""
        keeps_ttft = self.ttft_s is None or ttft_s <= self.ttft_s
        return keeps_ttft and (self.tpot_s is None or tpot_s <= self.tpot_s)


NO_SLO = SLO()


@dataclass(frozen=True)
class RoutingContext:
    """A request's size and limits, and the engines' state; `Router.route` documents the fields."""

    num_tokens: int = 0
    slo: SLO = NO_SLO
    forecasts: Mapping[str, Forecast] = field(default_factory=dict)
    num_cached: Mapping[str, int] = field(default_factory=dict)
    stage_waits: Mapping[str, Mapping[int, float]] = field(default_factory=dict)


NO_CONTEXT = RoutingContext()


@dataclass(frozen=True)
class Choice:
    """A chosen model and the reason."""

    model: str  #: its served name
    policy: str
    why: str  #: for people
    numbers: Mapping[str, float] = field(default_factory=dict)  #: the compared figures by name, specific to the policy
    role: str = ""  #: such as small or large; the model's name if it has no other role
    min_stage: int = 1  #: stage of the model to wait for


class Policy(Protocol):
    """Chooses a model. Thread-safe."""

    name: str

    def choose(self, question: str, context: RoutingContext = NO_CONTEXT) -> Choice:
        """Choose the model for a question, within a few milliseconds and without failing on any text."""
        ...


class RoutingError(ValueError):
    """An invalid routing configuration."""
