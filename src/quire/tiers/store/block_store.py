"""The store of KV blocks on disk, shared by all processes that name one directory. `write` and `read` run in a transfer
thread; `poll`, `claim` and `delete` in the engine's; refreshes and grants in the store's own. A read of an evicted
block fails, and never returns wrong bytes. Nothing is synced: after a power loss, checksums find intact blocks."""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from quire.outputs import StoreChanges
from quire.tiers.store.catalog import Catalog, StoreStats
from quire.tiers.store.claims import CLAIM_EVERY_S, ClaimQueue
from quire.tiers.store.compaction import compact
from quire.tiers.store.layout.cipher import Cipher
from quire.tiers.store.layout.coding import CodingTally, kind_of
from quire.tiers.store.layout.deletions import Deletions
from quire.tiers.store.layout.files import locked, remove_unlocked
from quire.tiers.store.layout.generation import Generation
from quire.tiers.store.layout.namespace import LOCK, Label, open_directory, open_namespace, read_labels, write_label
from quire.tiers.store.layout.record import Row
from quire.tiers.store.reader import Reader
from quire.tiers.store.writer import Writer

logger = logging.getLogger("quire")

_LOOK_EVERY_S = 0.1  #: check of the generation, if the engine does not poll
_REFRESH_EVERY_S = 1.0  #: for changes without a new generation: other machines, removed files
_COMPACT_AFTER_S = 30.0  #: collects several deletions into one compaction
_MAX_DELETIONS_BYTES = 64 << 10  #: tombstones, once their blocks are gone
_TOMBSTONE_ROOM = 1 << 20  #: bytes to free for tombstones on a full disk
_MOSTLY_DEAD = 0.5  #: dead share that is compacted at once


@dataclass(frozen=True)
class StoredBlock:
    key: bytes  #: 32 bytes
    parent: bytes  #: 32 bytes: the previous key, or the namespace's root
    cost_s: float = 0.0  #: predicted seconds to compute it, for eviction
    epoch: int | None = None  #: `BlockStore.epoch` when its storage was decided; None for the epoch of the `write`
    must_code: bool = False  #: code its exponents if that is smaller, whatever the store has measured


class BlockStore:
    """The blocks of one namespace with a `root` of 32 bytes, described by `facts`. The directory holds all namespaces,
    within `max_bytes` for all processes; a read-only one is only read. `dtype` is that of
    blocks to code, and `cipher` encrypts them. ValueError if the directory cannot be used."""

    def __init__(
        self,
        directory: str | os.PathLike[str],
        *,
        model: str,
        root: bytes,
        block_bytes: int,
        max_bytes: int,
        facts: Mapping[str, str] = {},
        dtype: str = "",
        cipher: Cipher | None = None,
    ) -> None:
        self._cipher = cipher
        self.block_bytes = block_bytes
        self.coded_kind = kind_of(dtype, block_bytes)
        self.tally = CodingTally()  #: of reads and writes
        self.on_change: Callable[[], None] | None = None  #: called by any thread when `poll` has changes
        self._is_closed = False
        self._is_notified = False  #: `on_change` was called since the last `poll`
        self._compact_at: float | None = None
        self._compacting = threading.Lock()
        self._last_error = ("", "")
        path, self.is_read_only = open_directory(directory)
        # The thread refers to the store only during its work, so that an unreferenced store ends.
        self._wake = threading.Event()
        self._stop = weakref.finalize(self, self._wake.set)
        self._stop.atexit = False
        try:
            self._open(path, model, root, max_bytes, facts)
        except OSError as error:
            raise ValueError(
                f"kv_dir={str(directory)!r} cannot be used: {error.strerror or error}; name a directory on a disk "
                "where this user may write and there is room"
            ) from None
        arguments = (weakref.ref(self), self._wake, self._stop)
        self._thread = threading.Thread(target=_work, args=arguments, name="quire-kv-store", daemon=True)
        self._thread.start()

    def _open(self, directory: Path, model: str, root: bytes, max_bytes: int, facts: Mapping[str, str]) -> None:
        if self.is_read_only:
            logger.warning("kv store: %s cannot be written to; blocks are only read", directory)
            self._open_namespace(directory, model, root, max_bytes, facts)
            return
        with locked(directory / LOCK):
            self._open_namespace(directory, model, root, max_bytes, facts)
            _remove_leftovers(self.namespace.path)
            self._writer.check_room()
        self._deletions.repair()
        self._catalog.refresh()
        self._catalog.finish_abandoned()
        if any(segment.num_dead for segment in self._catalog.segments.values()):
            self._compact_at = time.monotonic()
        elif self._deletions.has_any:
            self._empty_deletions()

    def _open_namespace(
        self, directory: Path, model: str, root: bytes, max_bytes: int, facts: Mapping[str, str]
    ) -> None:
        namespace = open_namespace(directory, self.is_read_only, model, root, self.block_bytes, facts)
        self.namespace = replace(namespace, cipher=self._cipher)
        where = self.namespace.path
        self._deletions = Deletions(where, root, self.is_read_only)
        self._generation = Generation(where, self.is_read_only)
        self._seen = self._generation.read()  # before the deletions, so that none is missed
        self._catalog = Catalog(self.namespace, self._deletions, _weakly(self._notify))
        self._claims = ClaimQueue(where, self._catalog, self.is_read_only)
        self._writer = Writer(self.namespace, self._catalog, max_bytes, self.coded_kind, self.tally)
        self._reader = Reader(self._catalog, self.tally)
        self._refreshed = self._seen
        self._applied = Generation.deletions(self._seen)
        self._refreshed_at = time.monotonic()
        if self.is_read_only:
            self._catalog.refresh()

    @property
    def epoch(self) -> int:
        """Number of deletions that `poll` has returned. See `StoredBlock.epoch`."""
        return self._catalog.polled_epoch

    @property
    def num_blocks(self) -> int:
        return self._catalog.num_blocks

    @property
    def num_bytes(self) -> int:
        """Size of this namespace's segments."""
        return self._catalog.num_bytes

    @property
    def stats(self) -> StoreStats:
        return self._catalog.stats

    def __contains__(self, key: bytes) -> bool:
        return key in self._catalog

    def write(self, blocks: Sequence[StoredBlock], data: np.ndarray) -> list[int]:
        """Store `[n, block_bytes]` blocks, unless deleted after their `epoch`. Returns indices not stored; never
        raises."""
        if self.is_read_only or self._is_closed or self._writer.is_paused:
            return [i for i, block in enumerate(blocks) if block.key not in self._catalog]
        try:
            return self._write(blocks, self._buffers(data, len(blocks)))
        except Exception as error:
            self._log_error("writing", error)
            return [i for i, block in enumerate(blocks) if block.key not in self._catalog]

    def read(self, keys: Sequence[bytes], into: np.ndarray | Sequence[memoryview]) -> list[int]:
        """Read and check blocks into `[n, block_bytes]` or n buffers. Returns the indices of missing or damaged (now
        discarded) ones, whose buffers are undefined. Never raises."""
        stats = self._catalog.stats
        stats.reads += len(keys)
        failed = list(range(len(keys)))
        if not self._is_closed:
            try:
                self._apply_deletions(self._generation.read())
                failed = self._reader.read(keys, self._buffers(into, len(keys)))
            except Exception as error:
                self._log_error("reading", error)
        stats.hits += len(keys) - len(failed)
        return failed

    def poll(self) -> StoreChanges | None:
        """Return the changes since the last call; the first call returns all blocks. Others' writes come later."""
        value = self._generation.read()
        if value != self._seen:
            self._apply_deletions(value)
            self._seen = value
            self._wake.set()
        if not self._catalog.has_changed and not self._claims.has_answers:
            return None
        with self._catalog.lock:
            changes = self._catalog.pop_changes()
            changes.granted, changes.expired = self._claims.pop_answers()
            self._is_notified = False
        return changes

    def claim(self, key: bytes, patience_s: float) -> None:
        """Ask to compute the blocks up to a key; `poll` answers. A grant ends when they are written, dropped, or at
        exit."""
        self._claims.ask(key, patience_s)
        self._wake.set()

    def drop_claim(self, key: bytes) -> None:
        self._claims.drop(key)

    def delete(self, keys: Iterable[bytes]) -> int:
        """Delete keys and all blocks chained after them, for all processes. Returns their number. ValueError if the
        directory is read-only; OSError if the disk failed."""
        if self.is_read_only:
            raise ValueError(f"{self.namespace.path} cannot be written to, so nothing can be deleted there")
        deleted = set(keys)
        num_deleted = 0
        with self._deletions.exclusively():
            self._catalog.refresh()
            epoch = self._deletions.next_epoch
            num_rows = self._catalog.num_rows
            new = deleted | self._catalog.descendants(deleted)
            while new:
                num_deleted += sum(key in self._catalog for key in new)
                self._append_deletions(new, epoch)
                self._generation.bump(deleted=True)
                deleted |= new
                # Writers check tombstones after each write, and erase blocks that this has not found.
                self._catalog.refresh()
                has_grown, num_rows = self._catalog.num_rows > num_rows, self._catalog.num_rows
                new = self._catalog.descendants(deleted) - deleted if has_grown else set()
        self._wake.set()
        return num_deleted

    def label(self, name: str, first_key: bytes, last_key: bytes, num_tokens: int = 0, domain: str = "") -> None:
        """Name a document, the blocks from the first key to the last. Never raises. A repeated name is replaced."""
        if not self.is_read_only:
            keys = self._catalog.chain(first_key, last_key)
            try:
                write_label(self.namespace, Label(name, tuple(keys), num_tokens, domain))
            except OSError as error:
                self._log_error("labelling", error)

    def labels(self) -> Mapping[str, Label]:
        """The named documents, oldest first."""
        return read_labels(self.namespace)

    def delete_label(self, name: str) -> int:
        """Delete a document by name (`delete`). Returns the number of deleted blocks, 0 for an unknown name."""
        label = self.labels().get(name)
        if label is None:
            return 0
        num_deleted = self.delete(label.keys)
        write_label(self.namespace, Label(name, ()))
        return num_deleted

    def refresh(self) -> None:
        """Apply the changes of other processes now instead of within a second."""
        self._catalog.refresh()

    def compact(self) -> None:
        """Remove the bytes of deleted blocks from the disk. May take seconds."""
        if not self.is_read_only and not self._is_closed:
            self._catalog.refresh()
            with self._compacting:
                compact(self._catalog, self._writer)
            self._generation.bump()
            self._reader.close_unlinked()

    def close(self) -> None:
        """Close all files. Stored blocks stay."""
        if self._is_closed:
            return
        self._is_closed = True
        self._stop()
        if self._thread is not threading.current_thread():
            self._thread.join()
        if not self.is_read_only:
            with contextlib.suppress(OSError), self._writer.busy:
                self._writer.seal()
            if any(segment.num_dead for segment in self._catalog.segments.values()):
                compact(self._catalog, self._writer)
            self._generation.bump()
        self._reader.close()
        with self._catalog.lock:
            self._claims.close()
            self._deletions.close()
            self._generation.close()

    def _write(self, blocks: Sequence[StoredBlock], data: Sequence[memoryview]) -> list[int]:
        epoch = self._catalog.polled_epoch  # first: later deletions apply to these blocks
        rows = [
            Row(block.key, block.parent, block.cost_s, epoch if block.epoch is None else block.epoch)
            for block in blocks
        ]
        with self._writer.busy:
            self._catalog.refresh_deletions()
            refused = self._catalog.find_deleted(rows)
            first = {row.key: i for i, row in reversed(list(enumerate(rows)))}  # each key once
            new = [i for i in sorted(first.values()) if i not in refused and rows[i].key not in self._catalog]
            codes = [blocks[i].must_code for i in new]
            num_done = self._writer.append([rows[i] for i in new], [data[i] for i in new], codes)
            written = new[:num_done]
            self._catalog.stats.writes += num_done
            self._catalog.refresh_deletions()
            late = self._catalog.find_deleted([rows[i] for i in written])
            if late:
                self._writer.erase([rows[written[i]].key for i in late])
        self._bump_generation()
        self._claims.end_stored(row.key for row in rows)
        return [i for i, row in enumerate(rows) if row.key not in self._catalog]

    def _append_deletions(self, keys: set[bytes], epoch: int) -> None:
        try:
            self._deletions.append(keys, epoch)
        except OSError:  # deleting is more important than stored blocks
            self._writer.free_space(_TOMBSTONE_ROOM)
            self._catalog.refresh_deletions()
            self._deletions.append(keys, epoch)

    def _empty_deletions(self) -> None:
        with self._deletions.exclusively():
            self._catalog.refresh()
            has_dead = any(segment.num_dead for segment in list(self._catalog.segments.values()))
            if self._deletions.has_any and not has_dead:
                self._deletions.empty()
        self._catalog.refresh_deletions()

    def _apply_deletions(self, value: bytes) -> None:
        deletions = Generation.deletions(value)
        if deletions != self._applied:
            self._catalog.refresh_deletions()
            self._applied = deletions

    def _bump_generation(self) -> None:
        """Notify other processes, but not this one."""
        before = self._generation.read()
        written = self._generation.bump()
        if before == self._seen == self._refreshed:
            self._seen = self._refreshed = written + before[len(written) :]

    def _tick(self) -> float:
        """Do the thread's work. Returns the seconds until the next call."""
        value, now = self._generation.read(), time.monotonic()
        is_late = now - self._refreshed_at >= _REFRESH_EVERY_S
        if value != self._refreshed or is_late:
            if is_late:
                self._generation.reopen_if_replaced()
            self._refreshed, self._refreshed_at = value, now
            self._catalog.refresh()
            self._reader.close_unlinked()
        self._claims.serve()
        self._notify()
        if not self.is_read_only:
            self._compact_some(now)
        return CLAIM_EVERY_S if self._claims.is_waiting else _LOOK_EVERY_S

    def _compact_some(self, now: float) -> None:
        if not any(segment.num_dead for segment in list(self._catalog.segments.values())):
            self._compact_at = None
            if self._deletions.has_any and self._deletions.size > _MAX_DELETIONS_BYTES:
                self._empty_deletions()
            return
        if self._compact_at is None:
            self._compact_at = now + _COMPACT_AFTER_S
        is_due = now >= self._compact_at
        if is_due:
            self._compact_at = now + _COMPACT_AFTER_S
        before = self._catalog.stats.compacted_segments
        with self._compacting:
            compact(self._catalog, self._writer, 0.0 if is_due else _MOSTLY_DEAD)
        if self._catalog.stats.compacted_segments > before:
            self._bump_generation()
            self._reader.close_unlinked()

    def _notify(self) -> None:
        if (self._catalog.has_changed or self._claims.has_answers) and not self._is_notified:
            self._is_notified = True
            if self.on_change is not None:
                try:
                    self.on_change()
                except Exception as error:
                    self._log_error("notifying the engine", error)

    def _buffers(self, data: np.ndarray | Sequence[memoryview], count: int) -> Sequence[memoryview]:
        if isinstance(data, Sequence):
            if [len(buffer) for buffer in data] != [self.block_bytes] * count:
                raise ValueError(f"expected {count} buffers of {self.block_bytes} bytes")
            return data
        if data.shape != (count, self.block_bytes):
            raise ValueError(f"expected shape {(count, self.block_bytes)}, got {tuple(data.shape)}")
        return [row.data for row in data]

    def _log_error(self, what: str, error: Exception) -> None:
        """Log an error once until another one occurs."""
        self._catalog.stats.write_errors += what == "writing"
        level = logging.DEBUG if self._last_error == (what, repr(error)) else logging.WARNING
        self._last_error = (what, repr(error))
        logger.log(level, "kv store: %s failed: %r", what, error)


def _work(store_of: weakref.ref[BlockStore], wake: threading.Event, stop: weakref.finalize) -> None:
    timeout_s = 0.0
    while True:
        wake.wait(timeout_s)
        wake.clear()
        store = store_of()
        if store is None or not stop.alive:
            return
        try:
            timeout_s = store._tick()
        except Exception as error:
            store._log_error("refreshing", error)
            timeout_s = _REFRESH_EVERY_S
        del store


def _weakly(method: Callable[[], None]) -> Callable[[], None]:
    """Return a function that calls a method while its object exists."""
    reference = weakref.WeakMethod(method)

    def call() -> None:
        bound = reference()
        if bound is not None:
            bound()

    return call


def _remove_leftovers(namespace: Path) -> None:
    """Remove temporary files and stray indexes of killed processes."""
    remove_unlocked(namespace, "*.tmp")
    for path in namespace.glob("*.idx"):
        if not path.with_suffix(".seg").exists():
            with contextlib.suppress(OSError):
                path.unlink()
