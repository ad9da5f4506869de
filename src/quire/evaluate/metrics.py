"""What a short answer is worth beside the expected ones. Knows strings only: no questions, no files, no model."""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Sequence

_WITHOUT_PUNCTUATION = str.maketrans("", "", string.punctuation)
_ARTICLE = re.compile(r"\b(?:an?|the)\b")


def normalize_answer(text: str) -> str:
    """What is left of an answer when wording that does not matter is off.

    Lower case; ASCII punctuation deleted, so that `don't` becomes `dont`; the words a, an and the dropped;
    whitespace squeezed to single spaces. The order counts: punctuation goes before the articles.

    Args:
        text: An answer, from a model or from a data set.

    Returns:
        The answer in its normal form; empty where nothing but punctuation and articles was there.

    Source:
        Rajpurkar et al., 2016, "SQuAD: 100,000+ Questions for Machine Comprehension of Text", section 6.1.
    """
    bare = text.lower().translate(_WITHOUT_PUNCTUATION)
    return " ".join(_ARTICLE.sub(" ", bare).split())


def exact_match(prediction: str, answers: Sequence[str]) -> float:
    """Whether a prediction equals one of the expected answers, both in their normal form.

    Args:
        prediction: What the model said.
        answers: The expected answers, each of them right.

    Returns:
        1.0 or 0.0.

    Raises:
        ValueError: If there are no answers, or one bare string in the place of a sequence.

    Source:
        Rajpurkar et al., 2016, section 6.1, "Exact match".
    """
    _check(answers)
    said = normalize_answer(prediction)
    return float(any(said == normalize_answer(answer) for answer in answers))


def f1(prediction: str, answers: Sequence[str]) -> float:
    """Overlap of words between a prediction and the expected answer that it is nearest to.

    Both are bags of words in their normal form, so a word counts as often as both have it. As in SQuAD v1.1, two
    answers that share no word score zero, two empty ones included.

    Args:
        prediction: What the model said.
        answers: The expected answers, each of them right.

    Returns:
        The harmonic mean of precision and recall, the best over the answers, from 0.0 to 1.0.

    Raises:
        ValueError: If there are no answers, or one bare string in the place of a sequence.

    Source:
        Rajpurkar et al., 2016, section 6.1, "(Macro-averaged) F1 score".
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
