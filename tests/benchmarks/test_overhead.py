"""The overhead benchmark separates and sums the costs of decisions correctly, without asserting timings."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks.overhead import measure_overhead
from quire.core.scheduler import Scheduler
from quire.runner.batch import InputBatch


def test_the_overhead_is_made_of_its_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    now_ms = 0

    def takes(cost_ms: Callable[[Any], int], usual: Callable[..., Any]) -> Callable[..., Any]:
        def slow(self: Any, *arguments: Any) -> Any:
            nonlocal now_ms
            now_ms += cost_ms(self)
            return usual(self, *arguments)

        return slow

    clock = SimpleNamespace(perf_counter=lambda: now_ms / 1e3)
    monkeypatch.setattr("benchmarks.overhead.time", clock)
    monkeypatch.setattr("benchmarks.null_runner.time", clock)
    monkeypatch.setattr(
        Scheduler, "schedule", takes(lambda scheduler: len(scheduler.queue.requests), Scheduler.schedule)
    )
    monkeypatch.setattr(InputBatch, "build", takes(lambda _: 3, InputBatch.build))
    monkeypatch.setattr(Scheduler, "update", takes(lambda _: 5, Scheduler.update))
    assert measure_overhead(num_requests=8, context=64, steps=20) == pytest.approx({
        "schedule_ms": 8, "build_ms": 3, "update_ms": 5, "step_ms": 16, "us_per_request": 2000, "worst_step_ms": 16,
        "fixed_ms": 1 + 3 + 5,
    })  # fmt: skip
