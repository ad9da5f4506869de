"""Work in a child process: its failures are errors here, and the next request is answered."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from quire.rag.embedder import find_embedder, load_embedder
from quire.rag.embedder_process import EmbedderProcess
from quire.system.worker_process import Worker, WorkerError, WorkerKilled, WorkerLimits, WorkerProcess, WorkerTimeout

SOURCE = Path(__file__).parents[2] / "src"
LIMITS = WorkerLimits(memory_bytes=1 << 30, cpu_s=0.1, wall_s=20)


def make_worker() -> Worker:
    def work(question: bytes) -> bytes:
        if question == b"refuse":
            raise ValueError("not this")
        if question == b"allocate":
            return bytes(2 << 30)[:1]
        if question in (b"SIGSEGV", b"SIGKILL"):
            os.kill(os.getpid(), signal.Signals[question.decode()])
        while question == b"spin":
            pass
        return question.upper()

    return work


def test_a_child_answers_refuses_and_comes_back_after_a_crash() -> None:
    child = WorkerProcess(make_worker, "test", limits=LIMITS)
    assert child.pid is None
    assert child.ask(b"one") == b"ONE"
    pid = child.pid
    with pytest.raises(ValueError, match="not this"):
        child.ask(b"refuse")
    with pytest.raises(ValueError, match="memory"):
        child.ask(b"allocate")
    assert child.pid == pid
    with pytest.raises(WorkerError, match="SIGSEGV"):
        child.ask(b"SIGSEGV")
    with pytest.raises(WorkerKilled):
        child.ask(b"SIGKILL")
    assert child.ask(b"two") == b"TWO"
    with pytest.raises(WorkerError, match=r"0\.1 s of processor time"):
        child.ask(b"spin")
    child.close()
    assert child.pid is None


def test_what_takes_too_long_is_ended_and_threads_get_their_own_answers() -> None:
    child = WorkerProcess(make_worker, "test", limits=WorkerLimits(wall_s=20))
    answers: dict[bytes, bytes] = {}
    threads = [
        threading.Thread(target=lambda q=q: answers.__setitem__(q, child.ask(q))) for q in (b"a", b"b", b"c", b"d")
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == {b"a": b"A", b"b": b"B", b"c": b"C", b"d": b"D"}
    child._limits = WorkerLimits(wall_s=0.05)
    with pytest.raises(WorkerTimeout, match=r"more than 0\.05 s"):
        child.ask(b"spin")
    assert child.pid is None


def test_the_embedder_s_process_gives_the_same_vectors_and_ends_with_its_parent() -> None:
    code = (
        "import sys\nfrom quire.rag.embedder import find_embedder\nfrom quire.rag.embedder_process import *\n"
        "e = EmbedderProcess(find_embedder('hashing'))\nprint(e.facts.name, e.pid, 'torch' in sys.modules, flush=True)"
        "\nsys.stdin.read()"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONPATH": str(SOURCE)},
    )  # fmt: skip
    assert process.stdout is not None
    name, pid, has_torch = process.stdout.readline().split()
    assert (name, has_torch) == ("hashing", "False")
    child = os.pidfd_open(int(pid))
    process.kill()
    process.communicate()
    assert select.select([child], [], [], 20)[0]  # it has ended
    os.close(child)
    source = find_embedder("hashing")
    embedder = EmbedderProcess(source)
    texts = ["some words", "", "others"]
    found = embedder.embed(texts)
    np.testing.assert_array_equal(found.vectors, load_embedder(source).embed(texts).vectors)
    assert found.num_tokens == [2, 0, 1]
    assert len(embedder.embed([]).vectors) == 0
    embedder.close()
