"""What a namespace holds, in memory: kept up to date with what this process and others write, delete and evict.

The directory is the truth. `refresh` compares it with what is known: new segments are read by their indexes, live ones
by the headers that came since, missing ones are forgotten. Nothing here writes a segment.
"""

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
from quire.tiers.store.index import Index, place_of, segment_and_row
from quire.tiers.store.layout.deletions import Deletions
from quire.tiers.store.layout.files import OpenFile
from quire.tiers.store.layout.namespace import Namespace
from quire.tiers.store.layout.record import VERSION, Row
from quire.tiers.store.layout.segment import NAME, Segment, read_file_header
from quire.tiers.store.lineage import find_descendants

logger = logging.getLogger("quire")

_Created = TypeVar("_Created")

_MAX_LOOKS = 5
_CHUNK = 1000  #: rows that are added at once, so that the engine's thread waits for no more


@dataclass(slots=True)
class StoreStats:
    """Counted since the store was opened."""

    reads: int = 0  #: blocks that were asked for
    hits: int = 0  #: of these, blocks that were given
    writes: int = 0  #: blocks
    failed_checks: int = 0  #: records that were torn or altered, and were put aside
    evicted_segments: int = 0  #: by this process
    compacted_segments: int = 0
    write_errors: int = 0  #: calls that failed, and segments for which there was no room
    foreign_segments: int = 0  #: of another version, left alone


class Catalog:
    """Of one namespace. Thread-safe; `lock` is never held while a segment is read.

    Args:
        tell: called, without the lock, after something changed.
    """

    def __init__(self, namespace: Namespace, deletions: Deletions, tell: Callable[[], None]) -> None:
        self.lock = threading.RLock()
        self.stats = StoreStats()
        self.segments: dict[str, Segment] = {}  #: by file name
        self.deletions = deletions
        self._namespace = namespace
        self._index = Index()
        self._by_number: dict[int, Segment] = {}
        self._numbers = itertools.count()
        self._ignored: set[str] = set()
        self._refreshing = threading.RLock()
        self._following = threading.Lock()
        self._tell = tell
        self._found: dict[bytes, bool] = {}  #: key -> added, or removed; since `take_changes`
        self._deleted: dict[bytes, None] = {}
        self.has_changed = False
        self.num_rows = 0  #: that were added so far
        self.deletions.refresh()
        self._floor = self.deletions.floor  #: that was applied
        self.polled_epoch = self.deletions.epoch  #: of the deletions that `take_changes` has told

    @property
    def num_blocks(self) -> int:
        return len(self._index)

    @property
    def num_bytes(self) -> int:
        with self.lock:
            return sum(segment.size for segment in self.segments.values())

    def __contains__(self, key: bytes) -> bool:
        return key in self._index

    def take_changes(self) -> StoreChanges:
        with self.lock:
            self.polled_epoch = self.deletions.epoch
            changes = StoreChanges(
                added=[key for key, is_added in self._found.items() if is_added],
                removed=[key for key, is_added in self._found.items() if not is_added],
                deleted=list(self._deleted),
            )
            self._found, self._deleted = {}, {}
            self.has_changed = False
        return changes

    def tell_again(self, key: bytes) -> bool:
        """Report a key as added, once more, if it is found."""
        with self.lock:
            if key in self._index:
                self._note(key, True)
                return True
        return False

    def locate(self, keys: Sequence[bytes]) -> list[tuple[Segment, int] | None]:
        """Where each key lies."""
        with self.lock:
            places = [self._index.find(key) for key in keys]
            return [None if place is None else self._at(place) for place in places]

    def lose(self, key: bytes, segment: Segment, row: int) -> None:
        """A record was torn or altered."""
        with self.lock:
            self.stats.failed_checks += 1
            self._remove(key, segment, row)
        self._tell()

    # What this process writes

    def new_segment(self, path: Path, create: Callable[[Segment], _Created]) -> _Created:
        """Know of a segment that this process creates, whose file is not there before and must not be missed.

        Raises:
            OSError: it could not be created.
        """
        with self._refreshing:
            segment = Segment(next(self._numbers), path, self._namespace.root, self._namespace.block_bytes)
            segment.is_ours = True
            created = create(segment)
            with self.lock:
                self.segments[path.name] = self._by_number[segment.number] = segment
        return created

    def append(self, segment: Segment, rows: Iterable[Row]) -> bool:
        """Its records are written. False where its file was removed meanwhile."""
        with self.lock:
            if segment.is_gone:
                return False
            first = segment.num_rows
            for row in rows:
                segment.append(row)
            self._add_rows(segment, list(segment.enumerate_rows(first)))
        self._tell()
        return True

    def blank(self, segment: Segment, number: int) -> None:
        """A record of this process was taken back."""
        with self.lock:
            self._remove(segment.row(number).key, segment, number)
            segment.blank(number)
        self._tell()

    def is_dead(self, row: Row) -> bool:
        with self.lock:
            return self.deletions.kills(row)

    def outlived(self, rows: Sequence[Row]) -> set[int]:
        """Which of these must not be stored, because they were deleted after somebody decided to store them.

        So was what they are chained after. Where the chain to the root is not known, they may have been: the answer is
        yes, which costs little as long as deletions are rare.
        """
        with self.lock:
            if all(row.epoch >= self.deletions.epoch for row in rows):
                return set()
            parents = {row.key: row.parent for row in rows}
            allowed: dict[bytes, bool] = {self._namespace.root: True}
            return {
                number
                for number, row in enumerate(rows)
                if row.epoch < self.deletions.epoch and not self._is_chain_alive(row, parents, allowed)
            }

    def _is_chain_alive(self, row: Row, parents: dict[bytes, bytes], allowed: dict[bytes, bool]) -> bool:
        if row.epoch < max(self.deletions.floor, self.deletions.forgotten):
            return False
        way: list[bytes] = []
        key: bytes | None = row.key
        while key is not None and key not in allowed:
            if self.deletions.epochs.get(key, 0) > row.epoch:
                allowed[key] = False
                break
            allowed[key] = False  # until the end is known; a circle is no chain
            way.append(key)
            place = self._index.find(key)
            if key in parents:
                key = parents[key]
            elif place is not None:
                segment, number = self._at(place)
                key = segment.row(number).parent
            else:
                key = None
        is_alive = key is not None and allowed[key]
        allowed.update(dict.fromkeys(way, is_alive))
        return is_alive

    # What others write

    def refresh(self) -> None:
        """Find what was written, evicted and deleted.

        Deletions come first, since what was deleted may be off the disk already, and last, since they go on.
        """
        self.refresh_deletions()
        with self._refreshing:
            for _ in range(_MAX_LOOKS):
                if self._compare():
                    break  # else something was compacted meanwhile, and is in another file
        self.refresh_deletions()

    def refresh_deletions(self) -> None:
        """Read tombstones, and apply them at once."""
        with self.lock:
            self._apply(self.deletions.refresh())
            has_missed, self.deletions.has_missed = self.deletions.has_missed, False
            keys = list(self._index.all_keys()) if has_missed else []  # then every one may have been deleted
            for key in keys:
                self._found.pop(key, None)
                self._deleted[key] = None
                self.has_changed = True
        if has_missed:
            self.refresh()
            with self.lock:  # the files that are left hold what was not
                for key in keys:
                    if key in self._index:
                        self._note(key, True)
        self._tell()

    def forget(self, segment: Segment) -> None:
        """A segment's file is gone."""
        with self.lock:
            if self.segments.pop(segment.path.name, None) is None:
                return
            del self._by_number[segment.number]
            segment.is_gone = True
            for number, row in segment.enumerate_rows():
                self._remove(row.key, segment, number)
        self._tell()

    def follow(self, segment: Segment, has_index: bool = False) -> None:
        """A segment that another process writes, or wrote, may have grown."""
        if segment.is_sealed:
            return
        with self._following, contextlib.suppress(OSError):
            if has_index or segment.path.stat().st_size >= segment.size + segment.record_bytes:
                first = segment.scan(OpenFile(segment.path))
                segment.is_sealed = has_index
                self._add(segment, first)

    def finish_abandoned(self) -> None:
        """Write the indexes of segments whose writers have ended suddenly."""
        for segment in list(self.segments.values()):
            if not segment.is_sealed and not segment.is_ours:
                with contextlib.suppress(OSError):
                    file = OpenFile(segment.path, os.O_RDWR)
                    if file.lock() is True:
                        self.follow(segment)
                        segment.size = file.size
                        segment.save_index()

    def chain(self, first: bytes, last: bytes) -> list[bytes]:
        """The keys from one to another that is chained after it. What is not known between them is left out."""
        keys = [last]
        with self.lock:
            while keys[-1] != first and len(keys) <= len(self._index):
                place = self._index.find(keys[-1])
                if place is None:
                    break
                segment, number = self._at(place)
                parent = segment.row(number).parent
                if parent == self._namespace.root:
                    break
                keys.append(parent)
        if keys[-1] != first:
            keys.append(first)
        return keys[::-1]

    def descendants(self, keys: Iterable[bytes]) -> set[bytes]:
        """All known keys that are chained after these."""
        with self.lock:
            tables = [bytes(segment.rows) for segment in self.segments.values()]
        return find_descendants(tables, keys)

    def _compare(self) -> bool:
        """The directory with what is known. False where a file went away before it could be read."""
        try:
            names = {entry.name for entry in os.scandir(self._namespace.path)}
        except OSError:
            names = set()
        with self.lock:
            known = dict(self.segments)
        is_complete = True
        for name in sorted(names - known.keys() - self._ignored):
            if NAME.fullmatch(name):
                is_complete &= self._learn(name)
        for name, segment in known.items():
            if name not in names:
                self.forget(segment)
            elif not segment.is_sealed and not segment.is_ours:
                self.follow(segment, segment.index_path.name in names)
        self._ignored &= names
        return is_complete

    def _learn(self, name: str) -> bool:
        """Read a segment of another process, or of one before this. False where it is gone."""
        segment = Segment(0, self._namespace.path / name, self._namespace.root, self._namespace.block_bytes)
        try:
            file = OpenFile(segment.path)
            header = read_file_header(file)
            if header is None or header.version != VERSION or header.block_bytes != segment.block_bytes:
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
        logger.warning("kv store: %s %s and is left alone", self._namespace.path / name, why)

    def _add(self, segment: Segment, first: int) -> None:
        rows = segment.enumerate_rows(first)
        while chunk := list(islice(rows, _CHUNK)):
            with self.lock:
                if segment.is_gone:
                    return
                self._add_rows(segment, chunk)
            self._tell()

    # With the lock

    def _add_rows(self, segment: Segment, rows: list[tuple[int, Row]]) -> None:
        self.num_rows += len(rows)
        for number, row in rows:
            if row.epoch > self.deletions.latest:
                self.deletions.latest = row.epoch
            if self.deletions.kills(row):
                segment.num_dead += 1
                continue
            segment.live_cost_s += row.cost_s
            if self._index.add(row.key, place_of(segment.number, number)):
                self._note(row.key, True)

    def _at(self, place: int) -> tuple[Segment, int]:
        number, row = segment_and_row(place)
        return self._by_number[number], row

    def _remove(self, key: bytes, segment: Segment, row: int) -> None:
        if self._index.remove(key, place_of(segment.number, row)):
            self._note(key, False)

    def _note(self, key: bytes, is_added: bool) -> None:
        self._found[key] = is_added
        self.has_changed = True

    def _apply(self, deleted: Iterable[bytes]) -> None:
        for key in deleted:
            self._kill(key)
            if key not in self._index:
                self._found.pop(key, None)
            self._deleted[key] = None
            self.has_changed = True
        if self.deletions.floor > self._floor:
            self._floor = self.deletions.floor
            for key in self._index.all_keys():
                if self._kill(key):
                    self._found.pop(key, None)
                    self._deleted[key] = None
                    self.has_changed = True

    def _kill(self, key: bytes) -> bool:
        """Forget the places of a deleted key, but not those where it was stored again. Whether there were any."""
        num_killed = 0
        for place in self._index.places(key):
            segment, number = self._at(place)
            row = segment.row(number)
            if self.deletions.kills(row):
                num_killed += 1
                segment.num_dead += 1
                segment.live_cost_s -= row.cost_s
                self._index.remove(key, place)
        return num_killed > 0
