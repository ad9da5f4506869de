"""Recovery policies on the real engine: the experiment of the CPS paper."""

from __future__ import annotations

import typer

from benchmarks.recovery.experiment import run
from benchmarks.recovery.settings import RecoverySettings
from benchmarks.script import start
from quire.cli.options import Json, Plot, options
from quire.config import EngineConfig


@options()
def main(engine: EngineConfig, settings: RecoverySettings, json: Json = None, plot: Plot = None) -> None:
    """Recovery policies on the same requests, in a pool that is too small: 512 blocks, no watermark, float32."""
    if not run(engine, settings, json, plot):
        raise typer.Exit(1)  # the notes say why


if __name__ == "__main__":
    start(main)
