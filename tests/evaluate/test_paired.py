"""A paired comparison counts questions that only one side answers, and tests them against chance."""

from __future__ import annotations

import pytest

from quire.evaluate.paired import compare_paired, sign_test


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
