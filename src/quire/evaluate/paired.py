"""Two models at the same questions: what only one of them gets right, and whether chance would explain it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Paired:
    """How two sets of answers to the same questions differ."""

    only_first: int  #: questions that only the first gets right
    only_second: int
    p: float  #: two-sided sign test: how likely so uneven a split is where neither is better


def compare_paired(first: Sequence[float], second: Sequence[float]) -> Paired:
    """Compare question by question; the exact form of McNemar's test (1947).

    Args:
        first, second: exact match of each question, 0 or 1, in the same order.

    Raises:
        ValueError: they are not of the same questions.
    """
    if len(first) != len(second):
        raise ValueError(f"{len(first)} and {len(second)} answers cannot be paired")
    only_first = sum(a > b for a, b in zip(first, second, strict=True))
    only_second = sum(a < b for a, b in zip(first, second, strict=True))
    return Paired(only_first, only_second, sign_test(only_first, only_second))


def sign_test(a: int, b: int) -> float:
    """The two-sided p of a split as uneven as a to b, or more so, by fair coins."""
    n, fewer = a + b, min(a, b)
    return min(1.0, 2 * sum(math.comb(n, k) for k in range(fewer + 1)) / 2**n)
