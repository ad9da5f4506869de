"""`quire simulate`: the real scheduler on a virtual clock, against a machine's costs."""

from __future__ import annotations

from quire.cli.options import Json, Plot, options
from quire.simulate.simulate_settings import SimulateSettings

EXAMPLE = "Example: quire simulate --lengths short-long --policies recompute,swap,threshold:1024,cost --seeds 20"


@options()
def simulate(settings: SimulateSettings, json: Json = None, plot: Plot = None) -> None:
    """Compare recovery policies, or document KV with and without a disk, on a virtual clock."""
    from quire.simulate.study import run

    run(settings, json, plot)
