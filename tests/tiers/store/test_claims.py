"""One store computes a key while the others wait, and none waits for a dead process."""

from __future__ import annotations

import errno
import fcntl
import math
from pathlib import Path

import pytest

from quire.tiers.store.block_store import BlockStore
from serving import wait_until
from tiers.store.stores import chain, key, keys, open_store, poll_until, readable, write


def granted(store: BlockStore, number: int) -> None:
    """Claim a key and receive it."""
    store.claim(key(number), 20.0)
    told = poll_until(store, lambda told: bool(told.granted or told.added or told.expired))
    assert (told.granted, told.expired, key(number) in told.added) == (keys(number), [], False)


def test_a_key_is_granted_to_one_and_told_to_the_other_once_it_is_written(
    stores: tuple[BlockStore, BlockStore],
) -> None:
    first, second = stores
    granted(first, 2)
    second.claim(key(2), math.inf)
    granted(second, 7)  # after a round without 2
    write(first, chain(1, 2))
    told = poll_until(second, lambda told: key(2) in told.added)
    assert told.granted == []
    assert readable(second, keys(1, 2)) == keys(1, 2)
    assert not first._claims._claims.held, "written, so it is over"


def test_a_key_that_is_there_is_told_at_once(stores: tuple[BlockStore, BlockStore]) -> None:
    first, _ = stores
    write(first, chain(1))
    first.poll()
    first.claim(key(1), 0.0)
    changes = first.poll()
    assert changes is not None
    assert (changes.added, changes.granted) == (keys(1), [])


def test_a_key_that_another_has_just_written_is_not_granted(stores: tuple[BlockStore, BlockStore]) -> None:
    """Even before it was reported."""
    first, second = stores
    granted(first, 1)
    first._bump_generation = lambda: None  # type: ignore[method-assign]
    write(first, chain(1))
    assert key(1) not in second
    second.claim(key(1), 20.0)
    told = poll_until(second, lambda told: bool(told.granted or told.added))
    assert (told.granted, told.added) == ([], keys(1))
    wait_until(lambda: not second._claims._claims.held)


def test_patience_ends(stores: tuple[BlockStore, BlockStore]) -> None:
    first, second = stores
    granted(first, 1)
    second.claim(key(1), 0.0)
    told = poll_until(second, lambda told: bool(told.granted or told.added or told.expired))
    assert (told.granted, told.expired) == ([], keys(1))
    first.drop_claim(key(1))
    granted(second, 1)


def test_a_claim_that_is_dropped_goes_to_the_next(stores: tuple[BlockStore, BlockStore]) -> None:
    first, second = stores
    granted(first, 1)
    second.claim(key(1), 20.0)
    first.drop_claim(key(1))
    assert poll_until(second, lambda told: bool(told.granted)).granted == keys(1)


def test_a_waiting_claim_that_is_dropped_is_not_answered(stores: tuple[BlockStore, BlockStore]) -> None:
    first, second = stores
    granted(first, 1)
    second.claim(key(1), 20.0)
    second.drop_claim(key(1))
    second.drop_claim(key(3))
    first.drop_claim(key(1))
    granted(second, 2)
    assert second.poll() is None
    granted(first, 1)


def test_a_closed_store_holds_nothing(stores: tuple[BlockStore, BlockStore]) -> None:
    first, second = stores
    granted(first, 1)
    second.claim(key(1), 20.0)
    first.close()
    assert poll_until(second, lambda told: bool(told.granted)).granted == keys(1)


def test_a_failed_write_keeps_the_claim(stores: tuple[BlockStore, BlockStore], monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = stores
    granted(first, 1)
    monkeypatch.setattr(first._writer, "append", lambda rows, data, codes: 0)
    assert write(first, chain(1)) == [0]
    second.claim(key(1), 0.0)
    assert poll_until(second, lambda told: bool(told.expired)).expired == keys(1)


@pytest.mark.parametrize("has_locks", [True, False])
def test_where_there_are_no_locks_everyone_computes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, has_locks: bool
) -> None:
    if has_locks:  # while the file system has not

        def refusing(*_: object) -> None:
            raise OSError(errno.ENOLCK, "No locks available")

        monkeypatch.setattr(fcntl, "fcntl", refusing)
    else:
        monkeypatch.delattr(fcntl, "F_OFD_SETLK")
    for store in (open_store(tmp_path), open_store(tmp_path)):
        granted(store, 1)
        granted(store, 2)
        store.close()
    assert sum("no claims" in record.message for record in caplog.records) == 2, "one each"
