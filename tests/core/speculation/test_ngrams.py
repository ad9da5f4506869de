"""Tokens that followed the longest earlier occurrence of a text's last tokens."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from quire.core.speculation.ngrams import LONGEST_MATCH, NgramIndex


def longest_match(text: list[int]) -> int:
    """The length of the longest end of a text that occurs before."""
    lengths = range(min(len(text) - 1, LONGEST_MATCH), 1, -1)
    return next((n for n in lengths if any(text[at : at + n] == text[-n:] for at in range(len(text) - n))), 0)


@given(st.lists(st.integers(0, 3), max_size=24), st.integers(1, 8))
def test_a_growing_text_is_continued_after_its_longest_match(tokens: list[int], most: int) -> None:
    index, places = NgramIndex(), 8
    for size in range(len(tokens) + 1):
        text = tokens[:size]
        found, length = index.propose(text, most)
        pairs = sum(text[at : at + 2] == text[-2:] for at in range(size - 2))
        assert length == longest_match(text) or pairs > places, "only the last places are compared"
        if not length:
            assert found == []
            continue
        assert len(found) == most
        ends = [at for at in range(length, size) if text[at - length : at] == text[-length:]]
        assert any((text + found)[at : at + most] == found for at in ends)


def test_a_text_that_repeats_itself_goes_on_so() -> None:
    assert NgramIndex().propose([7, 1, 2, 1, 2], 5) == ([1, 2, 1, 2, 1], 2)
    assert NgramIndex().propose([5, 5, 5], 3)[0] == [5, 5, 5]


def test_the_longer_match_precedes_the_later_one() -> None:
    text = [1, 2, 3, 4, 9, 2, 3, 8, 1, 2, 3]
    assert NgramIndex().propose(text, 2) == ([4, 9], 3)
