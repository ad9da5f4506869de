"""Storage is always limited over all namespaces and processes, and the least valuable blocks go first."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from quire.tiers.store import writer
from quire.tiers.store.block_store import BlockStore
from quire.tiers.store.layout.files import OpenFile
from tiers.store.stores import RECORD_BYTES, chain, key, keys, open_store, poll_until, readable, segments, write

SEGMENT_BYTES = 128 + 4 * RECORD_BYTES
MAX_BYTES = 8 * SEGMENT_BYTES


def used(directory: Path) -> int:
    return sum(path.stat().st_size for path in directory.rglob("kv/*/*") if path.is_file())


def fill(store: BlockStore, first: int, cost_s: float = 0.0, age_s: float = 0.0) -> Path:
    """Write one segment of four blocks with an old access time."""
    assert write(store, chain(*range(first, first + 4), cost_s=cost_s)) == []
    assert store._writer.active is not None
    path = store._writer.active.segment.path
    store._writer.seal()
    os.utime(path, (time.time() - age_s,) * 2)
    return path


def test_the_limit_holds_and_the_latest_stays(tmp_path: Path) -> None:
    store = open_store(tmp_path, max_bytes=MAX_BYTES)
    told = set[bytes]()
    for first in range(0, 200, 4):
        assert write(store, chain(*range(first, first + 4))) == []
        assert used(tmp_path) <= MAX_BYTES + 400, "but for an index"
        changes = store.poll()
        assert changes is not None
        told = (told | set(changes.added)) - set(changes.removed)
    assert readable(store, keys(196, 197, 198, 199)) == keys(196, 197, 198, 199)
    assert told == set(readable(store, keys(*range(200)))), "and the engine knows"
    assert store.stats.evicted_segments == 50 - len(segments(tmp_path))
    store.close()


def test_what_costs_the_least_and_was_not_used_goes_first(tmp_path: Path) -> None:
    store = open_store(tmp_path, max_bytes=20 * SEGMENT_BYTES)
    cheap = fill(store, 0, cost_s=1.0, age_s=1000.0)
    dear = fill(store, 4, cost_s=4.0, age_s=1000.0)
    dear_and_old = fill(store, 8, cost_s=4.0, age_s=100_000.0)
    cheap_and_new = fill(store, 12, cost_s=1.0)
    for expected in (dear_and_old, cheap, dear, cheap_and_new):
        before = set(segments(tmp_path))
        store._writer._max_bytes = used(tmp_path) - 1
        store._writer.check_room()
        assert before - set(segments(tmp_path)) == {expected}
    store.close()


def test_what_is_read_is_kept(tmp_path: Path) -> None:
    store = open_store(tmp_path, max_bytes=20 * SEGMENT_BYTES)
    first, second = fill(store, 0, age_s=5000.0), fill(store, 4, age_s=4000.0)
    readable(store, keys(1))
    store._writer._max_bytes = used(tmp_path) - 1
    store._writer.check_room()
    assert (first.exists(), second.exists()) == (True, False)
    store.close()


def test_room_is_given_back_at_once_whoever_has_a_segment_open(tmp_path: Path) -> None:
    store, reading = open_store(tmp_path), open_store(tmp_path)
    path = fill(store, 0)
    reading.refresh()
    assert len(readable(reading, keys(0, 1))) == 2
    held = OpenFile(path)
    store._writer._max_bytes = 0
    store._writer.check_room()
    assert held.size == 0
    assert readable(reading, keys(0, 1, 2)) == []
    assert reading.stats.failed_checks == 0, "gone is not damaged"
    reading.close()
    store.close()


def test_deleted_blocks_are_worth_nothing(tmp_path: Path) -> None:
    store = open_store(tmp_path, max_bytes=20 * SEGMENT_BYTES)
    store._compact_some = lambda now: None  # type: ignore[method-assign]
    first, second = fill(store, 0, cost_s=3.0), fill(store, 4, cost_s=2.0)
    store.delete(keys(1))  # and the three... two after it
    store._writer._max_bytes = used(tmp_path) - 1
    store._writer.check_room()
    assert (first.exists(), second.exists()) == (False, True)
    store.close()


def test_two_processes_share_one_limit_and_spare_what_is_being_written(tmp_path: Path) -> None:
    first, second = (open_store(tmp_path, max_bytes=MAX_BYTES) for _ in range(2))
    write(first, chain(1000))
    for at in range(0, 120, 4):
        assert write(second, chain(*range(at, at + 4))) == []
        assert used(tmp_path) <= MAX_BYTES + 400
    assert readable(first, keys(1000)) == keys(1000)
    assert write(first, chain(1001, after=key(1000))) == []
    assert readable(first, keys(1000, 1001)) == keys(1000, 1001)
    first.close()
    second.close()


def test_another_process_is_told_of_what_is_evicted(tmp_path: Path) -> None:
    first, second = (open_store(tmp_path, max_bytes=MAX_BYTES) for _ in range(2))
    fill(first, 1000)
    second.refresh()
    assert len(readable(second, keys(*range(1000, 1004)))) == 4
    for at in range(0, 60, 4):
        fill(first, at)
    told = poll_until(second, lambda told: len(told.removed) >= 4)
    assert set(keys(*range(1000, 1004))) <= set(told.removed)
    first.close()
    second.close()


def test_segments_of_other_namespaces_make_room_too(tmp_path: Path) -> None:
    other = open_store(tmp_path, max_bytes=MAX_BYTES, root=bytes(32))
    for at in range(0, 24, 4):
        fill(other, at)
    store = open_store(tmp_path, max_bytes=MAX_BYTES)
    for at in range(0, 12, 4):
        assert write(store, chain(*range(at, at + 4), cost_s=1.0)) == []
    assert used(tmp_path) <= MAX_BYTES + 400
    assert readable(store, keys(*range(12))) == keys(*range(12)), "they cost something to compute, the others nothing"
    told = poll_until(other, lambda told: bool(told.removed))
    assert readable(other, told.removed) == []
    store.close()
    other.close()


def test_a_lower_limit_holds_from_the_start(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    for at in range(0, 100, 4):
        fill(store, at)
    store.close()
    store = open_store(tmp_path, max_bytes=MAX_BYTES)
    assert used(tmp_path) <= MAX_BYTES
    store.close()


def test_what_an_ended_process_left_unsealed_is_evicted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = open_store(tmp_path, max_bytes=MAX_BYTES)
    monkeypatch.setattr(store._writer, "seal", lambda: None)
    write(store, chain(500))
    store.close()
    (left,) = segments(tmp_path)
    store._writer.active = None  # closes the file, as a process's end does
    store = open_store(tmp_path, max_bytes=MAX_BYTES)
    left.with_suffix(".idx").unlink()
    for at in range(0, 100, 4):
        assert write(store, chain(*range(at, at + 4))) == []
    assert not left.exists()
    store.close()


def test_a_disk_with_less_room_than_the_limit_evicts_for_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store(tmp_path, max_bytes=1 << 30)
    store._writer.segment_bytes = SEGMENT_BYTES
    original = os.statvfs

    def small(path: Path) -> os.statvfs_result:
        values = list(original(path))
        values[1], values[4] = 1, max(0, MAX_BYTES - used(tmp_path))  # fragment size, available
        return os.statvfs_result(values)

    monkeypatch.setattr(os, "statvfs", small)
    for at in range(0, 100, 4):
        assert write(store, chain(*range(at, at + 4))) == []
        assert used(tmp_path) <= MAX_BYTES + 400
    store.close()


def test_without_anything_to_evict_writing_pauses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(writer, "_PAUSE_S", 0.0)
    store = open_store(tmp_path, max_bytes=MAX_BYTES)
    big = store.namespace.path / "something else"
    big.write_bytes(bytes(MAX_BYTES))
    assert write(store, chain(1)) == [0]
    assert write(store, chain(1)) == [0]
    assert len(caplog.records) == 1
    big.unlink()
    assert write(store, chain(1)) == []
    store.close()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """Return a file system of 256 KiB, if this user may mount one."""
    path = tmp_path / "disk"
    path.mkdir()
    try:
        subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=256k,mode=700", "tmpfs", path], check=True, stderr=subprocess.DEVNULL
        )
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("mounting takes root")
    yield path
    subprocess.run(["umount", "-l", path], check=True)


def test_a_disk_that_is_really_full(small_disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "_PAUSE_S", 0.0)
    monkeypatch.setattr(writer, "SEGMENT_BYTES", 32 << 10)
    store = open_store(small_disk, max_bytes=1 << 30)
    stored = 0
    for at in range(0, 4000, 40):
        failed = write(store, chain(*range(at, at + 40)))
        stored += 40 - len(failed)
        found = readable(store, keys(*range(at, at + 40)))
        assert len(found) == 40 - len(failed)
    assert stored > 1000, "evicting as it goes"
    filler = small_disk / "something else"
    disk = os.statvfs(small_disk)
    filler.write_bytes(bytes(disk.f_bavail * disk.f_frsize))
    for at in range(4000, 4400, 40):
        failed = write(store, chain(*range(at, at + 40)))
        assert len(readable(store, keys(*range(at, at + 40)))) == 40 - len(failed)
    assert store.delete(keys(4399)) <= 1
    assert readable(store, keys(4399)) == []
    store.close()
    filler.unlink()
    again = open_store(small_disk, max_bytes=1 << 30)
    assert write(again, chain(*range(5000, 5040))) == []
    assert again.stats.failed_checks == 0
    again.close()
