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

from quire.loading.checkpoint import TensorEntry, parse_header, read_header
from quire.loading.errors import ModelLoadError, unreadable
from quire.loading.stage_manifest import PLANES_FILE, StageManifest, is_plane_pack, read_stage_manifest

VERSION = 1
CHUNK_BYTES = 2 * 2**20  #: of a chunk in the original file, at most


@dataclass(frozen=True)
class FloatFormat:
    """A sign, an exponent, the head of the mantissa, and further bytes of it."""

    item_bytes: int
    head_bits: int
    low_bytes: int

    def plane_bytes(self, num_rows: int, size: int, top_bits: int) -> tuple[int, int]:
        """Return the bytes of the top plane of rows of `size` weights, and of rest and low planes."""
        rest_bits = 1 + self.head_bits - top_bits
        return num_rows * packed_bytes(size, top_bits), num_rows * (
            packed_bytes(size, rest_bits) + size * self.low_bytes
        )


#: By safetensors' dtypes.
FORMATS = {"BF16": FloatFormat(2, 7, 0), "F32": FloatFormat(4, 7, 2), "F16": FloatFormat(2, 2, 1)}


def packed_bytes(size: int, bits: int) -> int:
    """Return the bytes of a packed row of `size` fields."""
    return -(-size * bits // 8)


class Part(NamedTuple):
    """Stored bytes of a chunk."""

    file: Path
    start: int
    end: int
    checksum: str  #: XXH3, 64 bits in hexadecimal


class CodedChunk(NamedTuple):
    """Bytes of an original file, stored as they are, or as exponents and top plane with the rest behind them or in a
    second part."""

    start: int
    end: int
    entry: TensorEntry
    frame_bytes: int  #: size of the coded exponents
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
    files: Mapping[Path, OriginalFile]
    entries: Mapping[str, TensorEntry]  #: in the original files
    coded_files: Mapping[str, str]  #: names of the files with tensors' first parts
    index_text: bytes | None  #: the original index of shards


def plane_index(directory: Path) -> PlaneIndex:
    """Read and check the index of a pack with planes. Raises ModelLoadError."""
    try:
        stat = (directory / PLANES_FILE).stat()
        return _read_index(directory, (stat.st_ino, stat.st_size, stat.st_mtime_ns))
    except OSError as error:
        raise unreadable(directory / PLANES_FILE, error) from None


def original_file(path: Path) -> OriginalFile | None:
    """Return the original file that a path in a pack stands for; None for other paths. Raises ModelLoadError."""
    if path.is_file() or not is_plane_pack(path.parent):
        return None
    return plane_index(path.parent).files.get(path)


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
    files, entries = {}, {}
    if values["quire_planes"] != VERSION:
        raise ValueError(f"it does not have version {VERSION}")
    for each in values["files"]:
        path, header = directory / Path(each["name"]).name, each["header"].encode("latin-1")
        if path.suffix != ".safetensors" or path.exists():
            raise ValueError(f"it names {path.name!r:.100} as an original file")
        found = _entries_of(path, header)
        parts = (_chunks_of(entry, values["tensors"][name], stored[name]) for name, entry in found.items())
        files[path] = OriginalFile(header, [*chain.from_iterable(parts)])
        entries.update(found)
    if stored.keys() != entries.keys():
        raise ValueError("it describes other tensors than its headers")
    text, coded = values["index"], {name: each[0].file.name for name, each in stored.items()}
    return PlaneIndex(files, entries, coded, None if text is None else text.encode("latin-1"))


def _entries_of(path: Path, header: bytes) -> dict[str, TensorEntry]:
    ends = [each["data_offsets"][1] for name, each in json.loads(header[8:]).items() if name != "__metadata__"]
    return parse_header(path, io.BytesIO(header), len(header) + max(ends, default=0))


def _chunks_of(entry: TensorEntry, values: Mapping[str, Any], stored: Sequence[TensorEntry]) -> Iterator[CodedChunk]:
    bits, chunk_bytes = values["top_bits"], values["chunk_bytes"]
    form = FORMATS[entry.dtype] if bits else None
    row = 1 if form is None else entry.shape[-1] * form.item_bytes
    if bits not in range(1 if form is None else form.head_bits + 2) or chunk_bytes % row or chunk_bytes > CHUNK_BYTES:
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
