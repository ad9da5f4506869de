"""Load lines report changes since the last line, and are omitted without any."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace

import pytest

from quire.server.lifecycle import LoadLog
from quire.server.metrics import Metrics
from server.test_metrics import STATS

IDLE = replace(
    STATS, num_running=0, num_waiting=0, num_used_blocks=0, num_sampled_tokens=0, num_prompt_tokens=0,
    prefix_queries=0, prefix_hits=0, preemptions=0, token_gaps=[],
)  # fmt: skip


def test_a_line_has_throughput_queue_kv_use_and_hit_rate_since_the_last() -> None:
    now, metrics = 100.0, Metrics(["busy", "idle"])
    log = LoadLog(metrics, lambda: now)
    metrics.observe_stats("busy", STATS)
    now += 4
    assert log.take() == [
        {
            "model": "busy",
            "running": 2,
            "waiting": 3,
            "prompt_tok_s": 1.8,
            "generation_tok_s": 0.5,
            "kv_usage": "40.0%",
            "prefix_hit_rate": "75.0%",
            "preemptions": 1,
        }
    ]
    metrics.observe_stats("busy", replace(IDLE, num_sampled_tokens=8))
    now += 2
    (line,) = log.take()
    assert (line["prompt_tok_s"], line["generation_tok_s"], line["running"]) == (0, 4.0, 0)
    assert "prefix_hit_rate" not in line


def test_without_load_there_is_no_line() -> None:
    metrics = Metrics(["m"])
    log = LoadLog(metrics)
    assert log.take() == []
    metrics.observe_stats("m", STATS)
    metrics.observe_stats("m", IDLE)
    assert len(log.take()) == 1
    assert log.take() == []


def test_requests_that_stand_still_are_load_too() -> None:
    metrics = Metrics(["m"])
    log = LoadLog(metrics)
    metrics.observe_stats("m", STATS)
    log.take()
    (line,) = log.take()
    assert (line["waiting"], line["generation_tok_s"]) == (3, 0)


def test_lines_are_written_until_stopped(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="quire.load")

    async def run() -> None:
        metrics = Metrics(["m"])
        task = asyncio.create_task(LoadLog(metrics).run(0.01))
        metrics.observe_stats("m", STATS)
        while len(caplog.records) < 2:
            await asyncio.sleep(0.01)
        task.cancel()

    asyncio.run(asyncio.wait_for(run(), 30))
    assert caplog.records[0].fields["model"] == "m"  # type: ignore[attr-defined]
