"""How many threads this process may use: cores by affinity, a container's quota counted in. Imports no torch."""

from __future__ import annotations

import math
import os
from pathlib import Path


def num_cores() -> int:
    """Cores that this process may use, at least one; of a quota of 1.5 cores, two."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, math.ceil(min(cores, _quota())))


def default_num_threads() -> int:
    """Threads for tensor work where nobody said: what OMP_NUM_THREADS says, else one a core."""
    try:
        return max(1, int(os.environ["OMP_NUM_THREADS"]))
    except (KeyError, ValueError):
        return num_cores()


def _quota() -> float:
    """Cores' worth of time that the control group grants, infinite where it sets no limit."""
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
        return int(quota) / int(period)
    except (OSError, ValueError):  # no such file, or "max"
        pass
    try:
        folder = Path("/sys/fs/cgroup/cpu")
        quota_us = int((folder / "cpu.cfs_quota_us").read_text())
        return quota_us / int((folder / "cpu.cfs_period_us").read_text()) if quota_us > 0 else math.inf
    except (OSError, ValueError):
        return math.inf
