"""What deciding costs. Prints figures; asserts no timings."""

from __future__ import annotations

import pytest

from quire.bench.overhead import measure_overhead


def test_the_overhead_is_made_of_its_parts() -> None:
    figures = measure_overhead(num_requests=8, context=64, steps=20)
    assert set(figures) == {
        "schedule_ms", "build_ms", "update_ms", "step_ms", "us_per_request", "worst_step_ms", "fixed_ms",
    }  # fmt: skip
    assert all(value > 0 for value in figures.values())
    assert figures["us_per_request"] == pytest.approx(1e3 * figures["step_ms"] / 8)


@pytest.mark.slow
def test_the_overhead_at_256_requests_of_2048_tokens(capsys: pytest.CaptureFixture[str]) -> None:
    figures = measure_overhead()
    with capsys.disabled():
        print("\n" + ", ".join(f"{name} {value:.3f}" for name, value in figures.items()))
