"""The number of the kernels' threads, their cores, and how they wait for each other."""

from __future__ import annotations

import math
import os
import sys
from pathlib import Path

from quire.system.memory import CGROUP, control_groups

#: Iterations of libgomp's waiting loop: 0.2 ms, enough to wait for the next product of a step (default 300,000).
_SPIN_COUNT = 10_000
#: Python's usual 5 ms for which a busy thread may hold the interpreter would stall an engine's small steps.
SWITCH_INTERVAL_S = 0.0005
_CPUS = Path("/sys/devices/system/cpu")
_NODES = Path("/sys/devices/system/node")
_CGROUP = CGROUP
_SERIAL_ELEMENTS = 2**17  # up to this size, one thread is faster than waking another
_num_threads: int | None = None  # set for this process


def num_threads() -> int:
    """Return the number of threads of this process's kernels."""
    global _num_threads
    if _num_threads is None:
        _num_threads = default_num_threads()
    return _num_threads


def threads_for(num_elements: int) -> int:
    """Return the number of threads that an operation on so many elements is worth."""
    return num_threads() if num_elements > _SERIAL_ELEMENTS else 1


def set_num_threads(number: int) -> None:
    """Set the number of threads of this process's kernels, and of torch if it is imported."""
    global _num_threads
    _num_threads = number
    if (torch := sys.modules.get("torch")) is not None:
        torch.set_num_threads(number)


def num_cores() -> int:
    """Return the number of usable cores, by affinity and by the control group's quota (rounded up)."""
    return _num_cores_of(_cpus())


def default_num_threads(*, spans_nodes: bool = False) -> int:
    """Return OMP_NUM_THREADS, else one per core of a NUMA node, or with `spans_nodes` of all nodes."""
    return _env_num_threads() or (num_cores() if spans_nodes else _num_cores_of(_cpus_of_one_node()))


def keep_to_one_node() -> None:
    """Bind this thread and its future threads to one NUMA node, unless OMP_NUM_THREADS is set."""
    cpus = _cpus_of_one_node()
    if _env_num_threads() is None and cpus < _cpus():
        os.sched_setaffinity(0, cpus)


def rank_threads(rank: int, num_ranks: int) -> int:
    """As `default_num_threads`, for one of the ranks on this machine."""
    said = _env_num_threads()
    if said is not None:
        return max(1, said // num_ranks)
    cpus, num_sharing = _cpus_of_rank(rank, num_ranks)
    return max(1, min(_num_cores_of(cpus) // num_sharing, num_cores()))


def keep_to_ranks_node(rank: int, num_ranks: int) -> None:
    """As `keep_to_one_node`, for one of the ranks on this machine, which are spread over its nodes."""
    cpus, _ = _cpus_of_rank(rank, num_ranks)
    if _env_num_threads() is None and cpus < _cpus():
        os.sched_setaffinity(0, cpus)


def _cpus_of_rank(rank: int, num_ranks: int) -> tuple[set[int], int]:
    """Return the CPUs of a rank's node, and the number of ranks that share it."""
    nodes = _cpus_of_nodes()
    if num_ranks < len(nodes):
        nodes = sorted(nodes, key=lambda cpus: -len(cpus))[:num_ranks]
    node_of = [each * len(nodes) // num_ranks for each in range(num_ranks)]
    return nodes[node_of[rank]], node_of.count(node_of[rank])


def spin_briefly() -> None:
    """Let waiting threads sleep early, unless the environment sets a wait policy: spinning, a step took 3 to 20 times
    as long if other processes wanted the cores. Call this before importing torch or loading kernels, since
    libgomp reads it when loaded."""
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", str(_SPIN_COUNT))


def _env_num_threads() -> int | None:
    try:
        return max(1, int(os.environ["OMP_NUM_THREADS"]))
    except (KeyError, ValueError):
        return None


def _cpus() -> set[int]:
    """Return the CPUs that this process may use."""
    return os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set(range(os.cpu_count() or 1))


def _num_cores_of(cpus: set[int]) -> int:
    return max(1, math.ceil(min(len({_core_of(cpu) for cpu in cpus}), _quota())))


def _cpus_of_one_node() -> set[int]:
    """Return the usable CPUs of the node with the most usable cores."""
    return max(_cpus_of_nodes(), key=lambda cpus: len({_core_of(cpu) for cpu in cpus}))


def _cpus_of_nodes() -> list[set[int]]:
    """Return the usable CPUs by node, for nodes with any; at least one set."""
    allowed = _cpus()
    nodes = []
    for number in range(len(list(_NODES.glob("node[0-9]*")))):
        try:
            nodes.append(allowed & _read_cpus((_NODES / f"node{number}" / "cpulist").read_text()))
        except (OSError, ValueError):
            return [allowed]  # gaps in the numbers, or no such files
    return [cpus for cpus in nodes if cpus] or [allowed]


def _read_cpus(text: str) -> set[int]:
    """Parse a list of the kernel such as 0-3,8-11."""
    cpus: set[int] = set()
    for part in text.strip().split(","):
        first, _, last = part.partition("-")
        if first:
            cpus.update(range(int(first), int(last or first) + 1))
    return cpus


def _core_of(cpu: int) -> str:
    """Return an id of a CPU's core: the list of the core's CPUs."""
    try:
        return (_CPUS / f"cpu{cpu}/topology/thread_siblings_list").read_text()
    except OSError:
        return str(cpu)


def _quota() -> float:
    """Return the control groups' smallest quota in cores; infinite without a limit."""
    quotas = [math.inf]
    for folder in control_groups("cpu", _CGROUP):
        for files in (("cpu.max",), ("cpu.cfs_quota_us", "cpu.cfs_period_us")):
            try:
                quota, period = " ".join((folder / name).read_text() for name in files).split()
                quotas.append(int(quota) / int(period))
            except (OSError, ValueError):  # no limit, or the other version
                continue
    return min(each for each in quotas if each > 0)
