"""How many threads tensor work may take, and how they wait for each other. Imports no torch."""

from __future__ import annotations

import math
import os
from pathlib import Path

#: Turns of libgomp's waiting loop, some 0.2 ms; by default 300,000. Enough to meet the next product of a step awake.
_SPIN_COUNT = 10_000
_CPUS = Path("/sys/devices/system/cpu")
_CGROUP = Path("/sys/fs/cgroup")


def num_cores() -> int:
    """Cores that this process may use, at least one: by affinity, each once however many threads it runs, and no more
    than the control group's quota (of 1.5 cores, two)."""
    cpus = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else range(os.cpu_count() or 1)
    cores = {_core_of(cpu) for cpu in cpus}
    return max(1, math.ceil(min(len(cores), _quota())))


def default_num_threads() -> int:
    """Threads for tensor work where nobody said: what OMP_NUM_THREADS says, else one a core."""
    try:
        return max(1, int(os.environ["OMP_NUM_THREADS"]))
    except (KeyError, ValueError):
        return num_cores()


def spin_briefly() -> None:
    """Have threads that wait for each other go to sleep soon, unless the environment says how they are to wait.

    By default they spin for milliseconds, and where other processes want the cores, each waits with its core for one
    that has none: a step took 3 to 20 times as long. Must come before torch, since libgomp reads this as it is loaded.
    """
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", str(_SPIN_COUNT))


def _core_of(cpu: int) -> str:
    """The CPUs that share a core with this one, as text."""
    try:
        return (_CPUS / f"cpu{cpu}/topology/thread_siblings_list").read_text()
    except OSError:
        return str(cpu)


def _quota() -> float:
    """Cores' worth of time that the control group grants; infinite where it sets no limit."""
    try:
        quota, period = (_CGROUP / "cpu.max").read_text().split()
    except OSError:  # version 1
        try:
            quota, period = ((_CGROUP / "cpu" / f"cpu.cfs_{name}_us").read_text() for name in ("quota", "period"))
        except OSError:
            return math.inf
    try:
        return int(quota) / int(period) if int(quota) > 0 else math.inf
    except ValueError:  # "max"
        return math.inf
