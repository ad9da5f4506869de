"""Chunks fit every tokenizer, cover the text, overlap, and end at natural borders."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quire.rag.chunks import cut
from quire.rag.embedder import TokenCounter, hashing_spans

WORDS = TokenCounter(hashing_spans)
LETTERS = TokenCounter(lambda text: [(i, i + 1) for i in range(len(text))], num_special=2)


@settings(max_examples=40, deadline=None)
@given(st.text(st.sampled_from("ab. \n"), max_size=120), st.integers(6, 20), st.data())
def test_chunks_fit_cover_and_move_on(text: str, limit: int, data: st.DataObject) -> None:
    overlap = data.draw(st.integers(0, limit // 2))
    counters = data.draw(st.sampled_from([[WORDS], [LETTERS], [WORDS, LETTERS]]))
    chunks = cut(text, counters, limit, overlap)
    covered: set[int] = set()
    for chunk in chunks:
        piece = text[chunk.start : chunk.end]
        counts = [len(counter.spans(piece)) + counter.num_special for counter in counters]
        assert max(counts) == chunk.num_tokens <= limit
        assert piece == piece.strip() != ""
        covered |= set(range(chunk.start, chunk.end))
    assert {i for i, sign in enumerate(text) if not sign.isspace()} <= covered
    starts, ends = [chunk.start for chunk in chunks], [chunk.end for chunk in chunks]
    assert starts == sorted(set(starts))
    assert ends == sorted(set(ends))


def test_an_overlap_alone_is_no_chunk() -> None:
    assert [chunk.end for chunk in cut("b a \na.\n", [LETTERS], 7, 3)] == [3, 7]


def test_chunks_end_and_begin_with_sentences() -> None:
    text = "One two three. Four five six seven. Eight nine ten eleven. Twelve."
    chunks = [text[chunk.start : chunk.end] for chunk in cut(text, [WORDS], 11, 5)]
    assert chunks == [
        "One two three. Four five six seven.",
        "Four five six seven. Eight nine ten eleven.",
        "Eight nine ten eleven. Twelve.",
    ]


def test_a_paragraph_is_the_better_end_and_no_overlap_means_none() -> None:
    text = "Some words here.\n\nMore words. And these ones"
    chunks = cut(text, [WORDS], 8, 0)
    assert [text[chunk.start : chunk.end] for chunk in chunks] == ["Some words here.", "More words. And these ones"]


def test_a_word_without_end_is_cut_and_an_overlap_of_all_is_refused() -> None:
    assert [chunk.num_tokens for chunk in cut("a" * 20, [LETTERS], 8, 0)] == [8, 8, 8, 4]
    with pytest.raises(ValueError, match="at most half"):
        cut("text", [WORDS], 8, 5)
