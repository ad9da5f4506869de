"""The benchmark of viewers on the smallest model: all snapshots of all viewers are counted."""

from __future__ import annotations

from benchmarks.viewers import ViewerSettings, measure_viewers
from quire.config import EngineConfig


def test_idle_and_busy_servers_are_measured() -> None:
    config = EngineConfig("random:tiny", num_threads=1, max_model_len=1024)
    idle, busy = measure_viewers(config, ViewerSettings(viewers=2, streams=1, window=0.6, runs=1))
    assert (idle["case"], busy["case"]) == ("idle", "busy")
    assert idle["bytes"]["median"] > 1000
    assert 0 < busy["events"]["median"] < 6
