"""SLO routing over two models, simulated."""

from __future__ import annotations

from benchmarks.script import start
from benchmarks.slo.study import SloSettings, run
from quire.cli.options import Json, Plot, options


@options()
def main(settings: SloSettings, json: Json = None, plot: Plot = None) -> None:
    """Routing over two models under a rising load: requests that keep their SLO, and the models that served them."""
    run(settings, json, plot)


if __name__ == "__main__":
    start(main)
