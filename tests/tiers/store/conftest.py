"""Fixtures of store tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from quire.tiers.store.block_store import BlockStore
from tiers.store.stores import open_store


@pytest.fixture
def stores(tmp_path: Path) -> Iterator[tuple[BlockStore, BlockStore]]:
    """Two stores on one directory."""
    pair = open_store(tmp_path), open_store(tmp_path)
    yield pair
    for store in pair:
        store.close()
