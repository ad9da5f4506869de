"""Targets of each kind of workload, against the best engine or against the machine's limit."""

from __future__ import annotations

from dataclasses import dataclass

#: Of a kind of workload: the figure that counts, its name and unit in a table, its scale there, and whether more is
#: better.
FIGURES = {
    "stream": ("tpot_s", "TPOT ms", 1e3, False),
    "batch": ("out_tok_s", "out tok/s", 1.0, True),
    "prefill": ("ttft_s", "TTFT ms", 1e3, False),
    "shared": ("wall_s", "wall s", 1.0, False),
}


@dataclass(frozen=True)
class SpeedTarget:
    """A target with two alternatives."""

    of_best: float  #: of the best peer's figure: at most this, or at least, where more is better
    of_limit: float | None = (
        None  #: streams: times the weights' bytes over the read bandwidth; else a share of the roof
    )

    def is_kept(self, kind: str, ratio: float | None, of_limit: float | None) -> bool | None:
        """Whether the target is kept; None without any measurement.

        Args:
            ratio: ours over the best engine's.
            of_limit: TPOT over its limit for streams, else the reached share of the roofline.
        """
        beats = reaches = None
        if ratio is not None:
            beats = ratio >= self.of_best if FIGURES[kind][3] else ratio <= self.of_best
        if self.of_limit is not None and of_limit is not None:
            reaches = of_limit <= self.of_limit if kind == "stream" else of_limit >= self.of_limit
        if beats is None and reaches is None:
            return None
        return bool(beats or reaches)

    def describe(self, kind: str) -> str:
        """Such as `≤ 0.88, or ≤ 1.08 × limit`."""
        text = f"{'≥' if FIGURES[kind][3] else '≤'} {self.of_best:.2f}"
        if self.of_limit is None:
            return text
        return text + (
            f", or ≤ {self.of_limit:.2f} × limit" if kind == "stream" else f", or {self.of_limit:.0%} of roof"
        )


TARGETS: dict[str, dict[str, SpeedTarget]] = {
    "bf16": {
        "stream": SpeedTarget(0.88, 1.08),
        "batch": SpeedTarget(1.08, 0.90),
        "prefill": SpeedTarget(0.97, 0.90),
        "shared": SpeedTarget(0.80),
    },
    "int8": {
        "stream": SpeedTarget(0.70, 1.08),
        "batch": SpeedTarget(1.20, 0.85),
        "prefill": SpeedTarget(0.80, 0.90),
        "shared": SpeedTarget(0.80),
    },
    "int4": {"stream": SpeedTarget(0.75)},
}
