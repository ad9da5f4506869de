"""Options of `quire bench` and `quire calibrate`. The command line reads this file before it answers `--help`."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from quire.settings import Settings, integer_range, integers, names, numbers, parse_size, setting

SLO_NAMES = ("ttft", "tpot", "e2el")


def parse_goodput(text: str) -> dict[str, float]:
    """Read limits in milliseconds above 0, such as ttft:500,tpot:100, as seconds by name, or raise ValueError."""
    limits = {}
    for part in names(text):
        name, _, value = part.partition(":")
        try:
            limit = float(value) / 1e3
        except ValueError:
            limit = 0.0
        if name not in SLO_NAMES or not limit > 0:
            known = ", ".join(SLO_NAMES)
            raise ValueError(f"{text!r}: expected limits in ms such as ttft:500,tpot:100, of {known}")
        limits[name] = limit
    return limits


def runs(default: int = 3) -> Any:
    """The setting of the number of repetitions."""
    return setting(default, "Repetitions; each shifts the token ids.", at_least=1)


def refuse_together(settings: Settings, name: str, *others: str) -> None:
    """Raise ValueError if a setting and one of the others are both given."""
    clash = settings.changed(*others)
    if settings.changed(name) and clash:
        raise ValueError(f"--{name} and --{clash[0].replace('_', '-')} exclude each other; give one of them")


def refuse_repeats(settings: Settings, name: str) -> None:
    """Raise ValueError if a list is empty or has a value twice."""
    given = getattr(settings, name)
    if not given or len(set(given)) < len(given):
        raise ValueError(f"{name}={','.join(map(str, given))} names something twice, or nothing")


@dataclass(frozen=True)
class LatencySettings(Settings):
    """`quire bench latency`."""

    input_len: int = setting(128, "Tokens per prompt.", at_least=1)
    output_len: int = setting(128, "Tokens per answer.", at_least=1)
    batch_size: tuple[int, ...] = setting("1", "Numbers of concurrent requests.", read=integers, at_least=1)
    runs: int = runs()


@dataclass(frozen=True)
class ThroughputSettings(Settings):
    """`quire bench throughput`."""

    workload: tuple[Path, ...] = setting((), "Workload files; several in turn.")
    trace: Path | None = setting(None, "Lengths from a trace CSV (Azure's format).")
    num_requests: int = setting(32, "Requests to make, or to take from a trace.", at_least=1)
    input_len: tuple[int, int] = setting("64-512", "Prompt lengths, drawn evenly.", read=integer_range)
    output_len: tuple[int, int] = setting("32-128", "Answer lengths, drawn evenly.", read=integer_range)
    shared_prefix: int = setting(0, "Common first tokens of all prompts.", at_least=0)
    arrivals: bool = setting(False, "Keep to arrival_s; by default all requests come at once.", is_flag=True)
    compare_prefix_caching: bool = setting(False, "Run each engine with prefix caching and without.", is_flag=True)
    save_workload: Path | None = setting(None, "Write the generated workload.")
    runs: int = runs()

    def __post_init__(self) -> None:
        super().__post_init__()
        refuse_together(self, "workload", "trace")


def paths(text: str) -> tuple[Path, ...]:
    """Read names with commas between them."""
    return tuple(Path(name) for name in names(text))


@dataclass(frozen=True)
class ColdStartSettings(Settings):
    """`quire bench coldstart`."""

    known_modes: ClassVar[tuple[str, ...]] = ("at-once", "overlap", "staged")
    pack: tuple[Path, ...] = setting(
        (),
        "The model in stages, as quire stages pack writes it; for the mode staged. Several are measured in turns.",
        read=paths,
        metavar="DIR[,DIR...]",
    )
    modes: tuple[str, ...] = setting(
        ",".join(known_modes),
        "Loading modes: at-once (all layers before the first token), overlap (the first step beside loading), staged "
        "(each pack; the report has its directory's name).",
        read=names,
        metavar="MODE[,MODE...]",
    )
    storage_bandwidth: tuple[float, ...] = setting(
        "none",
        "Limit of read bandwidth, such as 125MB; none is no limit. Several are measured in turns.",
        read=lambda text: tuple(math.inf if name == "none" else float(parse_size(name)) for name in names(text)),
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


@dataclass(frozen=True)
class ExactSettings(Settings):
    """`quire bench exact`."""

    known_ways: ClassVar[tuple[str, ...]] = (
        "batch", "chunks", "mixed", "device", "host", "disk", "swap", "recompute", "resume", "drafts", "threads",
        "ranks", "stages",
    )  # fmt: skip
    ways: tuple[str, ...] = setting(
        (),
        f"Ways to serve the requests, of {', '.join(known_ways)}; by default all, and stages with a pack.",
        read=names,
        metavar="WAY[,WAY...]",
    )
    num_prompts: int = setting(12, "Random prompts; some share their beginning.", at_least=2)
    prompt_len: tuple[int, int] = setting("45-280", "Prompt lengths, drawn evenly.", read=integer_range)
    output_len: int = setting(24, "Tokens per answer.", at_least=2)
    pack: Path | None = setting(
        None, "The same model in stages, as quire stages pack writes it: compares its last stage."
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if unknown := [way for way in self.ways if way not in self.known_ways]:
            raise ValueError(f"ways={unknown[0]} is none of {', '.join(self.known_ways)}")
        if "stages" in self.ways and self.pack is None:
            raise ValueError("ways=stages needs pack")


@dataclass(frozen=True)
class SpeculationSettings(Settings):
    """`quire bench speculation`."""

    prompts: Path | None = setting(
        None,
        'File with a prompt in each line, {"prompt": "...", "schema": {...}}, the schema for JSON answers; by default '
        "random prompts and scripted drafts.",
    )
    acceptance: tuple[float, ...] = setting(
        "0,0.3,0.5,0.8,0.9,1", "Rates at which scripted draft tokens are right.", read=numbers, metavar="RATE[,RATE...]"
    )
    verify: tuple[int, ...] = setting("1,2,4,8", "Numbers of wrong drafts to verify in each step.", read=integers)
    num_prompts: int = setting(4, "Prompts.", at_least=1)
    prompt_len: int = setting(128, "Tokens of a random prompt.", at_least=1)
    output_len: int = setting(64, "Maximum tokens of an answer.", at_least=2)
    runs: int = setting(3, "Turns of each way.", at_least=1)

    def __post_init__(self) -> None:
        super().__post_init__()
        if any(not 0 <= rate <= 1 for rate in self.acceptance):
            raise ValueError(f"acceptance={self.acceptance} has a rate that is not between 0 and 1")


@dataclass(frozen=True)
class CalibrateSettings(Settings):
    """`quire calibrate`."""

    lengths: tuple[int, ...] | None = setting(
        None, "Sequence lengths; by default 64, 96, 128, 192 and so on to max_model_len.", read=integers
    )
    repeats: int = setting(3, "Repetitions of each measurement, in turns.", at_least=1)
