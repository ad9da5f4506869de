"""Plot first stages: bytes against quality."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from quire.progressive.frontier import FirstStage, frontier


def draw_frontier(axes: Any, stages: Sequence[FirstStage], num_bytes: int, is_exact_match: bool) -> None:
    """Draw a dot per stage, coloured by what it leaves out, and a line through the best for their bytes."""

    def at(chosen: Sequence[FirstStage]) -> tuple[list[float], list[float]]:
        values = [100 * (1 - stage.loss) if is_exact_match else stage.loss for stage in chosen]
        return [100 * stage.num_bytes / num_bytes for stage in chosen], values

    best = frontier(stages)
    axes.step(*at(best), where="post", color="0.6", lw=1.5, zorder=1, label="best for its bytes")
    names = {"layers": "fewer layers, plain", "mantissa bits": "fewer bits", "both": "both"}
    for number, (kind, label) in enumerate(names.items()):
        chosen = [stage for stage in stages if stage.kind == kind]
        if chosen:
            axes.plot(*at(chosen), "o", ms=4, color=f"C{number}", label=label)
    for stage, x, y in zip(best, *at(best), strict=True):
        out = "" if stage.block_out is None else f" -{stage.block_out[1] - stage.block_out[0]}"
        bits = "plain" if stage.mantissa_bits is None else str(stage.mantissa_bits)
        axes.annotate(bits + out, (x, y), (4, 4), textcoords="offset points", fontsize=8)
    axes.set_xlim(0, 104)
    axes.set_xlabel("bytes of the stage, % of the plain files")
    axes.set_ylabel("exact match, %" if is_exact_match else "distance of the last hidden state")
    axes.set_title("Bytes and quality (beside a dot: mantissa bits, layers out)")
