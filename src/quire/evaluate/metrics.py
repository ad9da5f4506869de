"""SQuAD's measures of short answers: exact match and F1.

Source: Rajpurkar et al., 2016, "SQuAD: 100,000+ Questions for Machine Comprehension of Text", section 6.1.
"""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Sequence

_WITHOUT_PUNCTUATION = str.maketrans("", "", string.punctuation)
_ARTICLE = re.compile(r"\b(?:an?|the)\b")


def normalize_answer(text: str) -> str:
    """Lower-case an answer, delete ASCII punctuation (`don't` becomes `dont`), then articles and extra whitespace."""
    bare = text.lower().translate(_WITHOUT_PUNCTUATION)
    return " ".join(_ARTICLE.sub(" ", bare).split())


def exact_match(prediction: str, answers: Sequence[str]) -> float:
    """Return 1.0 if a prediction equals an expected answer after normalization, else 0.0."""
    _check(answers)
    said = normalize_answer(prediction)
    return float(any(said == normalize_answer(answer) for answer in answers))


def f1(prediction: str, answers: Sequence[str]) -> float:
    """Return the best harmonic mean of word precision and recall over the expected answers.

    Both sides are bags of normalized words. As in SQuAD v1.1, answers without a common word score zero, even two empty
    ones. Raises ValueError as `exact_match`.
    """
    _check(answers)
    said = Counter(normalize_answer(prediction).split())
    bags = [Counter(normalize_answer(answer).split()) for answer in answers]
    # 2PR / (P + R) with P = shared / said and R = shared / expected
    return max(2 * (said & bag).total() / max(1, said.total() + bag.total()) for bag in bags)


def _check(answers: Sequence[str]) -> None:
    if isinstance(answers, str):  # would count as a sequence of letters
        raise ValueError(f"answers must be a sequence of strings, got the string {answers!r}: write [{answers!r}]")
    if not answers:
        raise ValueError("a prediction needs at least one expected answer to be scored against, got none")
