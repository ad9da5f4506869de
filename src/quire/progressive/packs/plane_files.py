"""Write the coded files of a pack with planes (`loading.planes`), and restore the original files."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import xxhash

from quire.kernels.planes import FORMATS, ExponentCoder, split_words
from quire.loading.checkpoint import TensorEntry, weight_files
from quire.loading.digest import hash_checkpoint
from quire.loading.errors import ModelLoadError
from quire.loading.planes.index import CHUNK_BYTES, VERSION, plane_index
from quire.loading.remote import read_bytes
from quire.loading.save import tensors_header
from quire.loading.stage_manifest import (
    PLANES_FILE,
    STAGES_FILE,
    PackedFile,
    check_files,
    is_plane_pack,
    read_stage_manifest,
)
from quire.progressive.packs.group_file import FileCopy, copy_file, describe_file, new_directory


class PlaneWriter:
    """Writes the coded files of a pack, with the mantissa bits of some tensors beyond the first in a file apart."""

    def __init__(self, directory: Path, mantissa_bits: Mapping[str, int], advance: Callable[[int], None]) -> None:
        self._directory = directory
        self._mantissa_bits, self._advance = mantissa_bits, advance
        self._coder = ExponentCoder()
        self._tensors: dict[str, dict[str, Any]] = {}
        self._rest_sizes: dict[str, int] = {}
        self._rest = (directory / ".rest").open("xb")

    def write_group(self, name: str, entries: Mapping[str, TensorEntry]) -> tuple[PackedFile, dict[str, bytes]]:
        """Write a group's exponents and top planes, and return the file and the SHA-256 of each original tensor."""
        digests, sizes = {}, {}
        part = self._directory / ".top"
        with part.open("xb") as top:
            for tensor, entry in entries.items():
                digest, start = hashlib.sha256(), top.tell()
                self._tensors[tensor] = self._write(entry, top, digest.update)
                digests[tensor], sizes[tensor] = digest.digest(), top.tell() - start
        return self._assemble(name, part, sizes), digests

    def finish(self, name: str | None, source: Path) -> list[PackedFile]:
        """Write the rest planes to `name` (None: there are none) and the index, and return both files."""
        self._rest.close()
        rest = self._directory / ".rest"
        files = [] if name is None else [self._assemble(name, rest, self._rest_sizes)]
        rest.unlink(missing_ok=True)
        sizes = {path: 8 + int.from_bytes(read_bytes(path, 0, 8), "little") for path in original_files(source)}
        files_of = {path.name: read_bytes(path, 0, size).decode("latin-1") for path, size in sizes.items()}
        values = {"quire_planes": VERSION, "files": files_of, "tensors": self._tensors}
        (self._directory / PLANES_FILE).write_text(json.dumps(values) + "\n")
        return [*files, describe_file(self._directory / PLANES_FILE, PLANES_FILE)]

    def _assemble(self, name: str, part: Path, sizes: Mapping[str, int]) -> PackedFile:
        with FileCopy(self._directory / name, lambda num_bytes: None) as copy:
            copy.write(tensors_header((tensor, "U8", (size,), size) for tensor, size in sizes.items()))
            copy.copy(part)
            part.unlink()
            return copy.finish(name)

    def _write(self, entry: TensorEntry, top: BinaryIO, digest: Callable[[bytes], None]) -> dict[str, Any]:
        """Write a tensor's chunks and return its entry in the index."""
        form = FORMATS.get(entry.dtype) if len(entry.shape) > 1 else None
        in_chunk, top_bits, is_split = CHUNK_BYTES, 0, False
        if form is not None and 0 < (row := entry.shape[-1] * form.item_bytes) <= CHUNK_BYTES:
            bits = min(self._mantissa_bits.get(entry.name, form.head_bits), form.head_bits)
            in_chunk, top_bits, is_split = in_chunk // row * row, 1 + bits, bits < form.head_bits
        chunks: list[list[Any]] = []
        for start in range(entry.start, entry.end, in_chunk):
            data = read_bytes(entry.file, start, min(in_chunk, entry.end - start))
            digest(data)
            self._advance(len(data))
            exponents, first, rest = b"", data, b""
            if form is not None and top_bits:
                words = np.frombuffer(data, f"<u{form.item_bytes}").reshape(-1, entry.shape[-1])
                exponents, first, rest = split_words(words, form, top_bits)
                exponents = self._coder.encode(exponents)
            parts = [exponents + first, rest] if is_split else [exponents + first + rest]
            for file, part in zip((top, self._rest), parts, strict=False):
                file.write(part)
            sums = [(len(part), xxhash.xxh3_64_hexdigest(part)) for part in parts]
            chunks.append([len(exponents), *chain.from_iterable(sums)])
        if is_split:
            self._rest_sizes[entry.name] = sum(chunk[3] for chunk in chunks)
        return {"top_bits": top_bits, "chunk_bytes": in_chunk, "chunks": chunks}


def original_files(directory: Path) -> list[Path]:
    """Return a checkpoint's weight files, or the original ones of a pack with planes, to read by `open_file`."""
    return [*plane_index(directory).originals] if is_plane_pack(directory) else weight_files(directory)


def unpack(directory: Path, out: Path, advance: Callable[[int], None] = lambda num_bytes: None) -> None:
    """Write the original files to a new or empty directory. Raises ModelLoadError for a damaged pack, or ValueError."""
    manifest = read_stage_manifest(directory)
    if manifest.mantissa_bits is None:
        raise ValueError(
            f"{directory} is an ordinary checkpoint without planes; `quire save --model {directory} DIR` joins stages"
        )
    check_files(manifest)
    originals = plane_index(directory).originals
    coded = {PLANES_FILE, *(group.file for group in manifest.groups)}
    with new_directory(out, sum(file.num_bytes for file in originals.values())) as made:
        for path in originals:
            copy_file(path, made, path.name, advance)
        for name, file in manifest.files.items():
            if name not in coded and "/" not in name and copy_file(directory / name, made, name).xxh3 != file.xxh3:
                raise ModelLoadError(f"{directory / name} is damaged; copy it again from the pack's origin")
        if hash_checkpoint(made) != manifest.weights:
            raise ModelLoadError(f"{directory} decodes to other weights than {STAGES_FILE} names; pack the model again")
