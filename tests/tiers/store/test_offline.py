"""Offline maintenance of a store: list, verify, prune, delete, copy."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from quire.tiers.store import offline
from tiers.store.stores import BLOCK_BYTES, RECORD_BYTES, ROOT, chain, key, keys, offset, open_store, readable, segments
from tiers.store.stores import write as write_blocks


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Two sealed segments in one namespace, and one in another."""
    for first in (1, 4):
        store = open_store(tmp_path, facts={"dtype": "float32"})
        write_blocks(store, chain(first, first + 1, first + 2, cost_s=float(first)))
        store.label(f"document {first}", key(first), key(first + 2), num_tokens=48, domain="public")
        store.close()
    other = open_store(tmp_path, root=bytes(32), model="other")
    write_blocks(other, chain(1))
    other.close()
    return tmp_path / "kv"


def test_namespaces_are_listed_with_their_documents(directory: Path) -> None:
    other, tiny = offline.list_namespaces(directory)
    assert (other.model, other.num_blocks, other.documents) == ("other", 1, [])
    assert (tiny.model, tiny.root, tiny.facts) == ("tiny", ROOT.hex(), {"dtype": "float32"})
    assert (tiny.num_blocks, tiny.num_segments, tiny.dead_bytes, tiny.block_bytes) == (6, 2, 0, BLOCK_BYTES)
    assert tiny.num_bytes == sum(path.stat().st_size for path in (directory / tiny.name).iterdir())
    assert tiny.oldest_use is not None
    assert tiny.newest_use is not None
    assert tiny.oldest_use <= tiny.newest_use
    assert tiny.documents == [
        offline.Document("document 1", 48, "public", num_blocks=3, num_found=3),
        offline.Document("document 4", 48, "public", num_blocks=3, num_found=3),
    ]


def test_deleted_blocks_are_counted_until_they_are_compacted(tmp_path: Path, directory: Path) -> None:
    store = open_store(tmp_path)
    store._compact_some = lambda now: None  # type: ignore[method-assign]
    store.delete(keys(3))
    figures = offline.list_namespaces(directory)[1]
    assert (figures.num_blocks, figures.dead_bytes) == (5, RECORD_BYTES)
    assert figures.documents[0].num_found == 2
    store.close()
    assert offline.list_namespaces(directory)[1].dead_bytes == 0


def test_a_document_is_deleted_by_its_name(tmp_path: Path, directory: Path) -> None:
    store = open_store(tmp_path)
    assert offline.delete_label(directory, "tiny", "document 1") == 3
    assert sorted((store.poll() or pytest.fail("told nothing")).deleted) == sorted(keys(1, 2, 3))
    assert readable(store, keys(1, 4)) == keys(4)
    assert list(store.labels()) == ["document 4"]
    store.close()
    with pytest.raises(ValueError, match="no document"):
        offline.delete_label(directory, "tiny", "document 1")


def test_a_damaged_label_is_skipped(tmp_path: Path, directory: Path) -> None:
    store = open_store(tmp_path)
    path = store.namespace.path / "labels"
    data = path.read_bytes()
    path.write_bytes(data[:30] + b"?" + data[31:] + b"half of one")
    store.label("document 7", key(7), key(7))
    assert list(store.labels()) == ["document 4", "document 7"]
    store.close()


def test_verifying_finds_what_is_damaged_and_nothing_else(directory: Path) -> None:
    told: list[tuple[int, int]] = []
    found = offline.verify(directory, lambda done, total: told.append((done, total)))
    assert (found.num_blocks, found.damaged, found.torn) == (7, [], [])
    assert told[-1][0] == told[-1][1] > 0
    first, second = (path for path in sorted(directory.glob("tiny*/*.seg")))
    data = bytearray(first.read_bytes())
    data[offset(1) + 140] ^= 1
    first.write_bytes(data)
    second.with_suffix(".idx").unlink()
    os.truncate(second, offset(2) + 50)  # its writer was killed
    found = offline.verify(directory)
    assert found.num_blocks == 5
    assert found.damaged == [f"{first}: record 1, at byte {offset(1)}"]
    assert found.torn == [str(second)]


def test_pruning_keeps_what_is_worth_the_most(directory: Path) -> None:
    dear = max(directory.glob("tiny*/*.seg"), key=lambda path: path.stat().st_mtime_ns)
    limit = offline.list_namespaces(directory)[1].num_bytes - 1
    assert len(offline.prune(directory, limit, "tiny")) == 1
    assert list(directory.glob("tiny*/*.seg")) == [dear]
    assert len(offline.prune(directory, 0)) == 2
    assert not list(directory.glob("*/*.seg"))


def test_what_is_being_written_is_not_pruned(tmp_path: Path, directory: Path) -> None:
    store = open_store(tmp_path)
    write_blocks(store, chain(9))
    offline.prune(directory, 0)
    store.refresh()
    assert readable(store, keys(1, 9)) == keys(9)
    store.close()


def test_a_namespace_is_copied_with_its_folder(tmp_path: Path, directory: Path) -> None:
    name = f"tiny-{ROOT.hex()[:12]}"
    store = open_store(tmp_path / "new")
    write_blocks(store, chain(7))
    store.close()
    shutil.copytree(directory / name, tmp_path / "new" / "kv" / name, dirs_exist_ok=True)
    store = open_store(tmp_path / "new")
    assert readable(store, keys(1, 2, 3, 4, 5, 6, 7)) == keys(1, 2, 3, 4, 5, 6, 7)
    assert list(store.labels()) == ["document 1", "document 4"]
    assert store.delete(keys(2)) == 2, "chains are as they were"
    store.close()


def test_an_unknown_namespace_or_directory_is_a_mistake(tmp_path: Path, directory: Path) -> None:
    with pytest.raises(ValueError, match=r"no namespaces are called 'big'; name one of: other-.*, tiny-"):
        offline.prune(directory, 0, "big")
    with pytest.raises(ValueError, match="no directory"):
        offline.list_namespaces(tmp_path / "nothing")
    assert segments(tmp_path)
