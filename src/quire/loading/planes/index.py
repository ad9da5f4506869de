"""The index of a pack with planes: the original files, and where the chunks of their tensors are stored.

A chunk is some rows of a tensor, or bytes of one that is stored as it is, and can be read and checked alone. The coded
files are safetensors files of bytes, with one tensor per original one: its chunks in order.
"""

from __future__ import annotations

import functools
import io
import json
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from pathlib import Path
from typing import Any, NamedTuple

import xxhash

from quire.kernels.planes import FORMATS
from quire.loading.checkpoint import TensorEntry, parse_header, read_header
from quire.loading.errors import ModelLoadError, unreadable
from quire.loading.stage_manifest import FIRST, PLANES_FILE, REST, StageManifest, read_stage_manifest

VERSION = 1
CHUNK_BYTES = 2 * 2**20  #: of a chunk in the original file, at most


class Part(NamedTuple):
    """Stored bytes of a chunk."""

    file: Path
    start: int
    end: int
    checksum: str  #: XXH3, 64 bits in hexadecimal


class CodedChunk(NamedTuple):
    """Bytes of an original file, stored as they are, or as exponents and top plane with the rest behind them or in a
    second part. A view may have one of the two: bits of the other are 0."""

    start: int
    end: int
    entry: TensorEntry
    frame_bytes: int  #: size of the coded exponents; 0 without them and the top plane
    top_bits: int  #: in the top plane: the sign and some mantissa bits; 0: stored as they are
    parts: tuple[Part, ...]


@dataclass(frozen=True)
class OriginalFile:
    """A weight file of the original checkpoint, which does not exist in the pack's directory."""

    header: bytes
    chunks: Sequence[CodedChunk]  #: by offset

    @property
    def num_bytes(self) -> int:
        return self.chunks[-1].end if self.chunks else len(self.header)

    def chunks_in(self, start: int, end: int) -> Sequence[CodedChunk]:
        """Return the chunks that overlap a range of the file."""
        first = bisect_right(self.chunks, start, key=lambda chunk: chunk.end)
        return self.chunks[first : bisect_left(self.chunks, end, first, key=lambda chunk: chunk.start)]

    def stored_bytes(self, start: int, end: int) -> int:
        """Return the bytes of coded files that reading a range takes."""
        return sum(part.end - part.start for chunk in self.chunks_in(start, end) for part in chunk.parts)


@dataclass(frozen=True)
class PlaneIndex:
    originals: Mapping[Path, OriginalFile]
    views: Mapping[Path, OriginalFile]  #: of their first parts alone (`FIRST`), and of the second ones (`REST`)
    entries: Mapping[str, TensorEntry]  #: in the original files
    coded_files: Mapping[str, Sequence[str]]  #: names of the files with tensors' parts


def plane_index(directory: Path) -> PlaneIndex:
    """Read and check the index of a pack with planes. Raises ModelLoadError."""
    try:
        stat = (directory / PLANES_FILE).stat()
        return _read_index(directory, (stat.st_ino, stat.st_size, stat.st_mtime_ns))
    except OSError as error:
        raise unreadable(directory / PLANES_FILE, error) from None


def original_file(path: Path) -> OriginalFile | None:
    """Return the original file that a path in a pack with planes stands for; None for stored files. Raises
    ModelLoadError."""
    index = plane_index(path.parent)
    return index.originals.get(path) or index.views.get(path)


@functools.lru_cache(maxsize=4)
def _read_index(directory: Path, identity: tuple[int, ...]) -> PlaneIndex:
    manifest, content = read_stage_manifest(directory), (directory / PLANES_FILE).read_bytes()
    if manifest.mantissa_bits is None or xxhash.xxh3_128_hexdigest(content) != manifest.files[PLANES_FILE].xxh3:
        raise _broken(directory, "is damaged, or of another pack than the manifest beside it")
    try:
        return _parse(manifest, json.loads(content))
    except ModelLoadError:
        raise
    except (ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError) as error:
        raise _broken(directory, f"contradicts itself or the files beside it ({error!r:.200})") from None


def _parse(manifest: StageManifest, values: Mapping[str, Any]) -> PlaneIndex:
    directory = manifest.directory
    headers = [read_header(directory / group.file) for group in manifest.groups]
    stored: dict[str, list[TensorEntry]] = {}
    for name, entry in (each for header in headers for each in header.items()):
        stored.setdefault(name, []).append(entry)
    originals, views, entries = {}, dict[Path, OriginalFile](), {}
    if values["quire_planes"] != VERSION:
        raise ValueError(f"it does not have version {VERSION}")
    for given, text in values["files"].items():
        path, header = directory / Path(given).name, text.encode("latin-1")
        if path.suffix != ".safetensors" or path.exists():
            raise ValueError(f"it names {path.name!r:.100} as an original file")
        ends = [each["data_offsets"][1] for name, each in json.loads(header[8:]).items() if name != "__metadata__"]
        found = parse_header(path, io.BytesIO(header), len(header) + max(ends, default=0))
        found_chunks = (_chunks_of(entry, values["tensors"][name], stored[name]) for name, entry in found.items())
        chunks = [*chain.from_iterable(found_chunks)]
        originals[path] = OriginalFile(header, chunks)
        first = [each._replace(parts=each.parts[:1]) for each in chunks]
        rest = [each._replace(parts=each.parts[1:], frame_bytes=0) for each in chunks if len(each.parts) > 1]
        views |= {path.with_suffix(FIRST): OriginalFile(b"", first), path.with_suffix(REST): OriginalFile(b"", rest)}
        entries.update(found)
    if stored.keys() != entries.keys():
        raise ValueError("it describes other tensors than its headers")
    coded_files = {name: [part.file.name for part in parts] for name, parts in stored.items()}
    return PlaneIndex(originals, views, entries, coded_files)


def _chunks_of(entry: TensorEntry, values: Mapping[str, Any], stored: Sequence[TensorEntry]) -> Iterator[CodedChunk]:
    bits, chunk_bytes = values["top_bits"], values["chunk_bytes"]
    form = FORMATS[entry.dtype] if bits else None
    row = 1 if form is None else entry.shape[-1] * form.item_bytes
    count = -(-entry.num_bytes // chunk_bytes) if chunk_bytes % row == 0 and chunk_bytes <= CHUNK_BYTES else -1
    if bits not in range(1 if form is None else form.head_bits + 2) or count != len(values["chunks"]):
        raise ValueError(f"{entry.name} has {bits!r:.100} bits in a top plane, and chunks of {chunk_bytes} bytes")
    ends, places = [*range(entry.start, entry.end, chunk_bytes), entry.end], [each.start for each in stored]
    for (start, end), (frame_bytes, *sizes_and_sums) in zip(pairwise(ends), values["chunks"], strict=True):
        sizes, sums = sizes_and_sums[::2], sizes_and_sums[1::2]
        parts = [
            Part(each.file, at, at + size, checksum)
            for each, at, size, checksum in zip(stored, places, sizes, sums, strict=True)
        ]
        expected = [end - start]
        if form is not None:
            top, rest = form.plane_bytes((end - start) // row, entry.shape[-1], bits)
            expected = [frame_bytes + top, rest] if len(sizes) > 1 else [frame_bytes + top + rest]
        if sizes != expected or not 0 <= frame_bytes <= 2 * CHUNK_BYTES:
            raise ValueError(f"{entry.name} has a chunk of {sizes} bytes, expected {expected}")
        places = [part.end for part in parts]
        yield CodedChunk(start, end, entry, frame_bytes, bits, tuple(parts))
    if places != [each.end for each in stored]:
        raise ValueError(f"{entry.name} has chunks of another size than its files")


def _broken(directory: Path, what: str) -> ModelLoadError:
    return ModelLoadError(
        f"{directory / PLANES_FILE} {what}; copy the pack again from its origin, and see `quire stages verify`"
    )
