"""Memory per block and files grow linearly with many blocks."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import pytest

from tiers.store.stores import chain, key, open_store, readable, segments, write

BLOCK_BYTES = 16
RECORD_BYTES = 128 + BLOCK_BYTES
ROWS_BYTES = 80  #: bytes of an index row


@pytest.mark.parametrize("num_blocks", [5_000, pytest.param(200_000, marks=pytest.mark.slow)])
def test_many_blocks_are_found_again(tmp_path: Path, num_blocks: int) -> None:
    max_bytes = 3 * num_blocks * RECORD_BYTES
    store = open_store(tmp_path, block_bytes=BLOCK_BYTES, max_bytes=max_bytes)
    for first in range(0, num_blocks, 1000):
        assert write(store, chain(*range(first, first + 1000))) == []
    store.close()
    assert len(list((tmp_path / "kv").rglob("*"))) < 30, "files: two a segment, and a few more"
    some = [key(number) for number in range(0, num_blocks, num_blocks // 50)]
    for has_index in (True, False):
        if not has_index:
            for path in segments(tmp_path):
                path.with_suffix(".idx").unlink()
        tracemalloc.start()
        store = open_store(tmp_path, block_bytes=BLOCK_BYTES, max_bytes=max_bytes)
        changes = store.poll()
        assert changes is not None
        assert len(changes.added) == store.num_blocks == num_blocks
        del changes
        held, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert held / num_blocks < 500, "bytes a block"
        assert readable(store, some) == some
        store.close()
