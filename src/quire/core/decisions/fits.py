"""Curves through measured costs, and when a measurement says that costs have changed."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import pairwise
from statistics import median_low


class PiecewiseLinear:
    """Lines between and beyond points, slopes `before` and `after`; never falling or below zero, else ValueError."""

    __slots__ = ("_after", "_before", "_slopes", "_xs", "_ys")

    def __init__(
        self, points: Sequence[tuple[float, float]], before: float | None = None, after: float | None = None
    ) -> None:
        if not points:
            raise ValueError("a piecewise linear function needs at least one point")
        if not points[0][1] >= 0.0:
            raise ValueError(f"the value of {points[0]} is negative")
        for (x, y), (next_x, next_y) in pairwise(points):
            if not (x < next_x and y <= next_y):
                raise ValueError(f"points grow in x and never fall in y; ({next_x}, {next_y}) follows ({x}, {y})")
        self._xs = [float(x) for x, _ in points]
        self._ys = [float(y) for _, y in points]
        self._slopes = [(y1 - y0) / (x1 - x0) for (x0, y0), (x1, y1) in pairwise(points)]
        self._before = before if before is not None else (self._slopes[0] if self._slopes else 0.0)
        self._after = after if after is not None else (self._slopes[-1] if self._slopes else 0.0)

    def __call__(self, x: float) -> float:
        xs, ys = self._xs, self._ys
        at = bisect_right(xs, x)
        if at == 0:
            return max(0.0, ys[0] - self._before * (xs[0] - x))
        if at == len(xs):
            return ys[-1] + self._after * (x - xs[-1])
        return min(ys[at], ys[at - 1] + self._slopes[at - 1] * (x - xs[at - 1]))  # min: never falls by rounding

    def scaled(self, factor: float) -> PiecewiseLinear:
        """The function times a non-negative factor."""
        points = [(x, y * factor) for x, y in zip(self._xs, self._ys, strict=True)]
        return PiecewiseLinear(points, self._before * factor, self._after * factor)


def isotonic(values: Sequence[float], weights: Sequence[float]) -> list[float]:
    """The nearest non-falling sequence in weighted squares: pool adjacent violators (Ayer et al., 1955), O(n)."""
    pools: list[tuple[float, float, int]] = []  # (mean, weight, count)
    for value, weight in zip(values, weights, strict=True):
        mean, total, count = float(value), float(weight), 1
        while pools and pools[-1][0] >= mean:
            other_mean, other_total, other_count = pools.pop()
            mean = other_mean + (mean - other_mean) * (total / (total + other_total))
            total += other_total
            count += other_count
        pools.append((mean, total, count))
    return [mean for mean, _, count in pools for _ in range(count)]


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
