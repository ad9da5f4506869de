"""Whatever happens to the files, a block returns unchanged or not at all, and the store keeps working."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from quire.tiers.store.block_store import BlockStore
from quire.tiers.store.layout.deletions import Deletions
from quire.tiers.store.layout.record import SEGMENT_VERSIONS, FileHeader
from quire.tiers.store.layout.segment import Segment
from tiers.store.stores import (
    BLOCK_BYTES,
    RECORD_BYTES,
    ROOT,
    chain,
    key,
    keys,
    offset,
    open_store,
    readable,
    segments,
    write,
)

ALL = (1, 2, 3)


def stored(directory: Path, *, with_index: bool = True) -> Path:
    """Return the file of a sealed segment of three blocks."""
    store = open_store(directory)
    write(store, chain(*ALL))
    store.close()
    (path,) = segments(directory)
    if not with_index:
        path.with_suffix(".idx").unlink()
    return path


def flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1 << (at % 8)
    path.write_bytes(data)


def check_goes_on(store: BlockStore) -> None:
    """Check that lost and new blocks can be stored."""
    assert write(store, chain(*ALL, 4)) == []
    assert readable(store, keys(*ALL, 4)) == keys(*ALL, 4)


def test_a_flipped_bit_in_a_record_loses_its_block_and_no_other(tmp_path: Path) -> None:
    path = stored(tmp_path)
    intact = path.read_bytes()
    store = open_store(tmp_path)
    for at in range(offset(1), offset(2), 3):
        store.poll()
        flip(path, at)
        assert readable(store, keys(*ALL)) == keys(1, 3), at
        changes = store.poll()
        assert changes is not None
        assert changes.removed == keys(2)
        path.write_bytes(intact)
        store._catalog.remove_segment(store._catalog.segments[path.name])
        store.refresh()
    assert store.stats.failed_checks == len(range(offset(1), offset(2), 3))
    flip(path, offset(1) + 5)
    readable(store, keys(*ALL))
    check_goes_on(store)
    store.close()


def test_a_flipped_bit_is_noticed_by_whoever_scans(tmp_path: Path) -> None:
    path = stored(tmp_path, with_index=False)
    intact = path.read_bytes()
    for at in [*range(0, offset(0), 8), *range(offset(1), offset(2), 8)]:
        flip(path, at)
        path.with_suffix(".idx").unlink(missing_ok=True)
        store = open_store(tmp_path)
        assert readable(store, keys(*ALL)) == (keys(1, 3) if at >= offset(1) else []), at
        check_goes_on(store)
        store.close()
        for other in segments(tmp_path):
            if other != path:
                other.unlink()
        path.write_bytes(intact)


def test_a_flipped_bit_in_an_index_is_noticed(tmp_path: Path) -> None:
    path = stored(tmp_path)
    index = path.with_suffix(".idx")
    segment = Segment(0, path, ROOT, BLOCK_BYTES)
    assert segment.load_index()
    size = index.stat().st_size
    for at in range(0, size, 2):
        flip(index, at)
        assert not segment.load_index() or 12 <= at < 16, at  # padding
        flip(index, at)
    index.write_bytes(index.read_bytes()[:-1])
    assert not segment.load_index()


@pytest.mark.parametrize("with_index", [True, False])
def test_a_file_that_was_cut_loses_what_it_lost(tmp_path: Path, with_index: bool) -> None:
    path = stored(tmp_path, with_index=with_index)
    data = path.read_bytes()
    for end in [0, 1, 127, 128, 129, offset(1) - 1, offset(1), offset(1) + 128, offset(2) + 1, offset(3) - 1]:
        path.write_bytes(data[:end])
        store = open_store(tmp_path)
        assert readable(store, keys(*ALL)) == keys(*(n for n in ALL if offset(n) <= end)), end
        check_goes_on(store)
        store.close()
        for other in segments(tmp_path):
            if other != path:
                other.unlink()
        if not with_index:
            path.with_suffix(".idx").unlink(missing_ok=True)


def test_a_file_that_is_cut_under_a_running_store(tmp_path: Path) -> None:
    path = stored(tmp_path)
    store = open_store(tmp_path)
    assert readable(store, keys(1)) == keys(1)
    os.truncate(path, offset(1) + 10)
    assert readable(store, keys(*ALL)) == keys(1)
    check_goes_on(store)
    store.close()


def test_what_is_under_way_is_found_once_it_is_whole(tmp_path: Path) -> None:
    """A reader of a live segment sees half a record, and later the rest."""
    (tmp_path / "from").mkdir()
    source = stored(tmp_path / "from", with_index=False)
    data = source.read_bytes()
    store = open_store(tmp_path)
    live = store.namespace.path / source.name
    for end in range(128, len(data) + 1, 40):
        live.write_bytes(data[:end])
        store.refresh()
        assert readable(store, keys(*ALL)) == keys(*(n for n in ALL if offset(n) <= end)), end
    store.close()


def test_a_record_of_another_key_is_none(tmp_path: Path) -> None:
    path = stored(tmp_path)
    data = path.read_bytes()
    swapped = data[:128] + data[offset(1) : offset(2)] + data[offset(0) : offset(1)] + data[offset(2) :]
    path.write_bytes(swapped)
    store = open_store(tmp_path)
    assert readable(store, keys(*ALL)) == keys(3)
    store.close()


def test_a_segment_of_another_namespace_is_left_alone(tmp_path: Path) -> None:
    path = stored(tmp_path)
    other = open_store(tmp_path, root=bytes(32))
    (other.namespace.path / path.name).write_bytes(path.read_bytes())
    other.refresh()
    assert readable(other, keys(*ALL)) == []
    assert other.stats.foreign_segments == 1
    other.close()


def test_a_segment_of_another_version_is_never_touched(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = stored(tmp_path)
    content = FileHeader(SEGMENT_VERSIONS[-1] + 1, BLOCK_BYTES, 1 << 20, ROOT).encode() + bytes(2000)
    path.write_bytes(content)
    path.with_suffix(".idx").unlink()
    store = open_store(tmp_path, max_bytes=8000)
    for first in range(0, 100, 4):  # many times the limit
        write(store, chain(*range(first, first + 4)))
        store.refresh()
    assert path.read_bytes() == content
    assert sum("another version" in record.message for record in caplog.records) == 1
    assert store.num_blocks >= 4
    store.close()


def test_a_damaged_segment_is_evicted_like_any_other(tmp_path: Path) -> None:
    path = stored(tmp_path)
    flip(path, 3)
    store = open_store(tmp_path, max_bytes=8000)
    for first in range(0, 100, 4):
        write(store, chain(*range(first, first + 4)))
    assert not path.exists()
    store.close()


@pytest.mark.parametrize("row", [0, 1, 2])
def test_where_a_tombstone_is_damaged_everything_older_is_dead(tmp_path: Path, row: int) -> None:
    """The deleted key is unknown, and must not come back."""
    store = open_store(tmp_path)
    store._compact_some = lambda now: None  # type: ignore[method-assign]
    write(store, chain(1, 2, 3))
    write(store, chain(7))
    for number in (3, 2, 1):
        store.delete(keys(number))
    store._is_closed = True  # as if killed
    store._stop()
    flip(store.namespace.path / "deletions", 64 + row * 48 + 2)
    again = open_store(tmp_path)
    assert readable(again, keys(1, 2, 3, 7)) == []
    assert write(again, chain(1, 2, 3, 7)) == []
    assert readable(again, keys(1, 2, 3, 7)) == keys(1, 2, 3, 7)
    again.close()
    again = open_store(tmp_path)
    assert readable(again, keys(1, 2, 3, 7)) == keys(1, 2, 3, 7)
    again.close()


def test_half_a_tombstone_is_overwritten_by_the_next(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    write(store, chain(1))
    write(store, chain(2))
    store.delete(keys(1))
    with store._deletions.path.open("ab") as file:
        file.write(b"x" * 30)
    store.delete(keys(2))
    known = Deletions(store.namespace.path, ROOT, read_only=True)
    assert sorted(known.refresh()) == sorted(keys(1, 2))
    assert (known.epochs[key(2)], known.floor) == (2, 0)
    store.close()


def test_records_have_one_size() -> None:
    assert RECORD_BYTES == 128 + BLOCK_BYTES
