"""Stored blocks are found by key: by this process, by others, and after a restart."""

from __future__ import annotations

import errno
import gc
import json
import logging
import os
import threading
import time
import weakref
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from quire.tiers.store import block_store, writer
from quire.tiers.store.block_store import BlockStore
from quire.tiers.store.layout import files
from tiers.store.stores import (
    BLOCK_BYTES,
    RECORD_BYTES,
    ROOT,
    chain,
    contents,
    key,
    keys,
    open_store,
    poll_until,
    readable,
    segments,
    write,
)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[BlockStore]:
    store = open_store(tmp_path)
    yield store
    store.close()


@pytest.fixture
def other(tmp_path: Path, store: BlockStore) -> Iterator[BlockStore]:
    other = open_store(tmp_path)
    yield other
    other.close()


def test_what_was_written_is_read_in_any_order(store: BlockStore) -> None:
    assert write(store, chain(1, 2, 3, 4, 5)) == []
    assert readable(store, keys(4, 1, 9, 2, 1, 5)) == keys(4, 1, 2, 1, 5)
    assert (store.num_blocks, store.stats.writes, store.stats.reads, store.stats.hits) == (5, 5, 6, 5)


def test_blocks_come_and_go_as_arrays(store: BlockStore) -> None:
    data = np.random.default_rng(0).integers(0, 256, (3, BLOCK_BYTES), dtype=np.uint8)
    assert store.write(chain(1, 2, 3), data) == []
    into = np.zeros((5, BLOCK_BYTES), np.uint8)
    assert store.read(keys(3, 9, 1), into[1:4]) == [1]
    assert np.array_equal(into[[1, 3]], data[[2, 0]])
    assert not into[[0, 4]].any()


def test_a_key_that_is_there_is_not_written_again(store: BlockStore) -> None:
    write(store, chain(1, 2))
    assert write(store, [*chain(1, 2, 3), *chain(1)]) == []
    assert segments_bytes(store) == 3


def segments_bytes(store: BlockStore) -> int:
    """Return the bytes of records on disk."""
    return sum(path.stat().st_size // RECORD_BYTES for path in segments(store.namespace.path.parents[1]))


def test_blocks_written_together_lie_side_by_side_and_are_read_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store(tmp_path, max_bytes=8 * (128 + 8 * RECORD_BYTES))
    write(store, chain(1, 2, 3, 4, 5))
    write(store, chain(11, 12, 13, 14))  # does not fit after them
    write(store, chain(*range(20, 30)))  # fits nowhere: two segments
    assert [(path.stat().st_size - 128) // RECORD_BYTES for path in segments(tmp_path)] == [5, 4, 8, 2]
    calls: list[int] = []
    original = os.preadv

    def counted(file: int, parts: list[memoryview], at: int) -> int:
        calls.append(len(parts) // 2)
        return original(file, parts, at)

    monkeypatch.setattr(os, "preadv", counted)
    assert len(readable(store, keys(14, 13, 12, 11, 1, 2, 5))) == 7
    assert sorted(calls) == [1, 2, 4]
    store.close()


def test_polling_tells_of_each_change_once(store: BlockStore, other: BlockStore) -> None:
    write(store, chain(1, 2))
    changes = store.poll()
    assert changes is not None
    assert sorted(changes.added) == sorted(keys(1, 2))
    assert store.poll() is None
    assert sorted(poll_until(other, lambda told: len(told.added) == 2).added) == sorted(keys(1, 2))
    assert readable(other, keys(1, 2)) == keys(1, 2)


def test_an_engine_that_waits_is_woken(store: BlockStore, other: BlockStore) -> None:
    woken = threading.Event()
    other.on_change = woken.set
    write(store, chain(1))
    assert woken.wait(20)
    changes = other.poll()
    assert changes is not None
    assert changes.added == keys(1)


def test_the_first_poll_tells_what_is_there(tmp_path: Path, store: BlockStore) -> None:
    write(store, chain(*range(100)))
    store.close()
    again = open_store(tmp_path)
    changes = again.poll()
    assert changes is not None
    assert sorted(changes.added) == sorted(keys(*range(100)))
    assert readable(again, keys(*range(100))) == keys(*range(100))
    again.close()


@pytest.mark.parametrize("damage", ["deleted", "empty", "of another segment"])
def test_an_index_may_be_lost_or_altered_at_any_time(tmp_path: Path, damage: str) -> None:
    for numbers in (range(5), range(5, 12)):
        store = open_store(tmp_path)
        write(store, chain(*numbers))
        store.close()
    indexes = sorted(tmp_path.glob("kv/*/*.idx"))
    assert len(indexes) == 2
    data = indexes[0].read_bytes()
    if damage == "deleted":
        indexes[0].unlink()
    elif damage == "empty":
        indexes[0].write_bytes(b"")
    else:
        indexes[0].write_bytes(indexes[1].read_bytes())
    store = open_store(tmp_path)
    assert readable(store, keys(*range(12))) == keys(*range(12))
    assert indexes[0].read_bytes() == data, "written again"
    store.close()


def test_other_namespaces_see_nothing(tmp_path: Path, store: BlockStore) -> None:
    write(store, chain(1))
    other = open_store(tmp_path, root=bytes(32), model="org/another model")
    assert readable(other, keys(1)) == []
    assert {path.name for path in (tmp_path / "kv").iterdir() if path.is_dir()} == {
        f"tiny-{ROOT.hex()[:12]}",
        "org-another-model-000000000000",
    }
    other.close()


def test_a_model_that_lies_elsewhere_finds_its_blocks(tmp_path: Path, store: BlockStore) -> None:
    """A path may be relative, or differ on the exporting machine."""
    write(store, chain(1))
    moved = open_store(tmp_path, model="/srv/models/tiny")
    assert readable(moved, keys(1)) == keys(1)
    moved.close()


def test_a_person_can_read_what_a_namespace_is(tmp_path: Path) -> None:
    open_store(tmp_path, facts={"dtype": "float32"}).close()
    (path,) = tmp_path.glob("kv/*/namespace.json")
    known = json.loads(path.read_text())
    assert (known["model"], known["block_bytes"], known["facts"]) == ("tiny", BLOCK_BYTES, {"dtype": "float32"})


@pytest.mark.parametrize("umask", [0, 0o777])
def test_nobody_else_can_read_it_whatever_the_umask(tmp_path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        store = open_store(tmp_path)
        write(store, chain(1))
        store.delete(keys(1))
        write(store, chain(2))
        store.close()
    finally:
        os.umask(before)
    for path in [tmp_path / "kv", *tmp_path.rglob("kv/**/*")]:
        assert path.stat().st_mode & 0o777 == (0o700 if path.is_dir() else 0o600), path


def test_a_directory_that_others_can_write_to_is_refused(tmp_path: Path) -> None:
    (tmp_path / "kv").mkdir()
    (tmp_path / "kv").chmod(0o770)
    with pytest.raises(ValueError, match="chmod go-w"):
        open_store(tmp_path)


def test_a_directory_of_somebody_else_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "kv").mkdir(mode=0o700)
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    with pytest.raises(ValueError, match="name a directory of your own"):
        open_store(tmp_path)


def test_what_is_no_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "kv").write_text("")
    with pytest.raises(ValueError, match="not a directory"):
        open_store(tmp_path)


def test_a_limit_without_room_for_a_few_blocks_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="at least"):
        open_store(tmp_path, max_bytes=3 * RECORD_BYTES)


def test_a_namespace_of_another_version_is_refused(tmp_path: Path, store: BlockStore) -> None:
    path = store.namespace.path / "namespace.json"
    path.write_text(path.read_text().replace('"format": 1', '"format": 2'))
    with pytest.raises(ValueError, match="another version of Quire"):
        open_store(tmp_path)


@pytest.mark.parametrize("old", ['"format": 1', '"root": "', '"block_bytes": '])
def test_a_damaged_namespace_file_is_put_aside(
    old: str, tmp_path: Path, store: BlockStore, caplog: pytest.LogCaptureFixture
) -> None:
    path = store.namespace.path / "namespace.json"
    honest = path.read_text()
    path.write_text(honest.replace(old, old.replace("1", "null") if "format" in old else old + "9"))
    open_store(tmp_path).close()
    assert "is damaged" in caplog.text
    assert json.loads(path.read_text())["root"] == json.loads(honest)["root"]
    assert (path.parent / "namespace.json.damaged").exists()


def make_read_only(monkeypatch: pytest.MonkeyPatch) -> None:
    original = os.open

    def open_to_read(path: Path, flags: int, mode: int = 0o777) -> int:
        if flags & (os.O_RDWR | os.O_WRONLY | os.O_CREAT):
            raise OSError(errno.EROFS, os.strerror(errno.EROFS))
        return original(path, flags, mode)

    monkeypatch.setattr(os, "open", open_to_read)


def test_a_directory_that_cannot_be_written_to_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    store = open_store(tmp_path)
    write(store, chain(1, 2))
    store.close()
    make_read_only(monkeypatch)
    with caplog.at_level(logging.WARNING, "quire"):
        store = open_store(tmp_path)
        assert write(store, chain(2, 3)) == [1]
    assert readable(store, keys(1, 2)) == keys(1, 2)
    store.claim(key(9), 1.0)
    assert poll_until(store, lambda told: bool(told.granted)).granted == keys(9)
    with pytest.raises(ValueError, match="cannot be written to"):
        store.delete(keys(1))
    store.close()
    assert len(caplog.records) == 1


def test_a_directory_that_cannot_be_written_to_and_is_empty_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "kv").mkdir(mode=0o700)
    make_read_only(monkeypatch)
    with pytest.raises(ValueError, match="cannot be written to"):
        open_store(tmp_path)


def test_a_full_disk_stops_nothing(
    store: BlockStore, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(writer, "_PAUSE_S", 0.0)
    write(store, chain(1))
    original = os.pwritev
    room = 2 * RECORD_BYTES + 50

    def pwritev(file: int, parts: list[memoryview], at: int) -> int:
        nonlocal room
        data = b"".join(parts)[:room]
        if not data:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        room -= len(data)
        return original(file, [data], at)

    monkeypatch.setattr(os, "pwritev", pwritev)
    with caplog.at_level(logging.WARNING, "quire"):
        assert write(store, chain(2, 3, 4, 5, after=key(1))) == [2, 3]
        assert write(store, chain(4)) == [0]
        assert len(caplog.records) == 1, "one warning"
    monkeypatch.setattr(os, "pwritev", original)
    assert readable(store, keys(1, 2, 3, 4)) == keys(1, 2, 3)
    assert write(store, chain(4, 5)) == [], "and goes on once there is room"
    assert readable(store, keys(1, 2, 3, 4, 5)) == keys(1, 2, 3, 4, 5)


def test_writing_pauses_while_the_disk_fails(store: BlockStore, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = 0

    def failing(*_: object) -> int:
        nonlocal calls
        calls += 1
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "pwritev", failing)
    assert write(store, chain(1)) == [0]
    assert write(store, chain(1)) == [0]
    assert calls == 1
    assert store.stats.write_errors == 1


def test_blocks_of_another_shape_are_not_written_and_nothing_is_raised(store: BlockStore) -> None:
    assert store.write(chain(1), np.zeros((1, BLOCK_BYTES + 1), np.uint8)) == [0]
    write(store, chain(1))
    assert store.read(keys(1), np.zeros((1, BLOCK_BYTES + 1), np.uint8)) == [0]
    assert store.read(keys(1), [memoryview(bytearray(BLOCK_BYTES + 1))]) == [0]
    assert store.read(keys(1), [memoryview(bytearray(BLOCK_BYTES))]) == []


def test_a_directory_that_was_removed_by_hand_is_made_again(tmp_path: Path, store: BlockStore) -> None:
    write(store, chain(1, 2))
    store.poll()
    for path in sorted(tmp_path.rglob("kv/**/*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    store.refresh()
    assert sorted(poll_until(store, lambda told: len(told.removed) == 2).removed) == sorted(keys(1, 2))
    assert readable(store, keys(1)) == []
    assert write(store, chain(1)) == []
    assert readable(store, keys(1)) == keys(1)


def test_a_segment_unlinked_by_hand_is_a_miss(tmp_path: Path, store: BlockStore) -> None:
    write(store, chain(1))
    store.close()
    reader = open_store(tmp_path)
    reader.poll()
    segments(tmp_path)[0].unlink()
    assert readable(reader, keys(1)) == []
    assert reader.stats.failed_checks == 0
    assert poll_until(reader, lambda told: bool(told.removed)).removed == keys(1)
    reader.close()


def test_a_block_that_two_stored_is_found_while_one_of_them_is_left(tmp_path: Path) -> None:
    first, second = open_store(tmp_path), open_store(tmp_path)
    first._catalog.refresh = second._catalog.refresh = lambda: None  # neither sees the other
    write(first, chain(1))
    write(second, chain(1))
    first.close()
    second.close()
    third = open_store(tmp_path)
    assert third.num_blocks == 1
    assert len(segments(tmp_path)) == 2
    segments(tmp_path)[0].unlink()
    third.refresh()
    assert readable(third, keys(1)) == keys(1)
    third.close()


def test_a_forgotten_store_ends(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    write(store, chain(1))
    thread, gone = store._thread, weakref.ref(store)
    del store
    gc.collect()  # the thread holds the store while working
    thread.join(20)
    assert gone() is None
    assert not thread.is_alive()
    again = open_store(tmp_path)
    assert readable(again, keys(1)) == keys(1)
    again.close()


def test_a_closed_store_stores_and_finds_nothing(store: BlockStore) -> None:
    write(store, chain(1))
    store.close()
    store.close()
    assert write(store, chain(2)) == [0]
    assert store.read(keys(1), contents(keys(1))) == [0]


def test_a_clock_that_goes_back_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = open_store(tmp_path, max_bytes=8 * (128 + 4 * RECORD_BYTES))
    write(store, chain(0, 1, 2, 3))
    monkeypatch.setattr(time, "time", lambda: 1.0)
    for first in range(4, 80, 4):
        assert write(store, chain(*range(first, first + 4))) == []
        assert len(readable(store, keys(*range(first, first + 4)))) == 4
    store.delete(keys(79))
    assert readable(store, keys(79)) == []
    store.close()
    again = open_store(tmp_path)
    assert readable(again, keys(76, 77, 78, 79)) == keys(76, 77, 78)
    again.close()


def test_a_process_that_was_stopped_with_a_lock_stops_nobody(
    tmp_path: Path, store: BlockStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(store, chain(1))
    store._writer.seal()
    monkeypatch.setattr(files, "_LOCK_PATIENCE_S", 0.01)
    monkeypatch.setattr(writer, "_PAUSE_S", 0.0)
    with files.locked(tmp_path / "kv" / "lock"):
        assert write(store, chain(2)) == [0]
        assert readable(store, keys(1)) == keys(1)
        with pytest.raises(ValueError, match="another process holds a lock"):
            open_store(tmp_path)
    assert write(store, chain(2)) == []


def test_a_mistake_of_the_stores_own_thread_does_not_end_it(
    store: BlockStore, other: BlockStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(block_store, "_REFRESH_EVERY_S", 0.01)
    original = other._catalog.refresh
    failed = threading.Event()

    def failing() -> None:
        if not failed.is_set():
            failed.set()
            raise RuntimeError("a mistake")
        original()

    other._catalog.refresh = failing
    assert failed.wait(20)
    write(store, chain(1))
    assert poll_until(other, lambda told: bool(told.added)).added == keys(1)
