"""Run the figures of the PagedAttention paper: `python -m benchmarks.paged_attention --figure 12`."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from benchmarks.paged_attention.figures import FIGURES, PagedAttentionSettings, draw
from benchmarks.script import start
from quire.cli.options import Json, Plot, options


def _numbered(path: Path | None, number: int, settings: PagedAttentionSettings) -> Path | None:
    """The file of one figure: with its number if there are several."""
    return path if path is None or len(settings.figure) == 1 else path.with_stem(f"{path.stem}-{number}")


@options()
def main(settings: PagedAttentionSettings, json: Json = None, plot: Plot = None) -> None:
    """Paged KV against reservations, on the real scheduler and a virtual A100. Several figures write a file each."""
    for number in settings.figure:
        report = FIGURES[number](settings)
        written, picture = (_numbered(path, number, settings) for path in (json, plot))
        report.publish(written, picture, partial(draw, number=number, report=report))


if __name__ == "__main__":
    start(main)
