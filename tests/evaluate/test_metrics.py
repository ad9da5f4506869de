"""Answers are compared as in SQuAD v1.1."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from quire.evaluate.metrics import exact_match, f1, normalize_answer


@pytest.mark.parametrize(
    ("text", "normal"),
    [
        ("The Grey Heron", "grey heron"),
        ("  an\told \n  pier. ", "old pier"),
        ("Don't!", "dont"),
        ("fifty-two", "fiftytwo"),  # punctuation is deleted without a space
        ("A.", ""),  # punctuation goes first, so an article remains
        ("a-the", "athe"),
        ("theatre another Anna", "theatre another anna"),  # articles are whole words
        ("“the” end", "“ ” end"),  # only ASCII punctuation counts, yet a curly quote ends a word
        ("", ""),
    ],
)
def test_an_answer_is_normalized_as_in_squad(text: str, normal: str) -> None:
    assert normalize_answer(text) == normal
    assert normalize_answer(normal) == normal


@pytest.mark.parametrize(
    ("prediction", "answers", "matches"),
    [
        ("the Old Pier.", ["old pier"], True),
        ("old pier", ["church tower", "An old pier"], True),
        ("old piers", ["old pier"], False),
        ("pier old", ["old pier"], False),
        ("on the old pier", ["old pier"], False),
        ("", ["old pier"], False),
        ("the", ["an"], True),  # both are empty after normalization
    ],
)
def test_an_exact_match_equals_any_one_answer(prediction: str, answers: list[str], matches: bool) -> None:
    assert exact_match(prediction, answers) == float(matches)


@pytest.mark.parametrize(
    ("prediction", "answers", "expected"),
    [
        ("the old pier", ["old pier"], 1.0),
        ("pier old", ["old pier"], 1.0),  # a bag of words
        ("barn", ["barn near Pelham"], 0.5),  # precision 1, recall 1/3
        ("in a barn near Pelham", ["barn"], 0.4),  # precision 1/4: the article is off
        ("blue blue blue", ["dark blue"], 0.4),  # blue counts once: precision 1/3, recall 1/2
        ("six six", ["six six six"], 0.8),  # and twice where both have it twice
        ("old pier", ["church", "old stone pier", "pier"], 0.8),  # the best, neither the first nor the mean
        ("chapel", ["church"], 0.0),
        ("", ["church"], 0.0),
        ("the", ["an"], 0.0),  # no word is shared, as in v1.1
    ],
)
def test_f1_is_the_best_overlap_of_words(prediction: str, answers: list[str], expected: float) -> None:
    assert f1(prediction, answers) == pytest.approx(expected)


@pytest.mark.parametrize("measure", [exact_match, f1])
def test_no_answers_and_a_bare_string_are_refused(measure: Callable[[str, Sequence[str]], float]) -> None:
    with pytest.raises(ValueError, match="at least one expected answer"):
        measure("six", [])
    with pytest.raises(ValueError, match=r"write \['six'\]"):
        measure("six", "six")
