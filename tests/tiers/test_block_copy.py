"""Neighbouring blocks are found and copied together."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from quire.tiers.swap_space import runs


def test_runs_are_where_all_lists_go_up_by_one() -> None:
    assert list(runs([])) == []
    assert list(runs([7])) == [slice(0, 1)]
    assert list(runs([3, 4, 5, 9, 10, 8])) == [slice(0, 3), slice(3, 5), slice(5, 6)]
    assert list(runs([3, 4, 5, 6], [0, 1, 3, 4])) == [slice(0, 2), slice(2, 4)]
    assert list(runs([3, 4], [1, 0])) == [slice(0, 1), slice(1, 2)]


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), max_size=12))
def test_runs_cover_everything_once_and_cannot_be_longer(pairs: list[tuple[int, int]]) -> None:
    lists = [a for a, _ in pairs], [b for _, b in pairs]
    found = list(runs(*lists))
    assert [i for run in found for i in range(run.start, run.stop)] == list(range(len(pairs)))
    breaks = {run.start for run in found} - {0}
    assert breaks == {i for i in range(1, len(pairs)) if any(numbers[i] != numbers[i - 1] + 1 for numbers in lists)}
