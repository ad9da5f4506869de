"""Independent runs in several processes, with progress."""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import resource_tracker
from multiprocessing.process import BaseProcess
from typing import Any, TypeVar

from quire.system.child_process import GROUP_SIGNALS, signals_blocked

Task = TypeVar("Task")
Result = TypeVar("Result")
Note = Callable[[int], None]  #: takes how much of a run is done

_LOOK_S = 0.5  #: between two looks at how far runs have come

_counts: Any = None  #: in a child: what is done of each run


def run_all(
    function: Callable[[Task, Note], Result], tasks: Sequence[Task], num_processes: int, show: Note
) -> list[Result]:
    """Run a function on each task. An error or Ctrl-C ends all processes at once.

    Args:
        function: a module's function; its second argument is a progress callback.
        tasks: pickled tasks, the longest first.
        num_processes: number of processes; 1 runs in this one.
        show: receives the progress of all runs.

    Returns:
        The results in the order of the tasks.

    Raises:
        ValueError: a process was killed.
        Exception: the error of the first failed run.
    """
    counts = [0] * len(tasks)

    def note(number: int, count: int) -> None:
        counts[number] = count
        show(sum(counts))

    if num_processes == 1:
        return [function(task, lambda count, at=number: note(at, count)) for number, task in enumerate(tasks)]  # type: ignore[misc]
    spawn = multiprocessing.get_context("spawn")
    shared = spawn.Array("q", len(tasks), lock=False)
    before = multiprocessing.active_children()
    pool = ProcessPoolExecutor(num_processes, spawn, _begin, (shared,))
    try:
        resource_tracker.ensure_running()  # the first process would start it, which unblocks signals
        with signals_blocked():
            runs = [pool.submit(_run, function, task, number) for number, task in enumerate(tasks)]
        processes = _children_but(before)
        pending = set(runs)
        while pending:
            done, pending = wait(pending, _LOOK_S, FIRST_EXCEPTION)
            for each in done:
                each.result()
            if pending and any(each.exitcode is not None for each in processes):
                raise BrokenProcessPool  # the pool itself may see it only when another process has news
            show(sum(shared))
        return [each.result() for each in runs]
    except BrokenProcessPool:
        _end(_children_but(before))
        raise ValueError(
            f"one of {num_processes} processes was ended from outside, as happens where memory is short; "
            "give this less to do, or fewer cores (taskset -c 0 runs it in one process)"
        ) from None
    except BaseException:
        _end(_children_but(before))
        raise
    finally:
        pool.shutdown(cancel_futures=True)


def _children_but(others: Sequence[BaseProcess]) -> list[BaseProcess]:
    return [each for each in multiprocessing.active_children() if each not in others]


def _end(children: Sequence[BaseProcess]) -> None:
    """End children, which hold nothing that would be lost."""
    for each in children:
        each.kill()


def _begin(shared: Any) -> None:
    global _counts
    _counts = shared
    threading.Thread(target=_end_with_parent, daemon=True).start()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the parent ends this one
    signal.pthread_sigmask(signal.SIG_UNBLOCK, GROUP_SIGNALS)
    # Lists are most of what there is, and none of them is in a circle.
    gc.set_threshold(100_000, 50, 50)


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(0)


def _run(function: Callable[[Task, Note], Result], task: Task, number: int) -> Result:
    return function(task, lambda count: _counts.__setitem__(number, count))
