"""The figures of a run: when tokens came, how they spread, and how sure a difference is. Pure arithmetic.

TTFT, the time to the first token, counts from the arrival; TPOT, the time per output token, is the time from the first
to the last token over the tokens after the first; ITL is every single gap. Percentiles are linear between neighbours.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

# Student's t, two-sided 95 %, by degrees of freedom from 1 on; beyond, an expansion in 1 / df is right to 0.0003.
_T95 = (
    12.7062, 4.3027, 3.1824, 2.7764, 2.5706, 2.4469, 2.3646, 2.3060, 2.2622, 2.2281, 2.2010, 2.1788, 2.1604, 2.1448,
    2.1314, 2.1199, 2.1098, 2.1009, 2.0930, 2.0860,
)  # fmt: skip
_Z95 = 1.959964


@dataclass(frozen=True, slots=True)
class Distribution:
    """How a quantity spreads over requests, or over gaps. In the quantity's own unit."""

    count: int
    mean: float
    p50: float
    p90: float
    p99: float
    largest: float


def distribution(values: Sequence[float], counts: Sequence[int] | None = None) -> Distribution | None:
    """How values spread that occur once each, or as often as `counts` says. None where there are none."""
    spread = np.repeat(np.asarray(values, dtype=float), 1 if counts is None else counts)
    if not len(spread):
        return None
    p50, p90, p99 = np.percentile(spread, (50, 90, 99)).tolist()
    return Distribution(len(spread), float(spread.mean()), p50, p90, p99, float(spread.max()))


def value_of(figures: Any, name: str) -> float | None:
    """A figure of a run, or one statistic of it, such as ttft_s.mean; None where nothing was measured."""
    metric, _, statistic = name.partition(".")
    found = getattr(figures, metric)
    return getattr(found, statistic) if statistic and found is not None else found


def compare(engine: Any, simulated: Any, names: Mapping[str, str]) -> dict[str, dict[str, float]]:
    """What the engine took, what was predicted, and the error relative to the engine; by the names of `names`.

    Args:
        engine: the figures of its run.
        simulated: those of the same requests in the simulator.
        names: what each comparison is called, and of which figure (`value_of`) it is.
    """
    pairs = {name: (value_of(engine, of), value_of(simulated, of)) for name, of in names.items()}
    return {
        name: {"engine": took, "simulator": predicted, "error": predicted / took - 1.0}
        for name, (took, predicted) in pairs.items()
        if took and predicted is not None
    }


class Timeline:
    """When the tokens of each sequence came, without an entry for each token.

    From one step to the next most sequences go on together; only where one begins, ends or pauses is anything noted.
    """

    def __init__(self) -> None:
        self.first: dict[int, float] = {}  #: seq_id -> when its first token came
        self._last: dict[int, float] = {}  #: of sequences that got no token with the latest step
        self._going_on: list[int] = []  #: sequences that got one
        self._now = 0.0
        self._gaps: list[tuple[float, int]] = []

    def note(self, seq_ids: list[int], now: float) -> None:
        """A step is over, in which these sequences got a token each."""
        if seq_ids == self._going_on:
            if seq_ids:
                self._gaps.append((now - self._now, len(seq_ids)))
        else:
            self._note_change(seq_ids, now)
        self._now = now

    def note_again(self, ends: Sequence[float]) -> None:
        """Steps are over, the last of them at `ends[-1]`, in which the same sequences as before got a token each."""
        count = len(self._going_on)
        if count:
            self._gaps += [(now - before, count) for before, now in pairwise((self._now, *ends))]
        self._now = ends[-1]

    def _note_change(self, seq_ids: list[int], now: float) -> None:
        before, current = set(self._going_on), set(seq_ids)
        for seq_id in before - current:
            self._last[seq_id] = self._now
        coming = current - before
        # In their order, since the sum of many gaps depends on it; nearly always it is one that comes.
        for seq_id in coming if len(coming) <= 1 else [each for each in seq_ids if each in coming]:
            if (last := self._last.pop(seq_id, None)) is not None:
                self._gaps.append((now - last, 1))
            else:
                self.first[seq_id] = now
        if num_going_on := len(current) - len(coming):
            self._gaps.append((now - self._now, num_going_on))
        self._going_on = list(seq_ids)

    def last(self, seq_id: int) -> float:
        """When a sequence's latest token came."""
        found = self._last.get(seq_id)
        return self._now if found is None else found

    def gaps(self) -> Distribution | None:
        """ITL: every gap between two tokens of one sequence."""
        return distribution([gap for gap, _ in self._gaps], [count for _, count in self._gaps])


@dataclass(frozen=True, slots=True)
class Interval:
    """A mean, and the bounds that hold it with 95 % confidence (Student's t); no bounds from a single value."""

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
    """By which share each value is above its own partner in `base`: -0.1 is a tenth less. None where some lack one."""
    if len(values) != len(base) or not all(base):
        return []
    return [value / other - 1 for value, other in zip(values, base, strict=True)]


def t95(df: int) -> float:
    """Student's t for a two-sided interval of 95 % with `df` degrees of freedom."""
    if df <= len(_T95):
        return _T95[df - 1]
    z = _Z95
    first, second = (z**3 + z) / 4, (5 * z**5 + 16 * z**3 + 3 * z) / 96  # Fisher's expansion
    return z + first / df + second / df**2
