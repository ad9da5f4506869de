"""What a routing policy is: it sees a question, never an answer or a label, and chooses one of the served models."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from quire.forecast import Forecast


@dataclass(frozen=True)
class SLO:
    """What a request's latencies are to keep below, in seconds; None is without limit.

    Raises:
        RoutingError: a limit is not above 0.
    """

    ttft_s: float | None = None
    tpot_s: float | None = None

    def __post_init__(self) -> None:
        for name, limit in (("ttft_s", self.ttft_s), ("tpot_s", self.tpot_s)):
            if limit is not None and not 0 < limit < float("inf"):
                raise RoutingError(f"an SLO's {name} is a number of seconds above 0, got {limit!r}")

    def is_kept(self, ttft_s: float, tpot_s: float) -> bool:
        """Whether a request's latencies are within it; TPOT is 0 of one token alone."""
        is_soon = self.ttft_s is None or ttft_s <= self.ttft_s
        return is_soon and (self.tpot_s is None or tpot_s <= self.tpot_s)


NO_SLO = SLO()


@dataclass(frozen=True)
class RoutingContext:
    """What is known of a request beside its question, and of the engines that might answer it: see `Router.route`."""

    num_tokens: int = 0
    slo: SLO = NO_SLO
    forecasts: Mapping[str, Forecast] = field(default_factory=dict)
    num_cached: Mapping[str, int] = field(default_factory=dict)


NOTHING_KNOWN = RoutingContext()


@dataclass(frozen=True)
class Choice:
    """A model, and why this one.

    Args:
        model: the name that it is served under.
        policy: the policy that chose it.
        why: a sentence for people.
        numbers: what was compared, by name; what they are is the policy's to say.
        role: what the model was chosen as, such as small or large; its name again where it has no other role.
    """

    model: str
    policy: str
    why: str
    numbers: Mapping[str, float] = field(default_factory=dict)
    role: str = ""


class Policy(Protocol):
    """Chooses a model. Called from several threads."""

    name: str

    def choose(self, question: str, context: RoutingContext = NOTHING_KNOWN) -> Choice:
        """The model for a question, in at most a few milliseconds. Never fails on any text."""
        ...


class RoutingError(ValueError):
    """A routing configuration that cannot be used: what is wrong, what was expected, how to mend it."""
