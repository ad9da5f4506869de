"""How many threads tensor work may take, on which cores, and how they wait for each other. Imports no torch.

One a core: two threads of a core share the units that multiply. And the cores of one NUMA node: what another node's
memory holds comes at a fraction of the bandwidth, and threads wait for the slowest of them.
"""

from __future__ import annotations

import math
import os
from pathlib import Path

#: Turns of libgomp's waiting loop, some 0.2 ms; by default 300,000. Enough to meet the next product of a step awake.
_SPIN_COUNT = 10_000
_CPUS = Path("/sys/devices/system/cpu")
_NODES = Path("/sys/devices/system/node")
_CGROUP = Path("/sys/fs/cgroup")


def num_cores() -> int:
    """Cores that this process may use, at least one: by affinity, each once however many threads it runs, and no more
    than the control group's quota (of 1.5 cores, two)."""
    return _num_cores_of(_cpus())


def default_num_threads(*, spans_nodes: bool = False) -> int:
    """Threads for tensor work where nobody said: what OMP_NUM_THREADS says, else one a core of one NUMA node.

    Args:
        spans_nodes: of all nodes, for several engines that share them.
    """
    return _said_num_threads() or (num_cores() if spans_nodes else _num_cores_of(_cpus_of_one_node()))


def keep_to_one_node() -> None:
    """Have the calling thread, and those that it starts from now on, run on one NUMA node: what they write first, such
    as weights and KV, then lies there. Where OMP_NUM_THREADS says how many threads there are, nothing happens."""
    cpus = _cpus_of_one_node()
    if _said_num_threads() is None and cpus < _cpus():
        os.sched_setaffinity(0, cpus)


def rank_threads(rank: int, num_ranks: int) -> int:
    """As `default_num_threads`, for one of several processes that share this machine and wait for each other."""
    said = _said_num_threads()
    if said is not None:
        return max(1, said // num_ranks)
    cpus, num_sharing = _cpus_of_rank(rank, num_ranks)
    return max(1, min(_num_cores_of(cpus) // num_sharing, num_cores()))


def keep_to_ranks_node(rank: int, num_ranks: int) -> None:
    """As `keep_to_one_node`, for one of several processes: they are spread over the nodes."""
    cpus, _ = _cpus_of_rank(rank, num_ranks)
    if _said_num_threads() is None and cpus < _cpus():
        os.sched_setaffinity(0, cpus)


def _cpus_of_rank(rank: int, num_ranks: int) -> tuple[set[int], int]:
    """Those of a process's node, and how many of the processes share it."""
    nodes = _cpus_of_nodes()
    if num_ranks < len(nodes):
        nodes = sorted(nodes, key=lambda cpus: -len(cpus))[:num_ranks]
    places = [each * len(nodes) // num_ranks for each in range(num_ranks)]
    return nodes[places[rank]], places.count(places[rank])


def spin_briefly() -> None:
    """Have threads that wait for each other go to sleep soon, unless the environment says how they are to wait.

    By default they spin for milliseconds, and where other processes want the cores, each waits with its core for one
    that has none: a step took 3 to 20 times as long. Must come before torch, since libgomp reads this as it is loaded.
    """
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", str(_SPIN_COUNT))


def _said_num_threads() -> int | None:
    try:
        return max(1, int(os.environ["OMP_NUM_THREADS"]))
    except (KeyError, ValueError):
        return None


def _cpus() -> set[int]:
    """Those that this process may use."""
    return os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set(range(os.cpu_count() or 1))


def _num_cores_of(cpus: set[int]) -> int:
    return max(1, math.ceil(min(len({_core_of(cpu) for cpu in cpus}), _quota())))


def _cpus_of_one_node() -> set[int]:
    """Those that this process may use of the node on which it has the most cores, the first one of several."""
    return max(_cpus_of_nodes(), key=lambda cpus: len({_core_of(cpu) for cpu in cpus}))


def _cpus_of_nodes() -> list[set[int]]:
    """Those that this process may use, by node; of nodes where it may use any. At least one."""
    allowed = _cpus()
    nodes = []
    for number in range(len(list(_NODES.glob("node[0-9]*")))):
        try:
            nodes.append(allowed & _read_cpus((_NODES / f"node{number}" / "cpulist").read_text()))
        except (OSError, ValueError):
            return [allowed]  # numbers with gaps, or no such files: the system's own ways are good enough
    return [cpus for cpus in nodes if cpus] or [allowed]


def _read_cpus(text: str) -> set[int]:
    """Of a list as the kernel writes it, such as 0-3,8-11."""
    cpus: set[int] = set()
    for part in text.strip().split(","):
        first, _, last = part.partition("-")
        if first:
            cpus.update(range(int(first), int(last or first) + 1))
    return cpus


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
