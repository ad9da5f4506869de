"""Tells a change of the world from noise, by how predictions miss.

Noise is one-sided: a busy machine makes something three times slower now and then, but nothing is three times faster
by chance. So fewer misses in a row make a change for the faster than for the slower.
"""

from __future__ import annotations

from statistics import median_low


class ChangeDetector:
    """The latest predictions, as far as they missed one after the other on the same side."""

    __slots__ = ("misses",)

    def __init__(self) -> None:
        self.misses: list[float] = []  #: log(actual / predicted), oldest first

    def note(self, log_ratio: float, threshold: float) -> None:
        """Take in log(actual / predicted) of one prediction; within `threshold` of 0 it is a hit and ends the run."""
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
        """1 where things are slower than predicted, -1 where faster, 0 where there is no run."""
        return 0 if not self.misses else 1 if self.misses[0] > 0.0 else -1

    def take(self) -> float:
        """End the run. Returns what the change amounts to: the median, and of two the faster, noise being one-sided."""
        middle = median_low(self.misses)
        self.misses.clear()
        return middle


def has_changed(runs: list[ChangeDetector], *, slower_after: int, faster_after: int) -> int:
    """Whether the runs, of things that change together, make a change: 1 slower, -1 faster, 0 none."""
    for side, enough in ((1, slower_after), (-1, faster_after)):
        if sum(len(run.misses) for run in runs if run.side == side) >= enough:
            return side
    return 0
