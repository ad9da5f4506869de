"""Token times of a simulated run, their distributions, and confidence intervals. Pure arithmetic.

TTFT counts from the arrival; TPOT is the time from the first to the last token over the tokens after the first; ITL is
each single gap. Percentiles are linear between neighbours.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

# Student's t, two-sided 95 %, by degrees of freedom from 1; beyond, an expansion in 1 / df is exact to 0.0003.
_T95 = (
    12.7062, 4.3027, 3.1824, 2.7764, 2.5706, 2.4469, 2.3646, 2.3060, 2.2622, 2.2281, 2.2010, 2.1788, 2.1604, 2.1448,
    2.1314, 2.1199, 2.1098, 2.1009, 2.0930, 2.0860,
)  # fmt: skip
_Z95 = 1.959964


@dataclass(frozen=True, slots=True)
class Distribution:
    """Distribution of a quantity over requests or gaps."""

    count: int
    mean: float
    p50: float
    p90: float
    p99: float
    largest: float


def distribution(values: Sequence[float], counts: Sequence[int] | None = None) -> Distribution | None:
    """Distribution of values, each repeated as `counts` says. None without values."""
    spread = np.repeat(np.asarray(values, dtype=float), 1 if counts is None else counts)
    if not len(spread):
        return None
    p50, p90, p99 = np.percentile(spread, (50, 90, 99)).tolist()
    return Distribution(len(spread), float(spread.mean()), p50, p90, p99, float(spread.max()))


def value_of(figures: Any, name: str) -> float | None:
    """A figure, or one statistic such as ttft_s.mean; None if it was not measured."""
    metric, _, statistic = name.partition(".")
    found = getattr(figures, metric)
    return getattr(found, statistic) if statistic and found is not None else found


class Timeline:
    """Token times of all sequences, stored only where a sequence begins, ends or pauses."""

    def __init__(self) -> None:
        self.first: dict[int, float] = {}  #: seq_id -> time of its first token
        self._last: dict[int, float] = {}  #: of sequences without a token in the latest step
        self._going_on: list[int] = []  #: sequences with a token in the latest step
        self._now = 0.0
        self._gaps: list[tuple[float, int]] = []

    def record(self, seq_ids: list[int], now: float) -> None:
        """Record a step that brought each of these sequences a token."""
        if seq_ids == self._going_on:
            if seq_ids:
                self._gaps.append((now - self._now, len(seq_ids)))
        else:
            self._record_change(seq_ids, now)
        self._now = now

    def _record_change(self, seq_ids: list[int], now: float) -> None:
        before, current = set(self._going_on), set(seq_ids)
        for seq_id in before - current:
            self._last[seq_id] = self._now
        coming = current - before
        # In their order, since a sum of floats depends on it; nearly always there is only one.
        for seq_id in coming if len(coming) <= 1 else [each for each in seq_ids if each in coming]:
            if (last := self._last.pop(seq_id, None)) is not None:
                self._gaps.append((now - last, 1))
            else:
                self.first[seq_id] = now
        if num_going_on := len(current) - len(coming):
            self._gaps.append((now - self._now, num_going_on))
        self._going_on = list(seq_ids)

    def last(self, seq_id: int) -> float:
        """Time of a sequence's latest token."""
        found = self._last.get(seq_id)
        return self._now if found is None else found

    def gaps(self) -> Distribution | None:
        """The distribution of ITL."""
        return distribution([gap for gap, _ in self._gaps], [count for _, count in self._gaps])


@dataclass(frozen=True, slots=True)
class Interval:
    """A mean with its 95 % confidence bounds (Student's t); a single value has none."""

    mean: float
    low: float | None
    high: float | None


def interval(values: Sequence[float]) -> Interval:
    mean = statistics.fmean(values)
    if len(values) < 2:
        return Interval(mean, None, None)
    half = t95(len(values) - 1) * statistics.stdev(values) / math.sqrt(len(values))
    return Interval(mean, mean - half, mean + half)


def paired_changes(values: Sequence[float], base: Sequence[float]) -> list[float]:
    """Relative change of each value against its partner in `base`; empty if one lacks a partner."""
    if len(values) != len(base) or not all(base):
        return []
    return [value / other - 1 for value, other in zip(values, base, strict=True)]


def t95(df: int) -> float:
    """Student's t for a two-sided 95 % interval."""
    if df <= len(_T95):
        return _T95[df - 1]
    z = _Z95
    first, second = (z**3 + z) / 4, (5 * z**5 + 16 * z**3 + 3 * z) / 96  # Fisher's expansion
    return z + first / df + second / df**2
