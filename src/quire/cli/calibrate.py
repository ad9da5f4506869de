"""`quire calibrate`: what swapping and computing again cost here, and where they cross."""

from __future__ import annotations

from quire.bench.bench_settings import CalibrateSettings
from quire.cli.options import Json, Plot, options
from quire.config import EngineConfig

EXAMPLE = "Example: quire calibrate --model random:tiny --lengths 64,128,256 --plot crossing.png"


@options()
def calibrate(engine: EngineConfig, settings: CalibrateSettings, json: Json = None, plot: Plot = None) -> None:
    """Measure both modes back from a preemption, swapping and computing again, and find where they cross.

    quire simulate reads the figures of --json.
    """
    from quire.bench.calibrate import run

    run(engine, settings, json, plot)
