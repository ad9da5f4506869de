"""Free memory and processor quotas under control groups of both versions, with and without a namespace."""

from __future__ import annotations

import os
import resource
import signal
import time
from pathlib import Path

import pytest

from quire.system import memory, threads
from quire.system.child_process import ChildProcess
from quire.system.memory import control_groups, free_memory, used_by

GIB = 1 << 30
UNIT = "system.slice/quire.service"


@pytest.fixture
def groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine with 64 GiB of free memory and empty control groups."""
    proc = tmp_path / "proc"
    (proc / "self").mkdir(parents=True)
    (proc / "meminfo").write_text(f"MemTotal: 1 kB\nMemAvailable: {64 << 20} kB\n")
    root = tmp_path / "cgroup"
    root.mkdir()
    monkeypatch.setattr(memory, "_PROC", proc)
    monkeypatch.setattr(threads, "_CGROUP", root)
    monkeypatch.setattr(memory, "control_groups", lambda controller: control_groups(controller, root))
    monkeypatch.setattr(resource, "getrlimit", lambda _: (resource.RLIM_INFINITY,) * 2)
    return root


def write(folder: Path, **values: object) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, value in values.items():
        (folder / name.replace("__", ".")).write_text(f"{value}\n")


def enter(groups: Path, *lines: str) -> None:
    (groups.parent / "proc/self/cgroup").write_text("\n".join(lines))


def test_without_limits_all_that_is_available_is_free(groups: Path) -> None:
    assert free_memory() == 64 * GIB
    write(groups, memory__max="max", memory__current=GIB)
    assert free_memory() == 64 * GIB


@pytest.mark.parametrize("path", ["/", f"/{UNIT}", "/docker/elsewhere", "/../../x"], ids=str)
def test_a_containers_limit_counts_without_the_files_that_it_has_read(groups: Path, path: str) -> None:
    enter(groups, f"0::{path}")
    folder = groups / UNIT if path == f"/{UNIT}" else groups
    write(folder, memory__max=8 * GIB, memory__current=5 * GIB, memory__stat=f"anon 7\ninactive_file {2 * GIB}")
    assert free_memory() == 5 * GIB


def test_the_smallest_limit_of_the_groups_around_a_unit_counts(groups: Path) -> None:
    enter(groups, f"0::/{UNIT}")
    write(groups / UNIT, memory__max="max", memory__current=GIB, cpu__max="300000 100000")
    write(groups / "system.slice", memory__max=4 * GIB, memory__current=GIB, cpu__max="150000 100000")
    assert free_memory() == 3 * GIB
    assert threads._quota() == 1.5


def test_groups_of_version_1_count(groups: Path) -> None:
    enter(groups, f"4:memory:/{UNIT}", f"3:cpu,cpuacct:/{UNIT}", "0::/")
    folder = groups / "memory" / UNIT
    write(folder, memory__limit_in_bytes=6 * GIB, memory__usage_in_bytes=GIB)
    write(groups / "cpu" / UNIT, cpu__cfs_quota_us=250_000, cpu__cfs_period_us=100_000)
    write(groups / "cpu", cpu__cfs_quota_us=-1, cpu__cfs_period_us=100_000)
    assert free_memory() == 5 * GIB
    assert threads._quota() == 2.5


def test_the_limit_of_the_address_space_counts(groups: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (3 * GIB, 3 * GIB))
    write(groups.parent / "proc/self", statm=f"{GIB // resource.getpagesize()} 1 1")
    assert free_memory() == 2 * GIB


def test_a_process_that_was_killed_for_memory_says_so_with_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    for num_kills, said in ((0, "probably killed for memory"), (1, "killed by the system for memory")):
        child = ChildProcess("victim")
        os.kill(child.pid, signal.SIGKILL)
        assert child.wait(60)
        before = memory.num_memory_kills()
        monkeypatch.setattr(memory, "num_memory_kills", lambda now=before + num_kills: now)
        end = child.describe_end()
        assert end is not None
        assert end.startswith(f"was ended by SIGKILL ({said}")
        assert "GiB are free now" in end
        child.close()


def test_a_process_and_its_children_use_memory_and_time() -> None:
    child = ChildProcess("worker")
    used = used_by(child.pid)
    while used is not None and used[0] <= 1 << 20:  # its interpreter is starting
        time.sleep(0.01)
        used = used_by(child.pid)
    assert used is not None
    ours = used_by(os.getpid())
    assert ours is not None
    assert ours[0] > used[0]
    assert ours[1] > 0
    child.close()
    assert used_by(child.pid) is None
