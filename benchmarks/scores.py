"""Scores of short answers: SQuAD's exact match and F1, and a paired comparison of two models.

Source: Rajpurkar et al., 2016, "SQuAD: 100,000+ Questions for Machine Comprehension of Text", section 6.1.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from quire.progressive.questions import (
    ReadingQuestion,
    check_answers,
    exact_match,
    first_line,
    normalize_answer,
)


@dataclass(frozen=True)
class ReadingScores:
    """Scores of a set of answers, in percent."""

    questions: int  #: number of questions
    exact_match: float
    f1: float


@dataclass(frozen=True)
class Paired:
    """Differences between two sets of answers."""

    only_first: int  #: questions that only the first model gets right
    only_second: int
    p: float  #: p-value of the two-sided sign test


def f1(prediction: str, answers: Sequence[str]) -> float:
    """Return the best harmonic mean of word precision and recall over the expected answers.

    Both sides are bags of normalized words. As in SQuAD v1.1, answers without a common word score zero, even two empty
    ones. Raises ValueError as `exact_match`.
    """
    check_answers(answers)
    said = Counter(normalize_answer(prediction).split())
    bags = [Counter(normalize_answer(answer).split()) for answer in answers]
    # 2PR / (P + R) with P = shared / said and R = shared / expected
    return max(2 * (said & bag).total() / max(1, said.total() + bag.total()) for bag in bags)


def score(predictions: Sequence[str], questions: Sequence[ReadingQuestion]) -> ReadingScores:
    """Average exact match and F1 of the answers, each up to its first newline. Raises ValueError."""
    each = score_each(predictions, questions)
    if not each:
        raise ValueError("there is nothing to score: no questions were given")
    return ReadingScores(
        questions=len(each),
        exact_match=100 * sum(em for em, _ in each) / len(each),
        f1=100 * sum(f for _, f in each) / len(each),
    )


def score_each(predictions: Sequence[str], questions: Sequence[ReadingQuestion]) -> list[tuple[float, float]]:
    """Return exact match and F1 of each answer up to its first newline, as fractions. Raises as `score`."""
    if len(predictions) != len(questions):
        raise ValueError(f"expected one prediction a question, got {len(predictions)} for {len(questions)} questions")
    said = [first_line(prediction) for prediction in predictions]
    return [
        (exact_match(text, question.answers), f1(text, question.answers))
        for text, question in zip(said, questions, strict=True)
    ]


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
