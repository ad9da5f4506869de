"""Random operations of several stores on one directory, against a dictionary."""

from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from quire.tiers.store.block_store import BlockStore
from tiers.store.stores import BLOCK_BYTES, ROOT, chain, key, open_store, readable, write

DTYPES = ("", "bfloat16", "bfloat16")  #: one store codes nothing
NUM_KEYS = 12  #: a tree: number n follows n // 2

_stores = st.integers(0, 2)
_numbers = st.lists(st.integers(1, NUM_KEYS), min_size=1, max_size=5, unique=True)
_operations = st.lists(
    st.one_of(
        st.tuples(st.just("write"), _stores, _numbers),
        st.tuples(st.just("write"), _stores, _numbers),
        st.tuples(st.just("read"), _stores, _numbers),
        st.tuples(st.just("delete"), _stores, st.lists(st.integers(1, NUM_KEYS), min_size=1, max_size=2)),
        st.tuples(st.sampled_from(["poll", "refresh", "reopen", "compact", "lose index", "kill"]), _stores, _numbers),
    ),
    max_size=25,
)


def parent(number: int) -> bytes:
    return key(number // 2) if number > 1 else ROOT


def family(number: int) -> set[int]:
    """Return a block and its descendants."""
    return {other for other in range(1, NUM_KEYS + 1) if is_after(other, number)}


def is_after(other: int, number: int) -> bool:
    return other == number or (other > number and is_after(other // 2, number))


def stop_suddenly(store: BlockStore) -> None:
    """Close all files without sealing, as kill -9 would."""
    store._stop()
    store._thread.join()
    store._is_closed = True
    for file in (store._claims, store._deletions, store._generation):
        file.close()
    if store._writer.active is not None:
        store._writer.active.file.close()


@settings(max_examples=30, deadline=None)
@given(_operations)
def test_deleted_blocks_are_never_found_and_others_always(operations: list[tuple[str, int, list[int]]]) -> None:
    with tempfile.TemporaryDirectory() as name:
        stores = [open_store(Path(name), dtype=dtype) for dtype in DTYPES]
        there: set[int] = set()
        told = [set[int]() for _ in range(3)]  #: blocks that each engine believes to be there
        unaware: list[set[int]] = [set(), set(), set()]  #: deleted, but not reported to this one
        number_of = {key(n): n for n in range(1, NUM_KEYS + 1)}

        def poll(i: int) -> None:
            changes = stores[i].poll()
            if changes is not None:
                told[i] -= {number_of[each] for each in [*changes.deleted, *changes.removed]}
                told[i] |= {number_of[each] for each in changes.added}
            unaware[i].clear()

        for operation, i, numbers in operations:
            store = stores[i]
            if operation == "write":  # from the root on, as engines store them
                numbers = sorted({above for n in numbers for above in range(1, n + 1) if is_after(n, above)})
                blocks = [block for n in numbers for block in chain(n, after=parent(n))]
                failed = {numbers[at] for at in write(store, blocks)}
                refused = {n for n in numbers if any(is_after(n, gone) for gone in unaware[i])}
                if not unaware[i]:
                    assert not failed
                assert failed >= refused - there, "what was deleted came back"
                there |= set(numbers) - failed
            elif operation == "read":
                found = {number_of[each] for each in readable(store, [key(n) for n in numbers])}
                assert found <= there, "a deleted block was found"
            elif operation == "delete":
                gone = set().union(*(family(n) for n in numbers))
                store.delete([key(n) for n in numbers])
                there -= gone
                for each in unaware:
                    each |= set(numbers)
            elif operation == "poll":
                poll(i)
            elif operation == "refresh":
                store.refresh()
                poll(i)
                assert told[i] == there
            elif operation == "compact":
                store.compact()
            elif operation == "lose index":
                for path in Path(name).glob("kv/*/*.idx"):
                    path.unlink(missing_ok=True)  # or compacted meanwhile
            else:
                store.close() if operation == "reopen" else stop_suddenly(store)
                stores[i] = open_store(Path(name), dtype=DTYPES[i])
                told[i], unaware[i] = set(), set()
        for i, store in enumerate(stores):
            store.refresh()
            poll(i)
            every = [key(n) for n in range(1, NUM_KEYS + 1)]
            found = {number_of[each] for each in readable(store, every)}
            assert found == there == told[i]
            store.close()
        left = open_store(Path(name))
        assert {number_of[each] for each in readable(left, every)} == there
        assert left.stats.failed_checks == 0
        left.close()


def test_the_tree_is_as_it_says() -> None:
    assert family(2) == {2, 4, 5, 8, 9, 10, 11}
    assert BLOCK_BYTES == 40
