"""Compile the phrases of `query_policy.yaml` into regular expressions over a question's words."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

_WORD = r"\w\S*"
_PART_OF_WORD = r"[\w'.%-]*"
_ANY_WORDS = r"(?:(?![.?!;] )\S+ ){0,24}?"  # within the sentence; bounded, since matching time grows with it


def compile_phrases(phrases: Sequence[str], words: Mapping[str, Sequence[str]]) -> re.Pattern[str]:
    """Compile one expression for any of the phrases, over words with single blanks around them. Raises ValueError."""
    return re.compile("|".join(_phrase(each, words) for each in phrases))


def _phrase(phrase: str, words: Mapping[str, Sequence[str]]) -> str:
    parts = phrase.split()
    pattern = r"(?<= )"  # lookbehind, since the blank may end another match
    if parts and parts[0] == "^":
        pattern = r"\A "
        parts = parts[1:]
    if not parts:
        raise ValueError(f"the phrase {phrase!r} is empty")
    return pattern + "".join(_token(each, phrase, words) for each in parts)


def _token(token: str, phrase: str, words: Mapping[str, Sequence[str]]) -> str:
    if token == "...":
        return _ANY_WORDS
    if token == "$":
        return r"(?:[.?!] )*\Z"
    is_optional = len(token) > 1 and token.endswith("?")
    alternatives: list[str] = []
    if token.startswith("!<") and token[2:-1] in words:
        return rf"(?!(?:{'|'.join(map(re.escape, words[token[2:-1]]))}) ){_WORD} "
    for each in token.removesuffix("?").split("|") if is_optional else token.split("|"):
        if each.startswith("<") and each.endswith(">"):
            if each[1:-1] not in words:
                raise ValueError(f"the phrase {phrase!r} names the list {each}; known lists: {', '.join(words)}")
            alternatives += map(re.escape, words[each[1:-1]])
        elif each == "_":
            alternatives.append(_WORD)
        else:
            alternatives.append(_PART_OF_WORD.join(map(re.escape, each.split("*"))))
    return f"(?:(?:{'|'.join(alternatives)}) )" + ("?" if is_optional else "")
