"""Deleted blocks are found by no store, despite concurrent writers, until they are stored anew."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from quire.outputs import StoreChanges
from quire.tiers.store import block_store
from quire.tiers.store.block_store import BlockStore
from quire.tiers.store.compaction import compact
from tiers.store.stores import BLOCK_BYTES, ROOT, chain, contents, key, keys, open_store, readable, segments, write


def everything(directory: Path) -> bytes:
    return b"".join(path.read_bytes() for path in directory.rglob("kv/*/*.seg"))


@pytest.fixture(autouse=True)
def no_compaction_in_the_background(monkeypatch: pytest.MonkeyPatch) -> None:
    """Prevent background compaction, whose moment depends on the machine's load."""
    monkeypatch.setattr(block_store, "_MOSTLY_DEAD", 2.0)


def poll(store: BlockStore) -> StoreChanges:
    return store.poll() or StoreChanges()


def test_the_next_poll_of_every_process_tells_of_a_deletion(stores: tuple[BlockStore, BlockStore]) -> None:
    mine, other = stores
    write(mine, chain(1, 2))
    other.refresh()
    poll(other)
    assert mine.delete(keys(2)) == 1
    assert poll(other).deleted == keys(2)
    assert readable(other, keys(1, 2)) == keys(1)
    assert poll(mine).deleted == keys(2)
    assert readable(mine, keys(1, 2)) == keys(1)


def test_what_is_chained_after_it_is_deleted_too(stores: tuple[BlockStore, BlockStore]) -> None:
    mine, other = stores
    write(mine, chain(1, 2, 3))
    other.refresh()
    write(other, chain(4, 5, after=key(2)))
    write(other, chain(6))
    mine.refresh()
    assert mine.delete(keys(2)) == 4
    assert sorted(poll(other).deleted) == sorted(keys(2, 3, 4, 5))
    for store in stores:
        assert readable(store, keys(1, 2, 3, 4, 5, 6)) == keys(1, 6)


def test_a_deletion_holds_after_a_restart(tmp_path: Path, stores: tuple[BlockStore, BlockStore]) -> None:
    mine, other = stores
    write(mine, chain(1, 2, 3))
    other.delete(keys(2))
    third = open_store(tmp_path)
    assert readable(third, keys(1, 2, 3)) == keys(1)
    assert poll(third).deleted == []
    third.close()


def test_a_key_that_no_tier_of_the_store_holds_is_told_as_well(stores: tuple[BlockStore, BlockStore]) -> None:
    """It may be in another tier, or in transfer."""
    mine, other = stores
    assert mine.delete(keys(8)) == 0
    assert poll(other).deleted == keys(8)


def test_what_was_deleted_can_be_stored_again(tmp_path: Path, stores: tuple[BlockStore, BlockStore]) -> None:
    mine, other = stores
    write(mine, chain(1, 2))
    mine.delete(keys(1))
    poll(mine)
    assert write(mine, chain(1, 2)) == []
    assert sorted(poll(mine).added) == sorted(keys(1, 2))
    other.refresh()
    assert readable(other, keys(1, 2)) == keys(1, 2)
    third = open_store(tmp_path)
    assert readable(third, keys(1, 2)) == keys(1, 2)
    mine.delete(keys(1))
    assert poll(third).deleted
    assert readable(third, keys(1, 2)) == []
    third.close()


def test_what_was_on_its_way_is_refused(stores: tuple[BlockStore, BlockStore]) -> None:
    """`other` decided to store these blocks before the deletion was reported."""
    mine, other = stores
    write(mine, chain(1))
    mine.delete(keys(1))
    poll(mine)
    assert write(other, chain(1, 2)) == [0, 1]
    assert write(other, chain(9)) == [], "nothing else is"
    poll(other)
    assert write(other, chain(1, 2)) == []


def test_what_was_queued_before_a_deletion_is_refused_after_it_was_told(
    stores: tuple[BlockStore, BlockStore],
) -> None:
    mine, other = stores
    decided = other.epoch
    mine.delete(keys(1))
    poll(other)
    assert write(other, chain(1, 2, epoch=decided)) == [0, 1]
    assert write(other, chain(1, 2, epoch=other.epoch)) == []


def test_what_is_chained_after_something_that_was_never_stored(stores: tuple[BlockStore, BlockStore]) -> None:
    """Block 2 is between the deleted one and 3, but not stored: the origin of 3 is unknown."""
    mine, other = stores
    write(mine, chain(1))
    mine.delete(keys(1))
    assert write(other, chain(3, after=key(2))) == [0]
    poll(other)
    assert write(other, chain(3, after=key(2))) == []


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_deletion_in_the_middle_of_a_write_wins(
    tmp_path: Path, stores: tuple[BlockStore, BlockStore], moment: str
) -> None:
    """A descendant is written between the deleter's scan and its tombstone, or after both."""
    mine, other = stores
    write(mine, chain(1))
    other.refresh()
    append = other._writer.append

    def interrupted(rows: list, data: list, codes: list) -> int:
        if moment == "before":
            mine.delete(keys(1))
        num_done = append(rows, data, codes)
        if moment == "after":
            refresh, mine._catalog.refresh = mine._catalog.refresh, lambda: mine._catalog.refresh_deletions()
            mine.delete(keys(1))
            mine._catalog.refresh = refresh
        return num_done

    other._writer.append = interrupted  # type: ignore[method-assign]
    assert write(other, chain(2, 3, after=key(1))) == [0, 1]
    third = open_store(tmp_path)
    for store in (*stores, third):
        store.refresh()
        assert readable(store, keys(1, 2, 3)) == []
    third.close()
    other.compact()  # the writer erases late blocks at once, unless its thread has learned of the deletion first
    for path in segments(tmp_path):
        for number in (2, 3):
            assert contents(keys(number)).tobytes() not in path.read_bytes(), "late blocks are off the disk"


def test_deleted_bytes_are_gone_after_compaction(tmp_path: Path, stores: tuple[BlockStore, BlockStore]) -> None:
    mine, _ = stores
    write(mine, chain(1, 2, 3, 4, 5))
    write(mine, chain(6))
    mine.delete(keys(5, 6))
    mine.compact()
    held = everything(tmp_path)
    for number in (1, 2, 3, 4, 5, 6):
        assert (contents(keys(number)).tobytes() in held) == (number < 5), number
    for store in stores:
        store.refresh()
        assert readable(store, keys(1, 2, 3, 4, 5, 6)) == keys(1, 2, 3, 4)


def test_compaction_takes_nothing_from_those_who_read(stores: tuple[BlockStore, BlockStore]) -> None:
    """The block moves, and is always readable."""
    mine, other = stores
    write(mine, chain(1, 2, 3))
    other.refresh()
    poll(other)
    mine.delete(keys(3))
    mine.compact()
    other.refresh()
    changes = poll(other)
    assert (changes.removed, changes.deleted) == ([], keys(3))
    assert readable(other, keys(1, 2)) == keys(1, 2)


def test_a_segment_without_living_blocks_goes_by_itself(
    tmp_path: Path, stores: tuple[BlockStore, BlockStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    mine, _ = stores
    write(mine, chain(1, 2, 3))
    mine.delete(keys(1))
    monkeypatch.undo()
    mine._compact_some(0.0)
    assert segments(tmp_path) == []


def test_compaction_keeps_what_was_written_last(
    tmp_path: Path, stores: tuple[BlockStore, BlockStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The compactor has not read the segment since its writer added a block and released it."""
    mine, other = stores
    write(other, chain(1, 2))
    mine.delete(keys(2))
    poll(other)
    monkeypatch.setattr(mine._catalog, "refresh", lambda: None)
    monkeypatch.setattr(block_store, "compact", lambda *_: True)
    write(other, chain(3))
    other.close()
    monkeypatch.undo()
    (segment,) = mine._catalog.segments.values()
    compact(mine._catalog, mine._writer)
    assert not segment.path.exists()
    third = open_store(tmp_path)
    assert readable(third, keys(1, 2, 3)) == keys(1, 3)
    third.close()


def test_what_an_ended_process_left_is_compacted_by_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(block_store, "compact", lambda *_: True)  # it ends earlier
    first = open_store(tmp_path)
    write(first, chain(1, 2, 3))
    first.delete(keys(3))
    first.close()
    monkeypatch.undo()
    second = open_store(tmp_path)
    second.compact()
    assert contents(keys(3)).tobytes() not in everything(tmp_path)
    assert readable(second, keys(1, 2, 3)) == keys(1, 2)
    second.close()


def test_the_list_of_deletions_is_emptied_when_nothing_needs_it(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    write(store, chain(*range(100)))
    store.delete(keys(5))
    assert store._deletions.path.stat().st_size > 90 * 48
    store.close()
    again = open_store(tmp_path)
    assert again._deletions.path.stat().st_size == 64
    assert again.epoch == 1, "and they are counted on"
    assert again.num_blocks == 5
    again.close()


def test_a_long_list_is_emptied_and_nobody_misses_what_it_said(
    stores: tuple[BlockStore, BlockStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(block_store, "_MAX_DELETIONS_BYTES", 0)
    mine, other = stores
    other._tick = lambda: 60.0  # type: ignore[method-assign] # it looks when it is told to
    write(mine, chain(1, 2, 3))
    other.refresh()
    decided = other.epoch
    for number in (2, 1):
        mine.delete(keys(number))
        mine.compact()
        mine._compact_some(0.0)
        assert mine._deletions.path.stat().st_size == 64
        if number == 2:
            assert set(poll(other).deleted) == set(keys(2, 3))
            assert readable(other, keys(1, 2, 3)) == keys(1)
            assert write(other, chain(2, after=key(1), epoch=decided)) == [0]
    assert poll(other).deleted == keys(1)
    assert write(other, chain(1, 2, epoch=decided)) == [0, 1], "what was forgotten is not stored"
    assert write(other, chain(1, 2)) == []
    mine.refresh()
    assert readable(mine, keys(1, 2)) == keys(1, 2)


def test_who_missed_a_whole_list_takes_everything_for_deleted(
    stores: tuple[BlockStore, BlockStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(block_store, "_MAX_DELETIONS_BYTES", 0)
    mine, other = stores
    write(mine, chain(1))
    write(mine, chain(2))
    write(mine, chain(3))
    other.refresh()
    poll(other)
    with other._catalog.lock:  # it is paused for a while
        for number in (2, 1):
            mine.delete(keys(number))
            mine.compact()
            mine._compact_some(0.0)
    changes = poll(other)
    assert set(changes.deleted) == set(keys(1, 2, 3))
    added = set(changes.added)
    while added != set(keys(3)):  # the rest is reported once it was seen
        assert added < set(keys(3))
        added.update(poll(other).added)
    assert readable(other, keys(1, 2, 3)) == keys(3)


def test_the_list_of_deletions_may_be_lost(stores: tuple[BlockStore, BlockStore]) -> None:
    """Deleted but uncompacted blocks reappear; later deletions still hold."""
    mine, other = stores
    for n in range(3):
        mine.delete(keys(100 + n))
        poll(mine)
    write(mine, chain(1))
    mine._deletions.path.unlink()
    for store in stores:
        store.refresh()
    other.refresh()
    assert other.delete(keys(1)) == 1
    mine.refresh()
    assert readable(mine, keys(1)) == []


def test_a_process_that_opens_while_others_delete_sees_what_is_left(
    tmp_path: Path, stores: tuple[BlockStore, BlockStore]
) -> None:
    mine, _ = stores
    for number in range(10):
        write(mine, chain(number))
        if number % 2:
            mine.delete(keys(number))
            poll(mine)
    third = open_store(tmp_path)
    assert sorted(readable(third, keys(*range(10)))) == sorted(keys(0, 2, 4, 6, 8))
    third.close()


def test_a_deletion_on_a_full_disk_makes_room_for_itself(
    stores: tuple[BlockStore, BlockStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    mine, other = stores
    write(mine, chain(1, 2))
    original = os.pwrite
    shed: list[int] = []

    def pwrite(file: int, data: bytes, at: int) -> int:
        if not shed and len(data) == 2 * 48:
            original(file, data[:60], at)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return original(file, data, at)

    monkeypatch.setattr(os, "pwrite", pwrite)
    monkeypatch.setattr(mine._writer, "free_space", shed.append)
    assert mine.delete(keys(1)) == 2
    assert sorted(set(poll(other).deleted)) == sorted(keys(1, 2))
    assert readable(other, keys(1, 2)) == []
    assert shed


def test_constants_of_the_tests() -> None:
    assert len(ROOT) == 32
    assert BLOCK_BYTES > 16, "or the bytes of one block may be in another"
