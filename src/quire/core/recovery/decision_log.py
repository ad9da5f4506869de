"""What a policy decided, what it predicted, and what it then cost: the latest decisions, and how good they were."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

from quire.core.recovery.exploration import Probe
from quire.core.recovery.interface import RecoveryMode, prediction_error
from quire.core.recovery.regret import Regret


@dataclass(slots=True)
class Decision:
    request_id: str
    step_id: int
    num_tokens: int
    mode: RecoveryMode
    predicted: dict[str, float] = field(default_factory=dict)  #: seconds spent, by `RecoveryMode.value`
    probe: Probe | None = None  #: a small part went the other way, to see what it costs
    is_sample: bool = False  #: all of it went the other way, to see what would have been
    actual: float | None = None  #: seconds spent, once known
    fell_back: bool = False  #: not all that was to be swapped was: `actual` is not of the mode that was chosen

    @property
    def is_probe(self) -> bool:
        return self.probe is not None

    @property
    def error(self) -> float | None:
        """|predicted - actual| / actual of the mode that was taken; None where it was not, or is not over."""
        if self.actual is None or self.fell_back:
            return None
        return prediction_error(self.predicted, self.mode, self.actual)


class DecisionLog:
    """The latest decisions, oldest first. Bounded."""

    def __init__(self, size: int = 4096) -> None:
        self.decisions: deque[Decision] = deque(maxlen=size)
        self._open: dict[str, Decision] = {}  #: without their actual cost, by request

    def __iter__(self) -> Iterator[Decision]:
        return iter(self.decisions)

    def add(self, decision: Decision) -> None:
        if len(self.decisions) == self.decisions.maxlen:
            oldest = self.decisions[0]
            if self._open.get(oldest.request_id) is oldest:
                del self._open[oldest.request_id]
        self.decisions.append(decision)
        self._open[decision.request_id] = decision

    def note_actual(self, request_id: str, seconds: float, *, fell_back: bool = False) -> Decision | None:
        """The request's latest decision has cost so much. None where it is not known (any more)."""
        decision = self._open.pop(request_id, None)
        if decision is not None and seconds > 0.0:
            decision.actual = seconds
            decision.fell_back = fell_back
        return decision

    @property
    def errors(self) -> list[float]:
        """Relative errors of the decisions whose cost is known, oldest first."""
        return [decision.error for decision in self.decisions if decision.error is not None]

    def error_quantile(self, q: float) -> float | None:
        """The error that a share `q` of the decisions does not exceed. None before any cost is known."""
        errors = sorted(self.errors)
        return errors[min(len(errors) - 1, int(q * len(errors)))] if errors else None

    @property
    def regret(self) -> float | None:
        """How much of the seconds the other mode would have saved, by the samples in which it was taken (`Regret`)."""
        regret = Regret()
        for decision in self.decisions:
            if decision.is_sample and decision.actual is not None and not decision.fell_back:
                regret.note(decision.predicted, decision.mode, decision.actual)
        return regret.share
