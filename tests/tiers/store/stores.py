"""Stores over one directory, blocks with content derived from their keys, and chains of them."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from quire.outputs import StoreChanges
from quire.tiers.store.block_store import BlockStore, StoredBlock
from quire.tiers.store.layout.record import FILE_HEADER_BYTES, HEADER_BYTES

ROOT = bytes(range(32))
BLOCK_BYTES = 40
RECORD_BYTES = HEADER_BYTES + BLOCK_BYTES
PATIENCE_S = 60.0


def open_store(directory: Path, **changed: Any) -> BlockStore:
    arguments: dict[str, Any] = {"model": "tiny", "root": ROOT, "block_bytes": BLOCK_BYTES, "max_bytes": 1 << 20}
    return BlockStore(directory / "kv", **(arguments | changed))


def key(number: int) -> bytes:
    return hashlib.sha256(number.to_bytes(8, "little")).digest()


def keys(*numbers: int) -> list[bytes]:
    return [key(number) for number in numbers]


def contents(wanted: Sequence[bytes], block_bytes: int = BLOCK_BYTES) -> Any:
    """Return the contents of these keys' blocks as an array, which spares processes importing torch. A third of them
    get smaller as coded bfloat16."""
    rows = [hashlib.shake_128(key).digest(block_bytes) for key in wanted]
    blocks = np.frombuffer(bytearray(b"".join(rows)), dtype=np.uint8).reshape(-1, block_bytes)
    if block_bytes % 2 == 0:
        shrinks = [each[0] % 3 == 0 for each in wanted]
        words = blocks.view(np.uint16)
        words[shrinks] = words[shrinks] & 0x807F | 0x3F80  # one exponent
    return blocks


def chain(*numbers: int, after: bytes = ROOT, cost_s: float = 0.0, epoch: int | None = None) -> list[StoredBlock]:
    """Return a chain of blocks."""
    parents = [after, *keys(*numbers)]
    return [StoredBlock(key(number), parents[i], cost_s, epoch) for i, number in enumerate(numbers)]


def write(store: BlockStore, blocks: Sequence[StoredBlock]) -> list[int]:
    return store.write(blocks, contents([block.key for block in blocks], store.block_bytes))


def readable(store: BlockStore, wanted: Sequence[bytes]) -> list[bytes]:
    """Return the keys of readable blocks, and check their content."""
    into: Any = np.full((len(wanted), store.block_bytes), 99, dtype=np.uint8)
    failed = set(store.read(wanted, into))
    expected = contents(wanted, store.block_bytes)
    for i in range(len(wanted)):
        assert i in failed or np.array_equal(into[i], expected[i]), "a wrong byte"
    return [key for i, key in enumerate(wanted) if i not in failed]


def poll_until(store: BlockStore, is_enough: Callable[[StoreChanges], bool]) -> StoreChanges:
    """Poll until a condition holds; return all results."""
    told = StoreChanges()
    until = time.monotonic() + PATIENCE_S
    while True:
        changes = store.poll()
        if changes is not None:
            told.added += changes.added
            told.removed += changes.removed
            told.deleted += changes.deleted
            told.granted += changes.granted
            told.expired += changes.expired
            if is_enough(told):
                return told
        assert time.monotonic() < until, f"waited in vain; {len(told.added)} added, {told.granted=} {told.expired=}"
        time.sleep(1e-3)


def segments(directory: Path) -> list[Path]:
    return sorted(directory.glob("kv/*/*.seg"))


def offset(row: int) -> int:
    return FILE_HEADER_BYTES + row * RECORD_BYTES
