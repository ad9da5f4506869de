"""A server that forks processes with imports: their end, their surroundings, its own end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest

from quire.kernels.loaded import load_kernels
from quire.system.child_process import ChildProcess
from quire.system.fork_server import ForkedProcess, ForkServer

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="fork servers need Linux")


@pytest.fixture
def owner() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(["sleep", "100"])
    yield process
    process.kill()
    process.wait()


@pytest.fixture
def server(owner: subprocess.Popen[bytes]) -> ForkServer:
    return started(owner, "colorsys")


def started(owner: subprocess.Popen[bytes], imports: str) -> ForkServer:
    server = ForkServer(owner.pid, imports, delay_s=0)
    assert isinstance(forked(server).process, subprocess.Popen)  # nothing listens yet
    wait_until(lambda: isinstance(forked(server).process, ForkedProcess))
    return server


def forked(server: ForkServer) -> ChildProcess:
    return ChildProcess("forked", fork=server.fork)


def pids_of(server: ForkServer) -> list[int]:
    """The server and its forks, which share its command line."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if server._arguments[0].encode() in (folder / "cmdline").read_bytes():
                found.append(int(folder.name))
        except OSError:
            continue
    return found


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def wait_until(condition: Callable[[], Any], timeout_s: float = 30) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def tell(commands: Connection, reports: Connection) -> None:
    reports.send((os.getpid(), "colorsys" in sys.modules, os.environ.get("A_TEST"), os.listdir("/proc/self/fd")))
    commands.recv()


def compute(commands: Connection, reports: Connection) -> None:
    import numpy as np

    from quire.models.linear.packed_weight import pack_weight
    from quire.system.threads import set_num_threads

    set_num_threads(2)
    ones = np.ones((512, 512), np.float32)
    packed = pack_weight(ones.copy())
    assert packed is not None
    reports.send(float(packed.product(ones, None).sum()))
    commands.recv()


def fail(commands: Connection, reports: Connection) -> None:
    raise OSError("as a broken pipe does")


def test_a_forked_process_has_the_imports_and_the_clients_environment(
    server: ForkServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("A_TEST", "1")
    first, second = forked(server), forked(server)
    descriptors = []
    for child in (first, second):
        child.run(tell)
        pid, has_import, variable, open_files = child.reports.recv()
        assert (pid, has_import, variable) == (child.pid, True, "1")
        descriptors.append(len(open_files))
        child.commands.send(None)
        assert child.wait(10)
        assert child.describe_end() == "ended with status 0"
    assert descriptors[1] <= descriptors[0] + 2


@pytest.mark.parametrize("number", [signal.SIGSEGV, signal.SIGKILL])
def test_the_signal_that_ended_a_process_is_known(server: ForkServer, number: signal.Signals) -> None:
    child = forked(server)
    assert child.is_alive()
    os.kill(child.pid, number)
    assert child.wait(10)
    assert child.process.returncode == -number
    child.kill()


def test_a_process_whose_function_fails_ends_and_the_server_goes_on(server: ForkServer) -> None:
    child = forked(server)
    child.run(fail)
    assert child.wait(10)
    assert child.process.returncode == 1
    assert isinstance(forked(server).process, ForkedProcess)


def test_ctrl_c_and_the_end_of_the_parent(server: ForkServer) -> None:
    child = forked(server)
    child.run(tell)
    child.reports.recv()
    for number in (signal.SIGINT, signal.SIGTERM):
        os.kill(child.pid, number)
    assert not child.wait(0.3)
    child.commands.close()  # as the system does when the parent ends
    assert child.wait(10)


def test_a_killed_server_leaves_its_processes_alive_and_new_ones_are_spawned(server: ForkServer) -> None:
    child = forked(server)
    child.run(tell)
    child.reports.recv()
    keeper = parent_of(child.pid)
    pid = parent_of(keeper)
    wait_until(lambda: set(pids_of(server)) <= {pid, keeper, child.pid})  # a second one would take its place
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not Path(f"/proc/{pid}").exists())
    assert child.is_alive()
    os.kill(keeper, signal.SIGKILL)
    child.commands.send(None)
    assert child.wait(10)
    assert child.describe_end() == "ended with status 255"  # which only the keeper knew
    assert isinstance(forked(server).process, subprocess.Popen)
    wait_until(lambda: isinstance(forked(server).process, ForkedProcess))


def test_a_second_server_does_not_start_and_the_first_ends_with_its_owner(
    server: ForkServer, owner: subprocess.Popen[bytes]
) -> None:
    code = "from quire.system.fork_server import main; main()"
    subprocess.run([sys.executable, "-c", code, *server._arguments], check=True)
    wait_until(lambda: len(pids_of(server)) == 1)
    owner.kill()
    owner.wait()
    wait_until(lambda: not pids_of(server))


def test_a_server_that_waits_to_import_ends_with_its_owner(owner: subprocess.Popen[bytes]) -> None:
    server = ForkServer(owner.pid, "colorsys", delay_s=1000)
    forked(server)
    wait_until(lambda: len(pids_of(server)) == 1)
    owner.kill()
    owner.wait()
    wait_until(lambda: not pids_of(server))


def test_other_library_settings_have_another_server(server: ForkServer, monkeypatch: pytest.MonkeyPatch) -> None:
    owner = int(server._arguments[1])
    assert ForkServer(owner, "colorsys", delay_s=0)._arguments == server._arguments
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    assert ForkServer(owner, "colorsys", delay_s=0)._arguments != server._arguments
    assert isinstance(forked(ForkServer(owner, "colorsys", delay_s=0)).process, subprocess.Popen)


@pytest.mark.skipif(load_kernels().functions is None, reason="there are no kernels")
def test_kernels_compute_with_several_threads_in_several_forks(owner: subprocess.Popen[bytes]) -> None:
    server = started(owner, "quire.assembly")
    for _ in range(3):
        child = forked(server)
        child.run(compute)
        assert child.reports.poll(30)
        assert child.reports.recv() == 512.0**3
        memory = Path(f"/proc/{child.pid}/smaps_rollup").read_text()
        private = int(memory.partition("Private_Dirty:")[2].split()[0])
        assert private < 30_000  # KiB; an engine that imports has more
        child.close()
