"""Several processes on one directory, some of which are killed."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from quire.tiers.store.block_store import BlockStore
from tiers.store.stores import chain, key, keys, open_store, poll_until, readable, segments, write

TESTS = Path(__file__).parents[2]

WRITER = """
import sys
from pathlib import Path
from tiers.store.stores import *
store = open_store(Path(sys.argv[1]), max_bytes=1 << 16)
number = int(sys.argv[2])
print("ready", flush=True)
while True:
    write(store, chain(*range(number, number + 7)))
    number += 7
"""

HOLDER = """
import sys
from pathlib import Path
from tiers.store.stores import *
store = open_store(Path(sys.argv[1]))
store.claim(key(1), 20.0)
print(poll_until(store, lambda told: bool(told.granted)).granted == keys(1), flush=True)
sys.stdin.read()
"""


@contextmanager
def started(code: str, *arguments: object) -> Iterator[subprocess.Popen[str]]:
    """Run a process, which ends with the block if not before."""
    process = subprocess.Popen(
        [sys.executable, "-c", code, *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={"PYTHONPATH": f"{TESTS}:{TESTS.parent / 'src'}"},
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline().strip() in ("ready", "True")
        yield process
    finally:
        end(process)


def end(process: subprocess.Popen[str]) -> None:
    process.kill()
    if process.returncode is None:
        process.communicate()


def check(store: BlockStore) -> None:
    """Check that every found block is readable, and nothing is damaged."""
    for _ in range(3):
        store.refresh()
        found = store._catalog._index.all_keys()
        if len(readable(store, found)) == len(found):
            break  # unless the other has evicted some
    else:
        raise AssertionError("what is found cannot be read")
    assert store.stats.failed_checks == 0
    assert found


def test_processes_that_are_killed_while_they_write(tmp_path: Path) -> None:
    with started(WRITER, tmp_path, 0) as one, started(WRITER, tmp_path, 25_000) as other:
        store = open_store(tmp_path, max_bytes=1 << 16)
        for process in (one, other):
            poll_until(store, lambda told: len(told.added) > 100)
            end(process)
    check(store)
    assert write(store, chain(*range(60_000, 60_020))) == []
    store.close()
    again = open_store(tmp_path, max_bytes=1 << 16)
    check(again)
    assert sum(path.stat().st_size for path in segments(tmp_path)) <= 1 << 16
    assert not list(tmp_path.rglob("*.tmp"))
    again.close()


def test_a_killed_process_holds_no_claim(tmp_path: Path) -> None:
    with started(HOLDER, tmp_path):
        store = open_store(tmp_path)
        store.claim(key(1), 0.0)
        told = poll_until(store, lambda told: bool(told.granted or told.expired))
        assert (told.granted, told.expired) == ([], keys(1))
        store.claim(key(1), 60.0)
    assert poll_until(store, lambda told: bool(told.granted)).granted == keys(1)
    store.close()
