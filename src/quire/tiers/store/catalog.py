"""The blocks of a namespace in memory, kept up to date with all processes. The directory is the truth."""

from __future__ import annotations

import contextlib
import itertools
import logging
import os
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TypeVar

from quire.outputs import StoreChanges
from quire.tiers.store.index import Index, find_descendants, pack_location, unpack_location
from quire.tiers.store.layout.deletions import Deletions
from quire.tiers.store.layout.files import OpenFile
from quire.tiers.store.layout.namespace import Namespace
from quire.tiers.store.layout.record import FILE_HEADER_BYTES, HEADER_BYTES, SEGMENT_VERSIONS, Row
from quire.tiers.store.layout.segment import NAME, Segment, read_file_header

logger = logging.getLogger("quire")

_Created = TypeVar("_Created")

_MAX_LOOKS = 5
_CHUNK = 1000  #: rows added at once, the longest that the engine's thread waits for


@dataclass(slots=True)
class StoreStats:
    """Counts since the store was opened."""

    reads: int = 0  #: requested blocks
    hits: int = 0  #: returned blocks
    writes: int = 0  #: blocks
    failed_checks: int = 0  #: torn or altered records, which were discarded
    evicted_segments: int = 0  #: by this process
    compacted_segments: int = 0
    write_errors: int = 0  #: failed calls, and segments without room
    foreign_segments: int = 0  #: of another version, ignored


class Catalog:
    """The blocks of one namespace. Thread-safe; `lock` is not held while a segment is read or `notify` runs."""

    def __init__(self, namespace: Namespace, deletions: Deletions, notify: Callable[[], None]) -> None:
        self.lock = threading.RLock()
        self.stats = StoreStats()
        self.segments: dict[str, Segment] = {}  #: by file name
        self.deletions = deletions
        self.namespace = namespace
        self._index = Index()
        self._by_number: dict[int, Segment] = {}
        self._numbers = itertools.count()
        self._ignored: set[str] = set()
        self._refreshing = threading.RLock()
        self._reading_growth = threading.Lock()
        self._notify = notify
        self._found: dict[bytes, bool] = {}  #: key -> added or removed, since `pop_changes`
        self._deleted: dict[bytes, None] = {}
        self.has_changed = False
        self.num_rows = 0  #: added so far
        self.deletions.refresh()
        self._floor = self.deletions.floor  #: applied
        self.polled_epoch = self.deletions.epoch  #: of the deletions that `pop_changes` has returned

    @property
    def num_blocks(self) -> int:
        return len(self._index)

    @property
    def num_bytes(self) -> int:
        with self.lock:
            return sum(segment.size for segment in self.segments.values())

    def __contains__(self, key: bytes) -> bool:
        return key in self._index

    def pop_changes(self) -> StoreChanges:
        with self.lock:
            self.polled_epoch, segments = self.deletions.epoch, self.segments.values()
            plain = sum(each.num_rows * each.record_bytes for each in segments)
            changes = StoreChanges(
                added=[key for key, is_added in self._found.items() if is_added],
                removed=[key for key, is_added in self._found.items() if not is_added],
                deleted=list(self._deleted),
                stored_share=sum(each.size - FILE_HEADER_BYTES for each in segments) / plain if plain else 1.0,
            )
            self._found, self._deleted = {}, {}
            self.has_changed = False
        return changes

    def report_again(self, key: bytes) -> bool:
        """Report a stored key as added once more. Returns whether it is stored."""
        with self.lock:
            if key in self._index:
                self._record(key, True)
                return True
        return False

    def locate(self, keys: Sequence[bytes]) -> list[tuple[Segment, int] | None]:
        """The segment and row of each key, or None."""
        with self.lock:
            locations = [self._index.find(key) for key in keys]
            return [None if location is None else self._at(location) for location in locations]

    def discard(self, key: bytes, segment: Segment, row: int) -> None:
        with self.lock:
            self.stats.failed_checks += 1
            self._remove(key, segment, row)
        self._notify()

    def new_segment(self, path: Path, create: Callable[[Segment], _Created]) -> _Created:
        """Add a segment while this process creates its file."""
        with self._refreshing:
            segment = Segment(next(self._numbers), path, self.namespace.root, self.namespace.block_bytes)
            segment.is_ours = True
            created = create(segment)
            with self.lock:
                self.segments[path.name] = self._by_number[segment.number] = segment
        return created

    def append(self, segment: Segment, rows: Iterable[tuple[Row, int]]) -> bool:
        """Add the rows of written records with their sizes. Returns False if the file was removed meanwhile."""
        with self.lock:
            if segment.is_gone:
                return False
            first = segment.num_rows
            for row, num_bytes in rows:
                segment.append(row, num_bytes)
            self._add_rows(segment, list(segment.enumerate_rows(first)))
        self._notify()
        return True

    def erase_row(self, segment: Segment, number: int) -> None:
        """Remove a record that this process has erased."""
        with self.lock:
            self._remove(segment.row(number).key, segment, number)
            segment.erase(number)
        self._notify()

    def is_dead(self, row: Row) -> bool:
        with self.lock:
            return self.deletions.is_dead(row)

    def find_deleted(self, rows: Sequence[Row]) -> set[int]:
        """Return the rows deleted since their epoch, by themselves or an ancestor. An unknown chain counts as
        deleted."""
        with self.lock:
            if all(row.epoch >= self.deletions.epoch for row in rows):
                return set()
            parents = {row.key: row.parent for row in rows}
            allowed: dict[bytes, bool] = {self.namespace.root: True}
            return {
                number
                for number, row in enumerate(rows)
                if row.epoch < self.deletions.epoch and not self._is_chain_alive(row, parents, allowed)
            }

    def _is_chain_alive(self, row: Row, parents: dict[bytes, bytes], allowed: dict[bytes, bool]) -> bool:
        if row.epoch < max(self.deletions.floor, self.deletions.forgotten):
            return False
        chain: list[bytes] = []
        key: bytes | None = row.key
        while key is not None and key not in allowed:
            if self.deletions.epochs.get(key, 0) > row.epoch:
                allowed[key] = False
                break
            allowed[key] = False  # until the end is known; a cycle is no chain
            chain.append(key)
            key = parents[key] if key in parents else self._parent_of(key)
        is_alive = key is not None and allowed[key]
        allowed.update(dict.fromkeys(chain, is_alive))
        return is_alive

    def refresh(self) -> None:
        """Find written, evicted and deleted blocks. Deletions are read first, as deleted blocks may be gone, and again
        last."""
        self.refresh_deletions()
        with self._refreshing:
            for _ in range(_MAX_LOOKS):
                if self._compare():
                    break  # otherwise a segment was compacted meanwhile
        self.refresh_deletions()

    def refresh_deletions(self) -> None:
        with self.lock:
            self._apply(self.deletions.refresh())
            has_missed, self.deletions.has_missed = self.deletions.has_missed, False
            keys = list(self._index.all_keys()) if has_missed else []  # any of them may have been deleted
            for key in keys:
                self._record_deleted(key)
        if has_missed:
            self.refresh()
            with self.lock:  # the remaining files hold the others
                for key in keys:
                    if key in self._index:
                        self._record(key, True)
        self._notify()

    def remove_segment(self, segment: Segment) -> None:
        """Remove a segment whose file is gone."""
        with self.lock:
            if self.segments.pop(segment.path.name, None) is None:
                return
            del self._by_number[segment.number]
            segment.is_gone = True
            for number, row in segment.enumerate_rows():
                self._remove(row.key, segment, number)
        self._notify()

    def read_growth(self, segment: Segment, has_index: bool = False) -> None:
        """Read new records of a segment that another process writes."""
        if segment.is_sealed:
            return
        with self._reading_growth, contextlib.suppress(OSError):
            if has_index or segment.path.stat().st_size >= segment.size + HEADER_BYTES:
                first = segment.scan(OpenFile(segment.path))
                segment.is_sealed = has_index
                self._add(segment, first)

    def finish_abandoned(self) -> None:
        """Write the indexes of segments whose writers were killed."""
        for segment in list(self.segments.values()):
            if not segment.is_sealed and not segment.is_ours:
                with contextlib.suppress(OSError):
                    file = OpenFile(segment.path, os.O_RDWR)
                    if file.lock() is True:
                        self.read_growth(segment)
                        segment.size = file.size
                        segment.save_index()

    def chain(self, first: bytes, last: bytes) -> list[bytes]:
        """The known keys of the chain from `first` to `last`."""
        keys = [last]
        with self.lock:
            while keys[-1] != first and len(keys) <= len(self._index):
                parent = self._parent_of(keys[-1])
                if parent is None or parent == self.namespace.root:
                    break
                keys.append(parent)
        if keys[-1] != first:
            keys.append(first)
        return keys[::-1]

    def descendants(self, keys: Iterable[bytes]) -> set[bytes]:
        """All known keys chained after these."""
        with self.lock:
            tables = [bytes(segment.rows) for segment in self.segments.values()]
        return find_descendants(tables, keys)

    def _compare(self) -> bool:
        """Compare the directory with the known segments. Returns False if a file vanished before it was read."""
        try:
            names = {entry.name for entry in os.scandir(self.namespace.path)}
        except OSError:
            names = set()
        with self.lock:
            known = dict(self.segments)
        is_complete = True
        for name in sorted(names - known.keys() - self._ignored):
            if NAME.fullmatch(name):
                is_complete &= self._load(name)
        for name, segment in known.items():
            if name not in names:
                self.remove_segment(segment)
            elif not segment.is_sealed and not segment.is_ours:
                self.read_growth(segment, segment.index_path.name in names)
        self._ignored &= names
        return is_complete

    def _load(self, name: str) -> bool:
        """Load a segment of another process. Returns False if it is gone."""
        segment = Segment(0, self.namespace.path / name, self.namespace.root, self.namespace.block_bytes)
        try:
            file = OpenFile(segment.path)
            header = read_file_header(file)
            if header is None or header.version not in SEGMENT_VERSIONS or header.block_bytes != segment.block_bytes:
                self._ignore(name, "is damaged" if header is None else "is of another version")
                return True
            if header.root != segment.root:
                self._ignore(name, "belongs to another namespace")
                return True
            if not segment.load_index():
                segment.scan(file)
        except FileNotFoundError:
            return False
        except OSError:
            return True
        with self.lock:
            segment.number = next(self._numbers)
            self.segments[name] = self._by_number[segment.number] = segment
        self._add(segment, 0)
        return True

    def _ignore(self, name: str, why: str) -> None:
        self._ignored.add(name)
        self.stats.foreign_segments += 1
        logger.warning("kv store: %s %s and is ignored", self.namespace.path / name, why)

    def _add(self, segment: Segment, first: int) -> None:
        rows = segment.enumerate_rows(first)
        while chunk := list(islice(rows, _CHUNK)):
            with self.lock:
                if segment.is_gone:
                    return
                self._add_rows(segment, chunk)
            self._notify()

    def _add_rows(self, segment: Segment, rows: list[tuple[int, Row]]) -> None:
        self.num_rows += len(rows)
        for number, row in rows:
            if row.epoch > self.deletions.latest:
                self.deletions.latest = row.epoch
            if self.deletions.is_dead(row):
                segment.num_dead += 1
                continue
            segment.live_cost_s += row.cost_s
            if self._index.add(row.key, pack_location(segment.number, number)):
                self._record(row.key, True)

    def _parent_of(self, key: bytes) -> bytes | None:
        location = self._index.find(key)
        if location is None:
            return None
        segment, number = self._at(location)
        return segment.row(number).parent

    def _at(self, location: int) -> tuple[Segment, int]:
        number, row = unpack_location(location)
        return self._by_number[number], row

    def _remove(self, key: bytes, segment: Segment, row: int) -> None:
        if self._index.remove(key, pack_location(segment.number, row)):
            self._record(key, False)

    def _record(self, key: bytes, is_added: bool) -> None:
        self._found[key] = is_added
        self.has_changed = True

    def _record_deleted(self, key: bytes) -> None:
        self._found.pop(key, None)
        self._deleted[key] = None
        self.has_changed = True

    def _apply(self, deleted: Iterable[bytes]) -> None:
        for key in deleted:
            self._remove_dead(key)
            if key not in self._index:
                self._found.pop(key, None)
            self._deleted[key] = None
            self.has_changed = True
        if self.deletions.floor > self._floor:
            self._floor = self.deletions.floor
            for key in self._index.all_keys():
                if self._remove_dead(key):
                    self._record_deleted(key)

    def _remove_dead(self, key: bytes) -> bool:
        """Remove the dead locations of a key, but not newer ones. Returns whether there were any."""
        num_removed = 0
        for location in self._index.locations(key):
            segment, number = self._at(location)
            row = segment.row(number)
            if self.deletions.is_dead(row):
                num_removed += 1
                segment.num_dead += 1
                segment.live_cost_s -= row.cost_s
                self._index.remove(key, location)
        return num_removed > 0
