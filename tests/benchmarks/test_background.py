"""The benchmark of a batch beside live streams on the smallest model: the batch gets on between them."""

from __future__ import annotations

import pytest

from benchmarks.background import BackgroundSettings, measure_background
from quire.config import EngineConfig


@pytest.mark.slow
def test_windows_with_and_without_a_batch_are_measured() -> None:
    config = EngineConfig("random:tiny", num_threads=1, max_model_len=256)
    alone, beside = measure_background(config, BackgroundSettings(requests=2, output_len=8, pause=0.1, runs=1))
    assert (alone["case"], beside["case"]) == ("alone", "with a batch")
    assert alone["lines"]["median"] == 0
    assert beside["lines"]["median"] > 0
