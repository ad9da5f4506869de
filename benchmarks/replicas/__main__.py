"""Fleets of replicas behind the production router, simulated."""

from __future__ import annotations

from benchmarks.replicas.study import ReplicaSettings, run
from benchmarks.script import start
from quire.cli.options import Json, Plot, options


@options()
def main(settings: ReplicaSettings, json: Json = None, plot: Plot = None) -> None:
    """Goodput and cost of a fleet against its size, by routing policy."""
    run(settings, json, plot)


if __name__ == "__main__":
    start(main)
