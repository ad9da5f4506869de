"""Cold starts against transformers, quality over time, and the cost of loading for running streams."""

from __future__ import annotations

from benchmarks.coldstart.study import ComparisonSettings, run
from benchmarks.script import start
from quire.cli.options import Json, Plot, options
from quire.config import EngineConfig


@options(without=("storage_bandwidth", "load_overlap"))
def main(settings: ComparisonSettings, engine: EngineConfig, json: Json = None, plot: Plot = None) -> None:
    """From process start to the first token and to the full model: transformers, at once, overlapped, in stages."""
    run(engine, settings, json, plot)


if __name__ == "__main__":
    start(main)
