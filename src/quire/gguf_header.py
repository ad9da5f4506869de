"""Read the header of a GGUF file: metadata, and the places of its tensors. No length is believed before it fits into
the file. Of a vocabulary of 256k tokens, the gguf package's reader makes a million small arrays in 12 s."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

_MAGIC, _SUFFIX = b"GGUF", ".gguf"
_PART = re.compile(r"(.*)-(\d{5})-of-(\d{5})\.gguf", re.IGNORECASE)
_QUANTIZATION = re.compile(r"(?:^|[-._])((?:UD-)?(?:I?Q\d\w*|B?F16|F32|MXFP4\w*))(?=[-.]|$)", re.IGNORECASE)
_MAX_PARTS, _MAX_VALUES, _MAX_TENSORS, _MAX_DIMENSIONS = 1000, 2**16, 2**17, 4
_MAX_HEADER_BYTES = 2**26  # large vocabularies take 20 MB
_FEW = 1000  # values for each layer, but not for each token
_STRING, _ARRAY = 8, 9
_CODES = {number: f"<{code}" for number, code in enumerate("BbHhIif?..Qqd") if code != "."}  # of `struct`, by type


class GGUFTensor(NamedTuple):
    name: str
    shape: tuple[int, ...]  #: the last dimension is contiguous
    type: int  #: ggml's number of its encoding
    start: int  #: its first byte in the file


@dataclass(frozen=True)
class GGUFHeader:
    """The header of a file. The first part of a split file has all metadata."""

    path: Path
    size: int  #: of the file
    values: Mapping[str, Any] = field(repr=False)  #: numbers, bools, strings, and lists of them
    tensors: tuple[GGUFTensor, ...] = field(repr=False)


def is_gguf(path: Path) -> bool:
    """Return whether a path names a GGUF file, by its suffix or its first bytes."""
    if path.suffix.lower() == _SUFFIX:
        return not path.is_dir()
    try:
        with path.open("rb") as file:
            return file.read(4) == _MAGIC
    except OSError:
        return False


def gguf_models(names: Iterable[str]) -> list[str]:
    """Return the GGUF models among a directory's files: the first parts of split ones, and no projectors of images."""
    found = [name for name in sorted(names) if name.lower().endswith(_SUFFIX) and "mmproj" not in name.lower()]
    return [name for name in found if (match := _PART.fullmatch(name)) is None or int(match[2]) == 1]


def is_part_of(name: str, model: str) -> bool:
    """Return whether a file belongs to a model, named by its first part or only file."""
    part, first = _PART.fullmatch(name), _PART.fullmatch(model)
    return name == model or bool(part and first and part.group(1, 3) == first.group(1, 3))


def quantization_of(name: str) -> str:
    """Return the quantization in a file's name, such as Q4_K_M; an empty string without one."""
    found = _QUANTIZATION.findall(Path(name).stem.partition("-00001-of-")[0])
    return found[-1].upper() if found else ""


def gguf_parts(path: Path) -> list[Path]:
    """Return the file itself, or all parts of the split file that it belongs to. Raises ValueError for missing ones."""
    if (match := _PART.fullmatch(path.name)) is None:
        return [path]
    numbers = range(1, min(int(match[3]), _MAX_PARTS) + 1)
    parts = [path.with_name(f"{match[1]}-{number:05}-of-{match[3]}{path.suffix}") for number in numbers]
    if missing := [part.name for part in parts if not part.is_file()]:
        raise ValueError(f"{path} is one of {match[3]} parts, of which {', '.join(missing[:3])} is missing; get them")
    return parts


def read_gguf_header(path: Path, *, has_lists: bool = False) -> GGUFHeader:
    """Read a file's header, without values for each token unless it `has_lists`. Raises ValueError for a damaged one,
    and OSError."""
    stat = path.stat()
    if has_lists:
        return _parse(path, stat.st_size, _MAX_HEADER_BYTES)
    return _parse_once(path, stat.st_size, _FEW, stat.st_mtime_ns, stat.st_ino)


def _parse(path: Path, size: int, longest: int, *_: int) -> GGUFHeader:
    with path.open("rb") as file:
        try:
            return _read(path, _Reader(file, size, longest))
        except (ValueError, OverflowError) as error:
            raise ValueError(
                f"{path} ({size} bytes) is truncated or no GGUF file ({error}); download it again"
            ) from None


_parse_once = lru_cache(maxsize=64)(_parse)


def _read(path: Path, reader: _Reader) -> GGUFHeader:
    if reader.take(4) != _MAGIC:
        raise ValueError("it does not begin with GGUF")
    if (version := reader.number("<I")) not in (2, 3):
        raise ValueError(f"its version is {version}; expected 2 or 3, little-endian")
    num_tensors, num_values = reader.number("<Q"), reader.number("<Q")
    if num_tensors > _MAX_TENSORS or num_values > _MAX_VALUES:
        raise ValueError(f"it has {num_tensors} tensors and {num_values} values")
    values = {reader.string(): reader.value(reader.number("<I")) for _ in range(num_values)}
    found = [_read_tensor(reader) for _ in range(num_tensors)]
    alignment = values.get("general.alignment", 32)
    if not isinstance(alignment, int) or not 1 <= alignment <= 2**20:
        raise ValueError(f"its alignment is {alignment!r:.100}")
    first = -(-reader.file.tell() // alignment) * alignment
    return GGUFHeader(path, reader.size, values, tuple(each._replace(start=first + each.start) for each in found))


def _read_tensor(reader: _Reader) -> GGUFTensor:
    name, count = reader.string(), reader.number("<I")
    shape = tuple(reader.number("<Q") for _ in range(min(count, _MAX_DIMENSIONS + 1)))[::-1]
    tensor = GGUFTensor(name, shape, reader.number("<I"), reader.number("<Q"))
    if not 1 <= count <= _MAX_DIMENSIONS or tensor.start > reader.size or not all(0 < each < 2**48 for each in shape):
        raise ValueError(f"{name:.100} has {count} dimensions, {list(shape)}, at byte {tensor.start}")
    return tensor


class _Reader:
    """Reads values one after the other, up to a file's end. Lists of more than `longest` values are left empty."""

    def __init__(self, file: BinaryIO, size: int, longest: int) -> None:
        self.file, self.size, self._longest = file, size, longest
        self._left = min(size, _MAX_HEADER_BYTES)

    def take(self, num_bytes: int) -> bytes:
        self._left -= num_bytes
        data = self.file.read(num_bytes) if self._left >= 0 else b""
        if len(data) < num_bytes:
            raise ValueError(f"its header needs {num_bytes} bytes at byte {self.file.tell()} of {self.size}")
        return data

    def number(self, code: str) -> Any:
        return struct.unpack(code, self.take(struct.calcsize(code)))[0]

    def string(self) -> str:
        return self.take(self.number("<Q")).decode(errors="replace")

    def value(self, kind: int) -> Any:
        if kind == _STRING:
            return self.string()
        if kind != _ARRAY:
            return shortest(self.number(_code(kind))) if _code(kind) == "<f" else self.number(_code(kind))
        kind, length = self.number("<I"), self.number("<Q")
        if kind == _STRING and length <= self._longest:
            return [self.string() for _ in range(length)]
        if kind == _STRING:
            for _ in range(length):
                self.take(int.from_bytes(self.take(8), "little"))
            return []
        data = self.take(length * struct.calcsize(_code(kind)))
        return [value for (value,) in struct.iter_unpack(_code(kind), data)] if length <= self._longest else []


def shortest(value: float) -> float:
    """Return the shortest decimal number that float32 rounds to this value: 1e-06 instead of 9.99999997e-07."""
    rounded = (float(f"{value:.{digits}g}") for digits in range(6, 9))
    return next((each for each in rounded if struct.pack("<f", each) == struct.pack("<f", value)), value)


def _code(kind: int) -> str:
    if kind not in _CODES:
        raise ValueError(f"its metadata has values of type {kind}, which is unknown")
    return _CODES[kind]
