"""The worth of a short answer beside the expected ones, by SQuAD's measures.

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
    """An answer without the wording that does not matter.

    Lower case; ASCII punctuation deleted, so that `don't` becomes `dont`; the words a, an and the dropped;
    whitespace squeezed to single spaces. The order counts: punctuation goes before the articles.
    """
    bare = text.lower().translate(_WITHOUT_PUNCTUATION)
    return " ".join(_ARTICLE.sub(" ", bare).split())


def exact_match(prediction: str, answers: Sequence[str]) -> float:
    """1.0 where a prediction equals one of the expected answers, both in their normal form, or else 0.0.

    Raises:
        ValueError: there are no answers, or one bare string in the place of a sequence.
    """
    _check(answers)
    said = normalize_answer(prediction)
    return float(any(said == normalize_answer(answer) for answer in answers))


def f1(prediction: str, answers: Sequence[str]) -> float:
    """The harmonic mean of precision and recall of a prediction's words, best over the expected answers.

    Both sides are bags of words in their normal form, so a word counts as often as both have it. As in SQuAD v1.1, two
    answers that share no word score zero, two empty ones included.

    Raises:
        ValueError: as `exact_match`.
    """
    _check(answers)
    said = Counter(normalize_answer(prediction).split())
    return max(_overlap(said, Counter(normalize_answer(answer).split())) for answer in answers)


def _overlap(said: Counter[str], expected: Counter[str]) -> float:
    shared = (said & expected).total()
    # 2PR / (P + R) with P = shared / said and R = shared / expected
    return 2 * shared / (said.total() + expected.total()) if shared else 0.0


def _check(answers: Sequence[str]) -> None:
    if isinstance(answers, str):  # a sequence of its letters, which would be scored without a word
        raise ValueError(f"answers must be a sequence of strings, got the string {answers!r}: write [{answers!r}]")
    if not answers:
        raise ValueError("a prediction needs at least one expected answer to be scored against, got none")
