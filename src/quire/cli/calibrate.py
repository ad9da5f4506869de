"""`quire calibrate`: what swapping and computing again cost here, and where they cross."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from quire.bench.bench_settings import CalibrateSettings
from quire.cli.options import Plot, check_json, options
from quire.config import EngineConfig

EXAMPLE = "Example: quire calibrate --model random:tiny --lengths 64,128,256 --plot crossing.png"


@options()
def calibrate(
    engine: EngineConfig,
    settings: CalibrateSettings,
    json: Annotated[
        Path | None,
        typer.Option(
            "--json", metavar="FILE", callback=check_json, help="Write the figures, as quire simulate reads them."
        ),
    ] = None,
    plot: Plot = None,
) -> None:
    """Measure both modes back from a preemption, swapping and computing again, and find where they cross."""
    from quire.bench.calibrate import run

    run(engine, settings, json, plot)
