"""The time of a process's start up to its first answer, by phase."""

from __future__ import annotations

import os
import time
from pathlib import Path


class StartupTimer:
    """A stopwatch that starts with the process and measures consecutive phases."""

    def __init__(self) -> None:
        self._phases: dict[str, float] = {}
        self._last = time.monotonic() - process_age()

    def end(self, phase: str) -> None:
        """End a phase, which began at the end of the phase before."""
        now = time.monotonic()
        self._phases[phase] = now - self._last
        self._last = now

    def add(self, phase: str, seconds: float) -> None:
        """Add a phase of known length."""
        self._phases[phase] = seconds

    def __str__(self) -> str:
        return "cold start: " + ", ".join(f"{phase} {seconds:.2f} s" for phase, seconds in self._phases.items())


def process_age() -> float:
    """Return the seconds since this process started, to a hundredth; 0 if unknown."""
    try:
        fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
        ticks = int(fields[19])  # the 22nd field: starttime
        return max(0.0, time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK"))
    except (OSError, ValueError, IndexError, AttributeError):
        return 0.0
