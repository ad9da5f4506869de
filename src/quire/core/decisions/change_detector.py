"""Detect changes of machine or link from prediction errors. Noise is one-sided: nothing is three times faster by
chance, so fewer misses in a row show a gain than a loss."""

from __future__ import annotations

from statistics import median_low


class ChangeDetector:
    """Counts consecutive predictions that missed on the same side."""

    __slots__ = ("misses",)

    def __init__(self) -> None:
        self.misses: list[float] = []  #: log(actual / predicted), oldest first

    def observe(self, log_ratio: float, threshold: float) -> None:
        """Record log(actual / predicted) of one prediction. Within `threshold` of 0 it is a hit and ends the run."""
        misses = self.misses
        if -threshold <= log_ratio <= threshold:
            if misses:
                misses.clear()
        elif misses and (misses[0] > 0.0) != (log_ratio > 0.0):
            misses[:] = [log_ratio]
        else:
            misses.append(log_ratio)

    @property
    def side(self) -> int:
        """1 for a run of slower actuals than predicted, -1 for faster ones, 0 without a run."""
        return 0 if not self.misses else 1 if self.misses[0] > 0.0 else -1

    def pop_change(self) -> float:
        """End the run and return its median log ratio; of two middle ones the faster, since noise is one-sided."""
        middle = median_low(self.misses)
        self.misses.clear()
        return middle


def has_changed(runs: list[ChangeDetector], *, slower_after: int, faster_after: int) -> int:
    """Whether runs of things that change together show a change: 1 for slower, -1 for faster, 0 for none."""
    for side, enough in ((1, slower_after), (-1, faster_after)):
        if sum(len(run.misses) for run in runs if run.side == side) >= enough:
            return side
    return 0
