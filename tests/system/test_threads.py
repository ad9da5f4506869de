"""The number of threads follows the cores available, under any kind of limit."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from quire.system import threads
from quire.system.threads import default_num_threads, keep_to_one_node, keep_to_ranks_node, num_cores, rank_threads


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Eight cores of two CPUs each, all available, without a control group."""
    for cpu in range(16):
        folder = tmp_path / f"cpu{cpu}" / "topology"
        folder.mkdir(parents=True)
        (folder / "thread_siblings_list").write_text(f"{cpu % 8},{cpu % 8 + 8}\n")
    monkeypatch.setattr(threads, "_CPUS", tmp_path)
    monkeypatch.setattr(threads, "_NODES", tmp_path / "nodes")
    monkeypatch.setattr(threads, "_CGROUP", tmp_path / "cgroup")
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: set(range(16)))
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    (tmp_path / "cgroup" / "cpu").mkdir(parents=True)
    return tmp_path / "cgroup"


def test_a_core_counts_once_however_many_threads_it_runs(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert num_cores() == 8
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: {0, 8, 3})
    assert num_cores() == 2


@pytest.mark.parametrize(("text", "cores"), [("max 100000", 8), ("150000 100000", 2), ("20000 100000", 1)])
def test_a_containers_quota_counts(machine: Path, text: str, cores: int) -> None:
    (machine / "cpu.max").write_text(text + "\n")
    assert num_cores() == cores


@pytest.mark.parametrize(("quota", "cores"), [("-1", 8), ("250000", 3)])
def test_so_does_one_of_the_older_kind(machine: Path, quota: str, cores: int) -> None:
    (machine / "cpu" / "cpu.cfs_quota_us").write_text(quota)
    (machine / "cpu" / "cpu.cfs_period_us").write_text("100000")
    assert num_cores() == cores


def test_where_the_system_tells_nothing_each_cpu_is_a_core(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "_CPUS", machine / "missing")
    assert num_cores() == 16


def test_what_the_environment_says_goes_first(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert default_num_threads() == 8
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    assert default_num_threads() == 3
    monkeypatch.setenv("OMP_NUM_THREADS", "many")
    assert default_num_threads() == 8


@pytest.mark.parametrize(("num_ranks", "num_threads", "first_cpus"), [(2, 4, [0, 4]), (4, 2, [0, 0, 4, 4])])
def test_ranks_are_spread_over_the_nodes_and_share_their_cores(
    machine: Path, monkeypatch: pytest.MonkeyPatch, num_ranks: int, num_threads: int, first_cpus: list[int]
) -> None:
    for node, cpus in enumerate(("0-3,8-11\n", "4-7,12-15\n")):
        folder = machine.parent / "nodes" / f"node{node}"
        folder.mkdir(parents=True)
        (folder / "cpulist").write_text(cpus)
    bound: list[int] = []
    monkeypatch.setattr("os.sched_setaffinity", lambda pid, cpus: bound.append(min(cpus)))
    assert [rank_threads(rank, num_ranks) for rank in range(num_ranks)] == [num_threads] * num_ranks
    for rank in range(num_ranks):
        keep_to_ranks_node(rank, num_ranks)
    assert bound == first_cpus
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    assert rank_threads(0, 2) == 1


@pytest.mark.parametrize(
    ("allowed", "num_threads", "kept"),
    [
        (set(range(16)), 4, {0, 1, 2, 3, 8, 9, 10, 11}),
        ({0, 8, 4, 5, 12}, 2, {4, 5, 12}),  # by cores: the first node has one
        ({1, 2}, 2, None),  # it is on one node already
    ],
)
def test_threads_stay_on_the_node_with_the_most_cores(
    machine: Path, monkeypatch: pytest.MonkeyPatch, allowed: set[int], num_threads: int, kept: set[int] | None
) -> None:
    for node, cpus in enumerate(("0-3,8-11\n", "4-7,12-15\n", "\n")):  # the last node has only memory
        folder = machine.parent / "nodes" / f"node{node}"
        folder.mkdir(parents=True)
        (folder / "cpulist").write_text(cpus)
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: allowed)
    calls: list[set[int]] = []
    monkeypatch.setattr("os.sched_setaffinity", lambda pid, cpus: calls.append(cpus))
    assert default_num_threads() == num_threads
    assert default_num_threads(spans_nodes=True) == num_cores()
    keep_to_one_node()
    assert calls == ([] if kept is None else [kept])
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    keep_to_one_node()
    assert len(calls) == (kept is not None)


@pytest.mark.parametrize(
    ("environment", "count"),
    [({}, "10000"), ({"GOMP_SPINCOUNT": "5"}, "5"), ({"OMP_WAIT_POLICY": "active"}, "None")],
)
def test_threads_spin_briefly_unless_the_environment_says_how_they_wait(
    environment: dict[str, str], count: str
) -> None:
    code = "import quire, os, sys; print(os.environ.get('GOMP_SPINCOUNT'), 'torch' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True,
        env={"PYTHONPATH": str(Path(threads.__file__).parents[1]), **environment},
    )  # fmt: skip
    assert done.stdout.split() == [count, "False"]
