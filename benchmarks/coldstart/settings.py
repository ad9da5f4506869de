"""Options of cold starts: loading modes, bandwidths, runs."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from quire.bench.bench_settings import refuse_repeats
from quire.settings import Settings, names, parse_size, setting


def _bandwidths(text: str) -> tuple[float, ...]:
    """Read text such as 125MB,none; none is infinite."""
    return tuple(math.inf if name == "none" else float(parse_size(name)) for name in names(text))


@dataclass(frozen=True)
class ColdStartSettings(Settings):
    """Options of cold starts."""

    known_modes: ClassVar[tuple[str, ...]] = ("at-once", "overlap", "staged")
    pack: Path | None = setting(None, "The model in stages, as quire stages pack writes it; for the mode staged.")
    modes: tuple[str, ...] = setting(
        ",".join(known_modes),
        "Loading modes: at-once (all layers before the first token), overlap (the first step beside loading), staged "
        "(the pack).",
        read=names,
        metavar="MODE[,MODE...]",
    )
    storage_bandwidth: tuple[float, ...] = setting(
        "none",
        "Limit of read bandwidth, such as 125MB; none is no limit. Several are measured in turns.",
        read=_bandwidths,
        metavar="SIZE[,SIZE...]",
        at_least=1,
    )
    prompt_len: int = setting(32, "Tokens of the first prompt.", at_least=1)
    runs: int = setting(3, "Cold starts of each kind, in turns.", at_least=1)

    def __post_init__(self) -> None:
        super().__post_init__()
        refuse_repeats(self, "modes")
        refuse_repeats(self, "storage_bandwidth")
        if unknown := [mode for mode in self.modes if mode not in self.known_modes]:
            raise ValueError(f"modes={unknown[0]} is none of {', '.join(self.known_modes)}")
