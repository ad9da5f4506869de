"""The form of a text: its words, neighbouring words and opening. Words that are rare in the examples count as `*`."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable
from itertools import pairwise

_WORD = re.compile(r"[^\W_]+(?:'[^\W_]+)*|[^\w\s]")
_RARE = "*"
_COMMON_SHARE = 0.008  #: of the examples, which hold a common word
_OPENING = 4  #: words
_OPENING_WEIGHT = 2.0
_MAX_LENGTH = 6
_MAX_CHARACTERS = 1000


def shorten(text: str) -> str:
    """Return a text, or both ends of a long one, where the question is."""
    half = _MAX_CHARACTERS // 2
    return text if len(text) <= _MAX_CHARACTERS else f"{text[:half]} . {text[-half:]}"


def words_of(text: str) -> list[str]:
    """Return words and punctuation marks in lower case."""
    return _WORD.findall(text.lower().replace("’", "'"))


def common_words(texts: Collection[str]) -> frozenset[str]:
    counts = Counter(word for text in texts for word in set(words_of(text)))
    return frozenset(word for word, count in counts.items() if count >= max(2, _COMMON_SHARE * len(texts)))


def forms_of(text: str, common: Collection[str]) -> dict[str, float]:
    """Return the weights of a text's forms: words, pairs ("how *"), openings ("^ how do *") and the length ("#4")."""
    words = words_of(text)
    masked = [word if word in common else _RARE for word in words]
    found: dict[str, float] = dict.fromkeys(words, 1.0)
    found |= dict.fromkeys(map(" ".join, pairwise([*masked, "$"])), 1.0)
    found |= {" ".join(("^", *masked[:end])): _OPENING_WEIGHT for end in range(1, min(_OPENING, len(words)) + 1)}
    found[f"#{min(_MAX_LENGTH, (len(words) + 1).bit_length())}"] = 1.0
    return found


def repeated_forms(texts: Iterable[str], common: Collection[str]) -> list[str]:
    """Return the forms of more than one text, sorted."""
    counts = Counter(form for text in texts for form in forms_of(text, common))
    return sorted(form for form, count in counts.items() if count > 1)
