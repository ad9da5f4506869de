"""Options of the recovery benchmark."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from quire.bench.bench_settings import refuse_repeats, runs
from quire.settings import Settings, integers, numbers, setting
from quire.simulate.simulate_settings import policies_setting


def _alternation(text: str) -> tuple[float, ...]:
    given = numbers(text)
    if len(given) != 2:
        raise ValueError(f"{text!r}: expected a factor and seconds, such as 10,5")
    return given


def _slow_phase(text: str) -> tuple[int, ...]:
    given = integers(text)
    if len(given) > 2 or list(given) != sorted(set(given)):
        raise ValueError(f"{text!r}: expected one number of preemptions, or two that grow, such as 100,200")
    return given


@dataclass(frozen=True)
class RecoverySettings(Settings):
    """Options of the recovery benchmark."""

    policies: tuple[str, ...] = policies_setting()
    mix: str = setting(
        "mixed", "Lengths; of shared, half of the requests begin with one prefix.", metavar="short|long|mixed|shared"
    )
    num_requests: int = setting(200, "Requests, all at once.", at_least=1)
    crossing_at: int | None = setting(
        None, "Length at which the modes cross; sets --swap-bandwidth.", metavar="TOKENS", at_least=1
    )
    alternate_link: tuple[float, float] | None = setting(
        None,
        "Slow the link down by FACTOR, and speed it up again, every SECONDS.",
        read=_alternation,
        metavar="FACTOR,SECONDS",
        above=0,
    )
    slow_link_at: tuple[int, ...] | None = setting(
        None,
        "Preemption from which the link is ten times slower, and optionally until which.",
        read=_slow_phase,
        metavar="N[,N]",
        at_least=0,
    )
    profile: Path | None = setting(None, "Costs that quire calibrate wrote; by default measured first.")
    forecast: bool = setting(False, "Simulate the same requests from the measured costs, and compare.", is_flag=True)
    redraw: bool = setting(False, "Draw other lengths for each run.", is_flag=True)
    processor_time: bool = setting(
        False, "Count the engine's seconds on the processor, for a busy machine and a single thread.", is_flag=True
    )
    repeats: int = setting(3, "Repetitions of the cost measurements.", at_least=1)
    seed: int = setting(0, "Seed of lengths and prompts.", name="load_seed")
    runs: int = runs()

    def __post_init__(self) -> None:
        super().__post_init__()
        refuse_repeats(self, "policies")
        if self.forecast and (self.alternate_link or self.slow_link_at):
            raise ValueError(
                "--forecast simulates a link that stays as it is; leave out --alternate-link and --slow-link-at"
            )
