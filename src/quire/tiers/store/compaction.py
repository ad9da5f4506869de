"""Rewrite or unlink segments with deleted blocks. This takes the segment's lock; records are copied unchanged."""

from __future__ import annotations

import contextlib
import logging
import os

from quire.tiers.store.catalog import Catalog
from quire.tiers.store.layout.files import OpenFile
from quire.tiers.store.layout.record import FILE_HEADER_BYTES, HEADER_BYTES, Row, read_record
from quire.tiers.store.layout.segment import Segment
from quire.tiers.store.writer import Writer

logger = logging.getLogger("quire")


def compact(catalog: Catalog, writer: Writer, least_dead: float = 0.0) -> None:
    """Remove deleted blocks of segments with at least this share of them."""
    with writer.busy:
        active = writer.active
        if active is not None and _is_worth(active.segment, least_dead):
            writer.seal()
    for segment in list(catalog.segments.values()):
        if segment.num_dead and not segment.is_ours and _is_worth(segment, least_dead):
            _compact_segment(catalog, writer, segment)


def _is_worth(segment: Segment, least_dead: float) -> bool:
    return segment.num_dead > 0 and segment.num_dead >= least_dead * segment.num_rows


def _compact_segment(catalog: Catalog, writer: Writer, segment: Segment) -> None:
    """Rewrite or unlink a segment, unless it has a writer."""
    try:
        file = OpenFile(segment.path, os.O_RDWR)
        is_locked = file.lock()
        if is_locked is False or (is_locked is None and not segment.is_sealed) or not file.is_at(segment.path):
            return
        catalog.read_growth(segment)  # its writer may have appended before it unlocked the file
        alive = [(number, row) for number, row in segment.enumerate_rows() if not catalog.is_dead(row)]
        if alive:
            try:
                _copy(catalog, writer, segment, file, alive)
            except OSError as error:  # its live blocks are lost, and computed again
                logger.warning("kv store: %s could not be compacted and was removed: %s", segment.path, error)
        file.unlink_from(segment.path)
        segment.index_path.unlink(missing_ok=True)
    except FileNotFoundError:
        pass
    except OSError as error:
        logger.warning("kv store: compacting %s failed: %s", segment.path, error)
        return
    catalog.remove_segment(segment)
    catalog.stats.compacted_segments += 1


def _copy(catalog: Catalog, writer: Writer, segment: Segment, file: OpenFile, alive: list[tuple[int, Row]]) -> None:
    new = writer.new_segment(FILE_HEADER_BYTES + sum(segment.num_bytes(number) for number, _ in alive))
    try:
        for number, row in alive:
            record = memoryview(os.pread(file.fd, segment.num_bytes(number), segment.offset(number)))
            if read_record(segment.root, segment.block_bytes, record, catalog.namespace.cipher) == row:
                if not new.write([record[:HEADER_BYTES], record[HEADER_BYTES:]]):
                    raise OSError("the disk is full")
                catalog.append(new.segment, [(row, len(record))])
    except OSError:
        with contextlib.suppress(OSError):
            new.segment.path.unlink()
        catalog.remove_segment(new.segment)
        raise
    new.seal()
