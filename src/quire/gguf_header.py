"""Read the header of a GGUF file: metadata, and the places of its tensors. Arrays stay in the file until they are asked
for, and no length is believed before it fits into the file: a third of a second for a vocabulary of 256k tokens, of
which the gguf package's reader makes a million arrays."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import repeat
from pathlib import Path
from typing import Any, BinaryIO

SUFFIX = ".gguf"
_MAGIC = b"GGUF"
_PART = re.compile(r"(.*)-(\d{5})-of-(\d{5})\.gguf", re.IGNORECASE)
_MAX_PARTS = 1000
_MAX_HEADER_BYTES = 2**27  #: large vocabularies take 20 MB
_MAX_NAME_BYTES, _MAX_DIMENSIONS = 1024, 4
_STRING, _ARRAY = 8, 9
_CODES = {number: code for number, code in enumerate("BbHhIif?..Qqd") if code != "."}  # of `struct`, by type


class GGUFError(ValueError):
    """A file is damaged, or no GGUF file."""


@dataclass(frozen=True)
class GGUFTensor:
    """A tensor in a file."""

    name: str
    shape: tuple[int, ...]  #: the last dimension is contiguous
    type: int  #: ggml's number of its encoding
    start: int  #: its first byte in the file


@dataclass(frozen=True)
class _Array:
    """An array in a file's metadata."""

    type: int  #: of its elements
    count: int
    start: int  #: its first byte in the file


@dataclass(frozen=True)
class GGUFHeader:
    """The header of a file, or of the first of its parts, which has all metadata."""

    path: Path
    size: int  #: of the file
    values: Mapping[str, Any] = field(repr=False)
    tensors: tuple[GGUFTensor, ...] = field(repr=False)

    def get(self, name: str, default: Any = None) -> Any:
        """Return a number, a bool, a string, or a list of them, or the default. Raises GGUFError for a damaged file."""
        value = self.values.get(name, default)
        if not isinstance(value, _Array):
            return value
        try:
            with self.path.open("rb") as file:
                file.seek(value.start)
                return _Reader(file, self.size).elements(value)
        except (OSError, ValueError) as error:
            raise GGUFError(f"{self.path} cannot be read ({error}); download it again") from None


def is_gguf(path: Path) -> bool:
    """Return whether a path names a GGUF file, by its suffix or its first bytes."""
    if path.suffix.lower() == SUFFIX:
        return not path.is_dir()
    try:
        with path.open("rb") as file:
            return file.read(4) == _MAGIC
    except OSError:
        return False


def gguf_models(names: Iterable[str]) -> list[str]:
    """Return the GGUF models among a directory's files: the first parts of split ones, and no projectors of images."""
    found = [name for name in sorted(names) if name.lower().endswith(SUFFIX) and "mmproj" not in name.lower()]
    return [name for name in found if (match := _PART.fullmatch(name)) is None or int(match[2]) == 1]


def gguf_parts(path: Path) -> list[Path]:
    """Return the parts of a split file, of which any may be named, or the file itself. Raises GGUFError for missing
    parts."""
    match = _PART.fullmatch(path.name)
    if match is None:
        return [path]
    count = int(match[3])
    if not 1 <= count <= _MAX_PARTS:
        raise GGUFError(f"{path} is one of {count} parts; at most {_MAX_PARTS} are supported")
    parts = [path.with_name(f"{match[1]}-{number:05}-of-{match[3]}{path.suffix}") for number in range(1, count + 1)]
    if missing := [part.name for part in parts if not part.is_file()]:
        raise GGUFError(f"{path} is one of {count} parts, of which {', '.join(missing[:3])} is missing; download all")
    return parts


def read_gguf_header(path: Path) -> GGUFHeader:
    """Read a file's header. Raises GGUFError for a damaged one, and OSError."""
    stat = path.stat()
    return _read_header(path, stat.st_size, stat.st_mtime_ns, stat.st_ino)


@lru_cache(maxsize=4)  # a start reads config, tensors and tokenizer; long arrays are not in the header
def _read_header(path: Path, size: int, *_: int) -> GGUFHeader:
    with path.open("rb") as file:
        try:
            return _parse(path, _Reader(file, size))
        except (ValueError, OverflowError, struct.error) as error:
            raise GGUFError(
                f"{path} ({size} bytes) is truncated or no GGUF file ({error}); download it again"
            ) from None


def _parse(path: Path, reader: _Reader) -> GGUFHeader:
    if reader.take(4) != _MAGIC:
        raise ValueError("it does not begin with GGUF")
    if (version := reader.number("I")) not in (2, 3):
        raise ValueError(f"its version is {version}; expected 2 or 3, little-endian")
    num_tensors, num_values = reader.number("Q"), reader.number("Q")
    reader.check(24 * num_tensors + 12 * num_values)
    values: dict[str, Any] = {}
    for _ in range(num_values):
        name = reader.string(_MAX_NAME_BYTES)
        if name in values:
            raise ValueError(f"its metadata has {name} twice")
        values[name] = reader.value(reader.number("I"))
    infos = [_tensor(reader) for _ in range(num_tensors)]
    alignment = values.get("general.alignment", 32)
    if not isinstance(alignment, int) or not 1 <= alignment <= 2**20:
        raise ValueError(f"its alignment is {alignment!r:.100}")
    first = -(-reader.position // alignment) * alignment
    names = [name for name, *_ in infos]
    if len(set(names)) < len(names):
        raise ValueError("two of its tensors have the same name")
    tensors = tuple(GGUFTensor(name, shape, kind, first + offset) for name, shape, kind, offset in infos)
    return GGUFHeader(path, reader.size, values, tensors)


def _tensor(reader: _Reader) -> tuple[str, tuple[int, ...], int, int]:
    name, count = reader.string(_MAX_NAME_BYTES), reader.number("I")
    if not 1 <= count <= _MAX_DIMENSIONS:
        raise ValueError(f"{name} has {count} dimensions")
    shape = tuple(reader.number("Q") for _ in range(count))[::-1]
    kind, offset = reader.number("I"), reader.number("Q")
    if offset > reader.size or any(not 0 < each < 2**48 for each in shape):
        raise ValueError(f"{name} has shape {list(shape)} at byte {offset}")
    return name, shape, kind, offset


class _Reader:
    """Reads values one after the other, up to a file's end."""

    def __init__(self, file: BinaryIO, size: int) -> None:
        self.size = size
        self._file = file
        self._left = min(size - file.tell(), _MAX_HEADER_BYTES)

    @property
    def position(self) -> int:
        return self._file.tell()

    def check(self, num_bytes: int) -> None:
        """Raise ValueError unless that many bytes are left."""
        if num_bytes > self._left:
            raise ValueError(f"its header needs {num_bytes} bytes at byte {self.position}, of {self.size} in the file")

    def take(self, num_bytes: int) -> bytes:
        self.check(num_bytes)
        self._left -= num_bytes
        data = self._file.read(num_bytes)
        if len(data) < num_bytes:
            raise ValueError("it has become shorter")
        return data

    def number(self, code: str) -> Any:
        return struct.unpack(f"<{code}", self.take(struct.calcsize(f"<{code}")))[0]

    def string(self, longest: int = _MAX_HEADER_BYTES) -> str:
        length = self.number("Q")
        if length > longest:
            raise ValueError(f"a name in its header has {length} bytes")
        return self.take(length).decode(errors="replace")

    def value(self, kind: int) -> Any:
        if kind == _STRING:
            return self.string()
        if kind != _ARRAY:
            value = self.number(_code(kind))
            return shortest(value) if _code(kind) == "f" else value
        found = _Array(self.number("I"), self.number("Q"), self.position)
        if found.type == _STRING:
            self.check(8 * found.count)
            for _ in repeat(None, found.count):
                self.take(int.from_bytes(self.take(8), "little"))
        else:
            self.take(found.count * struct.calcsize(_code(found.type)))
        return found

    def elements(self, of: _Array) -> list[Any]:
        """Return the elements of an array at the current position."""
        if of.type == _STRING:
            return [self.string() for _ in repeat(None, of.count)]
        code = _code(of.type)
        data = self.take(of.count * struct.calcsize(f"<{code}"))
        return list(struct.unpack(f"<{of.count}{code}", data))


def shortest(value: float) -> float:
    """Return the shortest decimal number that float32 rounds to this value: 1e-06 instead of 9.99999997e-07."""
    rounded = (float(f"{value:.{digits}g}") for digits in range(6, 9))
    return next((each for each in rounded if struct.pack("<f", each) == struct.pack("<f", value)), value)


def _code(kind: int) -> str:
    if kind not in _CODES:
        raise ValueError(f"its metadata has values of type {kind}, which is unknown")
    return _CODES[kind]
