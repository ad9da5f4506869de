"""Learn what a draft model's passes take."""

from __future__ import annotations

from quire.config import DraftFacts
from quire.outputs import Drafting

_WEIGHT = 0.1  # of the last observation


class DraftCosts:
    """Seconds of a draft model: a pass for one token of each sequence, and each token of a text that it has not read.
    Until measured, a pass takes its model's share of a step of the served one."""

    def __init__(self, facts: DraftFacts) -> None:
        self._facts = facts
        self._pass_s: float | None = None
        self._read_s: float | None = None  #: per token

    def observe(self, drafting: Drafting) -> None:
        if drafting.passes:
            self._pass_s = _average(self._pass_s, drafting.seconds / drafting.passes)
        if drafting.read_tokens:
            self._read_s = _average(self._read_s, drafting.read_s / drafting.read_tokens)

    def one_pass(self, step_s: float) -> float:
        """Return the seconds of a pass; `step_s` are those of a step of the served model."""
        return self._facts.share * step_s if self._pass_s is None else self._pass_s

    def read(self, num_tokens: int, step_s: float) -> float:
        """Return the seconds to read so many tokens."""
        if not self._facts.has_own_kv:
            return 0.0
        return num_tokens * (self.one_pass(step_s) / 8 if self._read_s is None else self._read_s)


def _average(old: float | None, new: float) -> float:
    return new if old is None else old + _WEIGHT * (new - old)
