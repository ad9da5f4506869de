"""`quire calibrate`: what swapping and computing again cost here, and where they cross."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from quire.cli.figure_options import Plot
from quire.cli.options import engine_options, integers
from quire.config import EngineConfig

EXAMPLE = "Example: quire calibrate --model random:tiny --lengths 64,128,256 --plot crossing.png"


@engine_options()
def calibrate(
    engine: EngineConfig,
    lengths: Annotated[
        str | None,
        typer.Option(metavar="N[,N...]", help="Tokens; by default 64, 96, 128, 192 and so on to max_model_len."),
    ] = None,
    repeats: Annotated[int, typer.Option(min=1, help="Of every measurement, in turns.")] = 3,
    json: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="Write the figures, as quire simulate reads them.")
    ] = None,
    plot: Plot = None,
) -> None:
    """Measure both modes back from a preemption, swapping and computing again, and find where they cross."""
    from quire.bench.recovery.calibrate import run

    chosen = integers("lengths", lengths) if lengths is not None else None
    run(engine, lengths=chosen, repeats=repeats, json_path=json, plot_path=plot)
