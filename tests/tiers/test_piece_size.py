"""Pieces start small, grow while reports stay timely, and never delay the link."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quire.tiers.pacing import PIECE_S, PieceSize


def move(num_blocks: int, begin_s: float, block_s: float) -> list[tuple[int, float]]:
    """Return blocks and seconds of a transfer's pieces, for a latency and a time per block."""
    size, pieces = PieceSize(), []
    while num_blocks:
        some = min(num_blocks, size.num_blocks)
        num_blocks -= some
        pieces.append((some, begin_s + some * block_s))
        size.observe(*pieces[-1])
    return pieces


def test_pieces_double_up_to_what_moves_in_time() -> None:
    assert [count for count, _ in move(70, 0.0, 1e-3)] == [1, 2, 4, 8, 16, 20, 19]


def test_a_slow_link_shows_early() -> None:
    counts = [count for count, _ in move(40, 0.0, 11e-3)]
    assert counts[:8] == [1, 1, 1, 1, 2, 2, 2, 2]


def test_a_piece_after_the_link_has_become_slow_is_a_small_one() -> None:
    size = PieceSize()
    for _ in range(6):
        size.observe(size.num_blocks, size.num_blocks * 1e-3)
    assert size.num_blocks == 20
    size.observe(20, 0.2)
    assert size.num_blocks == 2, "the fewest that an eighth may have"


@pytest.mark.parametrize("begin_s", [0.0, 1e-4, 1e-3])
def test_pieces_take_their_time_where_they_begin_quickly(begin_s: float) -> None:
    for block_s in (1e-3, 1e-4, 1e-5):
        for _, seconds in move(20_000, begin_s, block_s)[:-1][12:50]:
            assert 0.8 * PIECE_S <= seconds <= 1.001 * PIECE_S


@pytest.mark.parametrize("begin_s", [5e-3, 20e-3, 100e-3])
@pytest.mark.parametrize("num_blocks", [40, 1500])
def test_a_link_that_takes_long_to_begin_is_not_worn_out_by_small_pieces(begin_s: float, num_blocks: int) -> None:
    assert len(move(num_blocks, begin_s, 1e-5)) <= 3 * math.sqrt(num_blocks)


@given(st.lists(st.floats(0.0, 100.0), max_size=60))
def test_there_is_always_a_piece_and_it_never_more_than_doubles(seconds: list[float]) -> None:
    size = PieceSize()
    for piece_s in seconds:
        before = size.num_blocks
        assert before >= 1
        size.observe(before, piece_s)
        assert size.num_blocks <= 2 * before
