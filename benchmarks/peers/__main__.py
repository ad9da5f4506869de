"""Other engines on the same workloads."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from benchmarks.peers.peers import PeersSettings, run
from benchmarks.script import start
from quire.cli.options import Json, options
from quire.config import EngineConfig


@options()
def main(
    folder: Annotated[Path, typer.Argument(help="Folder with peers.yaml, the baselines' scripts and workloads/.")],
    engine: EngineConfig,
    settings: PeersSettings,
    json: Json = None,
) -> None:
    """Other engines and ours on the same workloads, in turns, against the targets and the machine's limits.

    A baseline's command runs in the folder with --workload FILE... --runs 1 --threads N --label NAME and prints a JSON
    line per workload. Exits with 1 where a target is missed.
    """
    if not run(folder, engine, settings, json):
        raise typer.Exit(1)  # the notes say why


if __name__ == "__main__":
    start(main)
