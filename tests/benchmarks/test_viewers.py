"""The benchmark of viewers on the smallest model: all snapshots of all viewers are counted."""

from __future__ import annotations

import pytest

from benchmarks.viewers import ViewerSettings, measure_viewers
from quire.config import EngineConfig


@pytest.mark.slow
def test_idle_and_busy_servers_are_measured() -> None:
    config = EngineConfig("random:tiny", num_threads=1, max_model_len=1024)
    for window in (0.6, 3.0, 15.0):  # a slow machine sends fewer snapshots
        idle, busy = measure_viewers(config, ViewerSettings(viewers=2, streams=1, window=window, runs=1))
        if idle["events"]["median"] > 0 < busy["events"]["median"]:
            break
    assert (idle["case"], busy["case"]) == ("idle", "busy")
    assert idle["bytes"]["median"] > 1000 * idle["events"]["median"] > 0
    assert 0 < busy["events"]["median"] < 6
