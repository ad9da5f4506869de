"""Answers are compared as in SQuAD v1.1."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from benchmarks.scores import ReadingScores, compare_paired, f1, score, sign_test
from quire.progressive.questions import ReadingQuestion, exact_match, normalize_answer

QUESTION = ReadingQuestion("The pier stands in Portwick.", "Where is the pier?", ("Portwick",))


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


def test_scores_are_means_in_percent() -> None:
    questions = [ReadingQuestion("", "", answers) for answers in (("old pier",), ("x", "barn near Pelham"), ("six",))]
    scores = score(["The old pier", "barn", "seven"], questions)
    assert scores.questions == 3
    assert scores.exact_match == pytest.approx(100 / 3)
    assert scores.f1 == pytest.approx(50)


@pytest.mark.parametrize(
    ("prediction", "matches"),
    [
        (" Portwick \nQuestion: Who?", True),
        ("Portwick\r\nHexton", True),
        ("Hexton\nPortwick", False),
        ("\nPortwick", False),
    ],
)
def test_a_prediction_ends_at_its_first_newline(prediction: str, matches: bool) -> None:
    assert score([prediction], [QUESTION]) == ReadingScores(1, 100.0 * matches, 100.0 * matches)


def test_unequal_lengths_and_nothing_at_all_are_refused() -> None:
    with pytest.raises(ValueError, match="got 2 for 1 questions"):
        score(["one", "two"], [QUESTION])
    with pytest.raises(ValueError, match="got 0 for 1 questions"):
        score([], [QUESTION])
    with pytest.raises(ValueError, match="no questions"):
        score([], [])


def test_only_questions_that_differ_count() -> None:
    result = compare_paired([1, 1, 0, 0, 1], [1, 0, 0, 1, 0])
    assert (result.only_first, result.only_second, result.p) == (2, 1, 1.0)
    with pytest.raises(ValueError, match="1 and 2 answers cannot be paired"):
        compare_paired([1], [1, 0])


@pytest.mark.parametrize(
    ("a", "b", "p"), [(0, 0, 1.0), (0, 5, 2 / 32), (1, 5, 14 / 64), (8, 8, 1.0), (600, 700, 0.00604)]
)
def test_the_sign_test_is_the_binomials_two_tails(a: int, b: int, p: float) -> None:
    assert sign_test(a, b) == sign_test(b, a) == pytest.approx(p, rel=1e-2)
