"""Read and check many blocks from their segments, neighbours in one call. The system reads ahead while some are
decoded."""

from __future__ import annotations

import contextlib
import os
import time
from collections import OrderedDict
from collections.abc import Iterator, Sequence

from quire.tiers.store.catalog import Catalog
from quire.tiers.store.layout.coding import CodingTally
from quire.tiers.store.layout.files import OpenFile, count_whole
from quire.tiers.store.layout.record import HEADER_BYTES, read_block
from quire.tiers.store.layout.segment import Segment

_MAX_FILES = 64  #: open at once
_MAX_RECORDS = 512  # per call: two buffers each, and systems take 1,024
_MAX_BYTES = 1 << 20  # per call: checksums are faster while the data is in cache
_TOUCH_EVERY_S = 60.0

_Wanted = tuple[int, int]  # row of a segment, index of the key


class Reader:
    """One thread at a time."""

    def __init__(self, catalog: Catalog, tally: CodingTally) -> None:
        self._catalog = catalog
        self._tally = tally
        self._files: OrderedDict[int, OpenFile] = OrderedDict()  #: by the segment's number, least recent first

    def read(self, keys: Sequence[bytes], into: Sequence[memoryview]) -> list[int]:
        missing = list(range(len(keys)))
        for _ in range(2):  # a block may have moved, and a damaged one may have a copy
            missing = self._read(keys, into, missing)
            if not any(keys[i] in self._catalog for i in missing):
                break
        return missing

    def close_unlinked(self) -> None:
        numbers = {segment.number for segment in list(self._catalog.segments.values())}
        for number in list(self._files):  # another thread may be reading
            if number not in numbers:
                self._files.pop(number, None)

    def close(self) -> None:
        self._files.clear()

    def _read(self, keys: Sequence[bytes], into: Sequence[memoryview], wanted: Sequence[int]) -> list[int]:
        by_segment: dict[int, tuple[Segment, list[_Wanted]]] = {}
        missing: list[int] = []
        for i, location in zip(wanted, self._catalog.locate([keys[i] for i in wanted]), strict=True):
            if location is None:
                missing.append(i)
            else:
                by_segment.setdefault(location[0].number, (location[0], []))[1].append((location[1], i))
        for segment, locations in by_segment.values():
            missing += self._read_segment(segment, sorted(locations), keys, into)
        return sorted(missing)

    def _read_segment(
        self, segment: Segment, locations: list[_Wanted], keys: Sequence[bytes], into: Sequence[memoryview]
    ) -> list[int]:
        try:
            file = self._open(segment)
        except OSError as error:
            if isinstance(error, FileNotFoundError):  # compacted, evicted, or unlinked by hand
                self._catalog.refresh()
            return [i for _, i in locations]
        bad: list[_Wanted] = []
        runs = list(_runs(locations, max(1, min(_MAX_RECORDS, _MAX_BYTES // segment.record_bytes))))
        for run, following in zip(runs, [*runs[1:], []], strict=True):
            parts = self._read_run(file, segment, run, into)
            if following and segment.is_coded(run[0][0]):
                start = segment.offset(following[0][0])
                file.read_ahead(start, segment.offset(following[-1][0] + 1) - start)
            bad += self._find_bad(run, parts, keys, into)
        if bad and not file.is_at(segment.path):  # unlinked since it was opened
            self._files.pop(segment.number, None)
            self._catalog.refresh()
        else:
            for row, i in bad:
                self._catalog.discard(keys[i], segment, row)
        return [i for _, i in bad]

    def _read_run(
        self, file: OpenFile, segment: Segment, run: list[_Wanted], into: Sequence[memoryview]
    ) -> list[memoryview]:
        """Read neighbouring records: two buffers for each complete one."""
        headers = memoryview(bytearray(HEADER_BYTES * len(run)))
        coded = memoryview(bytearray(sum(segment.num_bytes(row) for row, _ in run if segment.is_coded(row))))
        parts: list[memoryview] = []
        for n, (row, i) in enumerate(run):
            data = into[i]
            if segment.is_coded(row):
                size = segment.num_bytes(row) - HEADER_BYTES
                data, coded = coded[:size], coded[size:]
            parts += [headers[n * HEADER_BYTES : (n + 1) * HEADER_BYTES], data]
        try:
            num_bytes = os.preadv(file.fd, parts, segment.offset(run[0][0]))
        except OSError:
            num_bytes = 0
        return parts[: 2 * count_whole(parts, num_bytes)]

    def _find_bad(
        self, run: list[_Wanted], parts: list[memoryview], keys: Sequence[bytes], into: Sequence[memoryview]
    ) -> list[_Wanted]:
        """Check and decode records. Returns missing and damaged ones."""
        bad, namespace = run[len(parts) // 2 :], self._catalog.namespace
        for (row, i), header, data in zip(run, parts[::2], parts[1::2], strict=False):
            began = time.perf_counter()
            is_good = read_block(namespace.root, keys[i], header, data, into[i], namespace.cipher)
            if data is not into[i]:
                self._tally.seconds += time.perf_counter() - began
                self._tally.saved_bytes += len(into[i]) - len(data)
            if not is_good:
                bad.append((row, i))
        return bad

    def _open(self, segment: Segment) -> OpenFile:
        file = self._files.pop(segment.number, None)
        if file is None:
            file = OpenFile(segment.path)
            while len(self._files) >= _MAX_FILES:
                self._files.popitem(last=False)
        self._files[segment.number] = file
        now = time.monotonic()
        if now - segment.used_at > _TOUCH_EVERY_S:  # eviction reads this time
            segment.used_at = now
            with contextlib.suppress(OSError):
                os.utime(file.fd)
        return file


def _runs(locations: list[_Wanted], most: int) -> Iterator[list[_Wanted]]:
    """Split into runs of neighbouring rows, at most `most` each. A repeated row begins a new run."""
    run: list[_Wanted] = []
    for location in locations:
        if run and (location[0] != run[-1][0] + 1 or len(run) == most):
            yield run
            run = []
        run.append(location)
    if run:
        yield run
