"""Deleted blocks leave the disk: segments that hold some are written anew without them, or unlinked.

Whoever gets a segment's lock may do it, its writer or, once it has ended or begun another one, anybody else. Records
move as they are, checksums and all, so a copy is as good as its original.
"""

from __future__ import annotations

import contextlib
import logging
import os

from quire.tiers.store.catalog import Catalog
from quire.tiers.store.layout.files import OpenFile
from quire.tiers.store.layout.record import FILE_HEADER_BYTES, HEADER_BYTES, Row, is_intact
from quire.tiers.store.layout.segment import Segment
from quire.tiers.store.writer import Writer

logger = logging.getLogger("quire")


def compact(catalog: Catalog, writer: Writer, least_dead: float = 0.0) -> bool:
    """Take the bytes of deleted blocks off the disk.

    Args:
        least_dead: share of a segment's rows that must be dead for it to be written anew.

    Returns:
        Whether no deleted block is left whose segment nobody is writing.
    """
    with writer.busy:
        active = writer.active
        if active is not None and _is_worth(active.segment, least_dead):
            writer.seal()
    is_clean = True
    for segment in list(catalog.segments.values()):
        if segment.num_dead and not segment.is_ours and _is_worth(segment, least_dead):
            is_clean &= _compact_segment(catalog, writer, segment)
    return is_clean


def _is_worth(segment: Segment, least_dead: float) -> bool:
    return segment.num_dead > 0 and segment.num_dead >= least_dead * segment.num_rows


def _compact_segment(catalog: Catalog, writer: Writer, segment: Segment) -> bool:
    """Whether its deleted blocks are gone."""
    try:
        file = OpenFile(segment.path, os.O_RDWR)
        is_locked = file.lock()
        if is_locked is False or (is_locked is None and not segment.is_sealed) or not file.is_at(segment.path):
            return False
        catalog.follow(segment)  # whoever wrote it may have added to it before it let go
        alive = [(number, row) for number, row in segment.enumerate_rows() if not catalog.is_dead(row)]
        if alive:
            try:
                _copy(catalog, writer, segment, file, alive)
            except OSError as error:  # then what is alive has to be computed again
                logger.warning("kv store: %s was removed, for it could not be compacted: %s", segment.path, error)
        file.unlink_from(segment.path)
        segment.index_path.unlink(missing_ok=True)
    except FileNotFoundError:
        pass
    except OSError as error:
        logger.warning("kv store: compacting %s failed: %s", segment.path, error)
        return False
    catalog.forget(segment)
    catalog.stats.compacted_segments += 1
    return True


def _copy(catalog: Catalog, writer: Writer, segment: Segment, file: OpenFile, alive: list[tuple[int, Row]]) -> None:
    """Into a new segment, side by side as before."""
    new = writer.new_segment(FILE_HEADER_BYTES + len(alive) * segment.record_bytes)
    try:
        for number, row in alive:
            record = memoryview(os.pread(file.fd, segment.record_bytes, segment.offset(number)))
            header, data = record[:HEADER_BYTES], record[HEADER_BYTES:]
            if len(record) == segment.record_bytes and is_intact(segment.root, row.key, header, data):
                if not new.write([header, data]):
                    raise OSError("the disk is full")
                catalog.append(new.segment, [row])
    except OSError:
        with contextlib.suppress(OSError):
            new.segment.path.unlink()
        catalog.forget(new.segment)
        raise
    new.seal()
