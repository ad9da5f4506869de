"""Parallel runs return results in the order of tasks, and leave no process behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks.parallel_runs import run_all

ROOT = Path(__file__).parents[2]
PLAY = (
    f"import sys; sys.path[:0] = [{str(ROOT / 'src')!r}, {str(ROOT)!r}, {str(Path(__file__).parent)!r}]\n"
    "from benchmarks.parallel_runs import run_all\n"
    "from test_parallel_runs import work\n"
    "if __name__ == '__main__': run_all(work, ['tell', 'tell'], 2, print)\n"
)


def work(task: str, note: Callable[[int], None]) -> str:
    note(len(task))
    if task == "refuse":
        raise ValueError("not this")
    if task == "end":
        os.kill(os.getpid(), signal.SIGKILL)
    if task == "tell":
        os.write(1, b"%d\n" % os.getpid())
        time.sleep(60)
    time.sleep(0.4 if task == "slow" else 0.0)
    return task.upper()


@pytest.mark.parametrize("num_processes", [1, 2])
def test_results_come_in_the_order_of_the_tasks(num_processes: int) -> None:
    shown: list[int] = []
    assert run_all(work, ["slow", "b", "cc"], num_processes, shown.append) == ["SLOW", "B", "CC"]
    assert shown[-1] == 7


@pytest.mark.parametrize(("task", "message"), [("refuse", "not this"), ("end", "was ended from outside")])
def test_what_goes_wrong_is_said_and_ends_the_others(task: str, message: str) -> None:
    began = time.monotonic()
    with pytest.raises(ValueError, match=message):
        run_all(work, [task, "tell"], 2, lambda done: None)
    assert time.monotonic() - began < 50, "the other one was not waited for"


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_no_process_outlives_its_parent(how: signal.Signals, tmp_path: Path) -> None:
    script = tmp_path / "play.py"
    script.write_text(PLAY)
    with subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as parent:
        assert parent.stdout is not None
        pids: set[int] = set()
        while len(pids) < 2:
            line = parent.stdout.readline().strip()
            assert line, "it ended before"
            pids |= {int(line)} - set(range(100))  # progress of the runs beside them
        parent.send_signal(how)
        began = time.monotonic()
        parent.stdout.read()  # until no process holds the pipe
    assert time.monotonic() - began < 50, "they worked on"
