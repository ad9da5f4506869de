"""`quire simulate`: what a machine would do, without the machine."""

from __future__ import annotations

from pathlib import Path

import typer

from quire.bench.recovery.settings import SimulateSettings
from quire.cli.options import Json, Plot, options

EXAMPLE = "Example: quire simulate --lengths short-long --policies recompute,swap,threshold:1024,cost --seeds 20"

_BESIDE_RECORDING = ("recording", "profile", "json")


@options()
def simulate(ctx: typer.Context, settings: SimulateSettings, json: Json = None, plot: Plot = None) -> None:
    """Recovery policies, documents' KV on disk and not, or fleets of replicas, compared on a virtual clock: the real
    scheduler against a machine's costs."""
    if settings.recording is not None:
        _play_again(ctx, settings.recording, json)
        return
    if settings.replicas is not None:
        from quire.bench.replicas import run as run_replicas

        run_replicas(settings, json, plot)
        return
    from quire.bench.recovery.simulate import run

    run(settings, json, plot)


def _play_again(ctx: typer.Context, recording: Path, json: Path | None) -> None:
    from quire.bench.recovery.simulate_recording import run

    given = {name: value for name, value in ctx.params.items() if value not in (None, [])}
    others = [f"--{name.replace('_', '-')}" for name in given if name not in _BESIDE_RECORDING]
    if others:
        raise ValueError(
            "--recording is one run, with requests, policy and limits of its own; beside it go --profile and --json. "
            f"Leave out {', '.join(others)}"
        )
    if not run(recording, given.get("profile"), json):
        raise typer.Exit(1)  # the notes have said which step differs
