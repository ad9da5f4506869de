"""Choose between the planes of a pack and plain files in it, by what reading and decoding take here."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterable
from pathlib import Path

from quire.loading.planes.decoding import DecodedReads, read_stored
from quire.loading.planes.index import plane_index
from quire.loading.stage_manifest import StageManifest
from quire.system.threads import default_num_threads

logger = logging.getLogger("quire")

PLAIN = "plain"  #: folder of a pack with planes for its original files, which `quire stages unpack` writes
_SAMPLES, _SAMPLE_BYTES = 4, 2 * 2**20
_LEAST_S = 1e-6


def faster_directory(manifest: StageManifest, bandwidth: float | None) -> Path:
    """Return the directory from which the whole model is in memory sooner: the pack, or its folder `PLAIN`. Both are
    sampled if that has the pack's original files; else it is ignored."""
    directory, plain = manifest.directory, manifest.directory / PLAIN
    if not plain.is_dir():
        return directory
    index = plane_index(directory)
    sizes = {plain / path.name: file.num_bytes for path, file in index.originals.items()}
    if any(not path.is_file() or path.stat().st_size != size for path, size in sizes.items()):
        logger.warning("%s has other files than the pack, and is ignored", plain)
        return directory
    num_bytes = sum(sizes.values())
    plain_s = num_bytes / _read_rate(sizes, bandwidth)
    files = {directory / group.file: manifest.files[group.file].num_bytes for group in manifest.groups}
    planes_s = max(sum(files.values()) / _read_rate(files, bandwidth), num_bytes / _decoding_rate(directory))
    logger.info("plain files would be read in %.2f s, planes in %.2f s", plain_s, planes_s)
    return plain if plain_s < planes_s else directory


def _read_rate(files: Iterable[Path], bandwidth: float | None) -> float:
    """Return the bytes a second at which the largest of some files is read, at places of it."""
    largest = max(files, key=lambda path: path.stat().st_size)
    size, num_read = largest.stat().st_size, 0
    began = time.perf_counter()
    with largest.open("rb", buffering=0) as file:
        for number in range(_SAMPLES):
            num_read += len(os.pread(file.fileno(), _SAMPLE_BYTES, size * number // _SAMPLES))
    rate = num_read / max(_LEAST_S, time.perf_counter() - began)
    return rate if bandwidth is None else min(rate, bandwidth)


def _decoding_rate(directory: Path) -> float:
    """Return the bytes of original files that all threads decode a second."""
    original = max(plane_index(directory).originals.values(), key=lambda file: file.num_bytes)
    chunk = max(original.chunks, key=lambda each: (each.top_bits > 0, each.end - each.start))
    reads, room = DecodedReads(original, read_stored), bytearray(chunk.end - chunk.start)
    took = []
    for _ in range(3):  # the first one reads the bytes, and touches memory
        began = time.perf_counter()
        reads.read(chunk.start, chunk.end, room)
        took.append(time.perf_counter() - began)
    return len(room) / max(_LEAST_S, min(took)) * default_num_threads()
