"""A short soak; `python -m benchmarks.soak.soak` is the long one."""

from __future__ import annotations

from benchmarks.soak.soak import soak


def test_mixed_requests_are_all_answered_and_leave_nothing_behind() -> None:
    report = soak(num_requests=120, num_processes=2)
    assert not report.problems, "\n".join(report.problems)
    assert report.outcomes["answered"] + report.outcomes["cancelled"] == 120
    assert report.outcomes["cancelled"] > 0
    assert report.outcomes["malformed"] > 0
    assert report.outcomes["of_agent"] > 5
    assert report.num_preemptions > 0, "the pool is too large to show anything"
