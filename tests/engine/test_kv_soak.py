"""A short KV soak; `python -m benchmarks.soak.kv_soak` is the long one."""

from __future__ import annotations

import pytest

from benchmarks.soak.kv_soak import soak


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_two_engines_on_one_directory_are_killed_again_and_again() -> None:
    report = soak(seconds=20)
    assert report.problems == []
    assert report.num_kills > 0
    assert report.num_documents > 5
    assert report.cached_blocks["disk"] > 0
