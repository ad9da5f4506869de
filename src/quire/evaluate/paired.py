"""Paired comparison of two models on the same questions, with a sign test."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Paired:
    """Differences between two sets of answers."""

    only_first: int  #: questions that only the first model gets right
    only_second: int
    p: float  #: p-value of the two-sided sign test


def compare_paired(first: Sequence[float], second: Sequence[float]) -> Paired:
    """Compare exact matches (0 or 1) by the exact form of McNemar's test (1947). Raises ValueError."""
    if len(first) != len(second):
        raise ValueError(f"{len(first)} and {len(second)} answers cannot be paired")
    only_first = sum(a > b for a, b in zip(first, second, strict=True))
    only_second = sum(a < b for a, b in zip(first, second, strict=True))
    return Paired(only_first, only_second, sign_test(only_first, only_second))


def sign_test(a: int, b: int) -> float:
    """Return the two-sided p-value of a split of a to b under fair coins."""
    n, fewer = a + b, min(a, b)
    return min(1.0, 2 * sum(math.comb(n, k) for k in range(fewer + 1)) / 2**n)
