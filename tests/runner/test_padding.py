"""Batches are padded to few sizes without a visible effect."""

from __future__ import annotations

from quire.runner.model_runner import padded_rows


def test_sizes_are_few_and_little_is_padded():
    sizes = [padded_rows(n) for n in range(1, 8193)]
    assert all(0 <= size - n <= n / 8 for n, size in enumerate(sizes, 1))
    assert all(padded_rows(size) == size for size in sizes)
    assert len(set(sizes)) == 16 + 8 * 9
    assert padded_rows(16) == 16
    assert padded_rows(512) == 512
