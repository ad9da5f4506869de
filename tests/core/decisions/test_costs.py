"""The shape of a step, with and without its chunks."""

from __future__ import annotations

import pytest

from quire.core.decisions.costs import EMPTY_STEP, StepShape

DECODING = StepShape(num_tokens=3, num_seqs=3, context_decode=900)


@pytest.mark.parametrize(("start", "num_tokens"), [(0, 2), (0, 512), (700, 33)])
def test_a_step_less_a_chunk_is_the_step_before_it_with_one_place_more(start: int, num_tokens: int) -> None:
    found = DECODING.plus_chunk(start, num_tokens).minus_chunk(start, num_tokens)
    assert found == StepShape(num_tokens=3, num_seqs=4, attended=pytest.approx(0.0), context_decode=900)  # type: ignore[arg-type]


def test_a_chunk_of_one_token_is_a_decode_and_looks_back_on_its_context() -> None:
    assert DECODING.minus_chunk(400, 1) == StepShape(num_tokens=2, num_seqs=3, attended=0.0, context_decode=500)


def test_chunks_may_be_taken_out_one_after_the_other() -> None:
    step = DECODING.plus_chunk(0, 64).plus_chunk(64, 32)
    found = step.minus_chunk(64, 32).minus_chunk(300, 1).minus_chunk(0, 64)
    assert found == StepShape(num_tokens=2, num_seqs=5, attended=0.0, context_decode=600)


def test_nothing_falls_below_zero() -> None:
    assert EMPTY_STEP.plus_chunk(0, 8).minus_chunk(100, 20) == StepShape(0, 1, 0.0, 0)
    assert DECODING.minus_chunk(1000, 1).context_decode == 0
