"""Retrieval, routing and document KV together: the experiment of Multi-Model RAG-DCache."""

from __future__ import annotations

import typer

from benchmarks.rag.experiment import run
from benchmarks.rag.settings import RagSettings
from benchmarks.script import start
from quire.cli.options import Json, Plot, options
from quire.config import EngineConfig


@options(default_model="quire-mini", without=("model",))
def main(engine: EngineConfig, settings: RagSettings, json: Json = None, plot: Plot = None) -> None:
    """Questions about documents, routed to two models at once, by the KV on disk: none, empty directory, all."""
    if not run(engine, settings, json, plot):
        raise typer.Exit(1)  # the notes say why


if __name__ == "__main__":
    start(main)
