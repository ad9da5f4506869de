"""Prompts as words have the requested length by the server's count, and equal prefixes for equal token ids."""

from __future__ import annotations

from quire.bench.serving.words import WORDS, WordLength, as_words


def test_a_server_s_count_of_two_prompts_says_what_a_word_and_the_frame_cost() -> None:
    length = WordLength.measured((32, 32 * 2 + 5), (96, 96 * 2 + 5))
    assert length == WordLength(2.0, 5.0)
    assert length.words_for(105) == 50
    assert length.words_for(1) == 1


def test_a_count_that_makes_no_sense_is_not_believed() -> None:
    assert WordLength.measured((32, 100), (96, 100)) == WordLength()
    assert WordLength.measured((32, 10), (96, 74)).num_frame_tokens == 0


def test_prompts_share_as_many_words_as_they_shared_tokens() -> None:
    first, second = as_words([1, 2, 3, 4], 4).split(), as_words([1, 2, 8, 9], 4).split()
    assert first[:2] == second[:2]
    assert first[2:] != second[2:]
    assert len(as_words([1, 2], 7).split()) == 7


def test_words_are_many_and_different() -> None:
    assert len(set(WORDS)) == len(WORDS) > 50
