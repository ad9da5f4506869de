"""Check safetensors headers before weights are read. Imports no models, so reading starts before their import."""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from quire.gguf_header import is_gguf
from quire.loading.errors import ModelLoadError, unreadable
from quire.loading.gguf_config import read_gguf
from quire.loading.remote import open_file, remote_file
from quire.loading.source import read_json_object
from quire.loading.stage_manifest import is_plane_pack, read_stage_manifest
from quire.models.encodings import BLOCKS, Tiles

SINGLE_FILE = "model.safetensors"
INDEX_FILE = "model.safetensors.index.json"
_MAX_HEADER_BYTES = 25 * 10**6  # of 280,000 tensors, which take seconds to read
_MAX_DIMENSIONS = 8
_PIECE_BYTES = 2**20  # read at once to compare tensors
_FLOAT_TYPES = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2}
_OTHER_TYPES = {
    "BOOL": 1, "U8": 1, "I8": 1, "F8_E4M3": 1, "F8_E5M2": 1, "F8_E8M0": 1, "I16": 2, "U16": 2, "I32": 4, "U32": 4,
    "I64": 8, "U64": 8, "C64": 8,
}  # fmt: skip
#: Of tensors that arrays of a dtype take as they are.
_TYPES_OF_ARRAYS = {"int32": {"I32", "U32"}, "int8": {"I8"}, "uint8": {"F8_E4M3", "U8", *BLOCKS}}
DTYPE_NAMES = {"F32": "float32", "F16": "float16", "BF16": "bfloat16"}


@dataclass(frozen=True)
class TensorEntry:
    """A tensor in a file's header."""

    file: Path
    name: str  #: in the file
    shape: tuple[int, ...]
    dtype: str  #: in safetensors' notation: F32, BF16, ...; or an encoding of `BLOCKS`
    start: int  #: its first byte in the file
    end: int  #: the byte after its last
    head_dim: int = field(default=0, kw_only=True)  #: a head's rows are stored in pairs: i and i + head_dim / 2
    addend: float = field(default=0.0, kw_only=True)  #: to add to each value
    is_rate: bool = field(default=False, kw_only=True)  #: minus the exponential of each value is stored
    tiles: Tiles | None = field(default=None, kw_only=True)  #: of its rows
    column_tiles: Tiles | None = field(default=None, kw_only=True)
    whole: TensorEntry | None = field(default=None, kw_only=True)  #: the file's tensor, of which this is a part
    every: int = field(default=1, kw_only=True)  #: the bytes also hold others' rows: it is every second one or so,
    first: int = field(default=0, kw_only=True)  #: from this one on
    is_transposed: bool = field(default=False, kw_only=True)  #: columns are stored, not rows

    @property
    def num_bytes(self) -> int:
        return self.end - self.start

    @property
    def array_shape(self) -> tuple[int, ...]:
        """The shape of an array for its bytes; encoded rows are uint8 [..., row_bytes]."""
        values, num_bytes = BLOCKS.get(self.dtype, (1, 1))
        return (*self.shape[:-1], self.shape[-1] // values * num_bytes) if values > 1 else self.shape


@dataclass(frozen=True)
class ScatteredEntry(TensorEntry):
    """Columns of a tensor, scattered over its bytes. `start` is the tensor's start, `end - start` the columns' size."""

    row_bytes: int  #: size of the whole tensor's rows
    columns: tuple[tuple[int, int], ...]  #: byte ranges in each row, ascending

    def ranges(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        """Yield the file's ranges for a range of the columns' bytes, counted as if they were contiguous."""
        width = sum(last - first for first, last in self.columns)
        for row in range((start - self.start) // width, -(-(end - self.start) // width)):
            position = self.start + row * width  # of the next column range, as if contiguous
            for first, last in self.columns:
                skipped, left_out = max(0, start - position), max(0, position + last - first - end)
                at = self.start + row * self.row_bytes
                if first + skipped < last - left_out:
                    yield at + first + skipped, at + last - left_out
                position += last - first


def weight_files(directory: Path) -> list[Path]:
    """Return a checkpoint's stored weight files by name: one, or the shards of its index; or a GGUF file's parts, or
    coded files. Raises as `read_headers`."""
    if is_gguf(directory):
        return [header.path for header in read_gguf(directory)]
    if is_plane_pack(directory):
        return sorted(directory / group.file for group in read_stage_manifest(directory).groups)
    return _find_files(directory)[0]


def _find_files(directory: Path) -> tuple[list[Path], Mapping[str, str]]:
    if not (directory / INDEX_FILE).is_file():
        file = directory / SINGLE_FILE
        if not file.is_file() and remote_file(file) is None:
            raise ModelLoadError(_no_weights(directory))
        return [file], {}
    weight_map = read_json_object(directory / INDEX_FILE).get("weight_map") or {}
    files_ok = isinstance(weight_map, Mapping) and all(
        isinstance(file, str) and "\0" not in file for file in weight_map.values()
    )
    if not weight_map or not files_ok:
        raise ModelLoadError(
            f"{directory / INDEX_FILE} has no weight_map from tensors to files; copy the file again from its origin"
        )
    names = sorted(set(weight_map.values()))
    for name in names:  # links are followed: people share weights by them, and weights show nothing of other files
        if os.path.isabs(name) or ".." in Path(name).parts:
            raise ModelLoadError(f"{directory / INDEX_FILE} names {name!r:.100}, outside of the model's directory")
    files = [directory / name for name in names]
    missing = [file.name for file in files if not os.path.isfile(file) and remote_file(file) is None]
    if missing:
        raise ModelLoadError(
            f"{directory} lacks {len(missing)} of {len(files)} shards that {INDEX_FILE} names: "
            f"{_some(missing)}; download them"
        )
    return files, weight_map


def read_headers(directory: Path) -> dict[str, TensorEntry]:
    """Return tensors by name, in the order of files and offsets; ModelLoadError for broken files or index. For a GGUF
    file, see `read_gguf_entries`. A pack with planes has those of the original files, which `open_file` decodes."""
    if is_gguf(directory):
        from quire.loading.gguf_tensors import read_gguf_entries  # makes entries

        return read_gguf_entries(directory)
    if is_plane_pack(directory):
        from quire.loading.planes.index import plane_index  # makes entries

        return dict(plane_index(directory).entries)
    entries: dict[str, TensorEntry] = {}
    files, weight_map = _find_files(directory)
    for file in files:
        entries |= read_header(file)
    absent = [name for name in weight_map if name not in entries]
    if absent:
        raise ModelLoadError(
            f"{directory / INDEX_FILE} lists {_some(absent)}, which its shards do not contain: they are from "
            "different checkpoints"
        )
    return entries


def read_header(path: Path) -> dict[str, TensorEntry]:
    """Return a safetensors file's tensors by name, in the order of offsets. ModelLoadError for a broken file."""
    size = 0
    try:
        with open_file(path) as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(0)
            return parse_header(path, file, size)
    except OSError as error:
        raise unreadable(path, error) from None
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise ModelLoadError(
            f"{path} ({size} bytes) is truncated or no safetensors file ({error}); download it again"
        ) from None


def parse_header(path: Path, file: BinaryIO, size: int) -> dict[str, TensorEntry]:
    """Check that tensors are contiguous up to the file's end; raise ValueError and the like otherwise."""
    length = int.from_bytes(file.read(8), "little")
    if size < 8 or length > min(size - 8, _MAX_HEADER_BYTES):
        raise ValueError(f"its header is incomplete, or longer than {_MAX_HEADER_BYTES} bytes")
    header = json.loads(file.read(length))
    if not isinstance(header, dict):
        raise ValueError("its header is not an object")
    first = 8 + length
    entries = [_read_entry(path, name, each, first) for name, each in header.items() if name != "__metadata__"]
    entries.sort(key=lambda entry: (entry.start, entry.end))
    end = first
    for entry in entries:
        if entry.start != end:
            raise ValueError(f"{entry.name} begins at byte {entry.start} and not at {end}")
        end = entry.end
    if end != size:
        raise ValueError(f"its tensors end at byte {end}")
    return {entry.name: entry for entry in entries}


def _read_entry(path: Path, name: str, each: Mapping[str, Any], first: int) -> TensorEntry:
    dtype, shape, (start, end) = each["dtype"], each["shape"], each["data_offsets"]
    numbers_ok = all(type(n) is int and 0 <= n < 2**63 for n in (*shape, start, end)) and start <= end
    if not isinstance(dtype, str) or len(shape) > _MAX_DIMENSIONS or not numbers_ok:
        raise ValueError(f"its header has invalid values for {name:.200}")
    item_bytes = (_FLOAT_TYPES | _OTHER_TYPES).get(dtype)
    if item_bytes is not None and math.prod(shape) * item_bytes != end - start:
        raise ValueError(f"{name} has {end - start} bytes, which is not {dtype} {shape}")
    return TensorEntry(path, name, tuple(shape), dtype, first + start, first + end)


def _no_weights(directory: Path) -> str:
    if any(directory.glob("*.gguf")):
        return f"{directory} has a config.json and GGUF files; name the GGUF file itself"
    if any(directory.glob("*.bin")) or any(directory.glob("*.pt*")):
        return (
            f"{directory} contains only pickled weights (*.bin), which can run code when read and are not "
            "supported; if you trust them, convert them once with transformers: "
            "AutoModelForCausalLM.from_pretrained(DIR).save_pretrained(NEW_DIR), tokenizer likewise"
        )
    others = sorted(file.name for file in directory.glob("*.safetensors"))
    if others:
        return (
            f"{directory} has neither {SINGLE_FILE} nor {INDEX_FILE}, only {_some(others)}; rename a single file to "
            f"{SINGLE_FILE}, or add the index of the shards"
        )
    return (
        f"{directory} contains no weights ({SINGLE_FILE}, or shards with {INDEX_FILE}; *.bin files are not read); "
        "download them, or serve random weights of the same shapes with load_format='random'"
    )


def match_tensors(
    entries: Mapping[str, TensorEntry],
    expected: Mapping[str, tuple[int, ...]],
    *,
    optional_prefix: str = "",
    ignored: re.Pattern[str],
    stored: Mapping[str, str] | None = None,
) -> dict[str, TensorEntry]:
    """Match the model's tensors (`expected` shapes by name) to a checkpoint's entries, in the files' order, or raise
    ModelLoadError. `optional_prefix` may be missing from names, `ignored` matches superfluous tensors, and the tensors
    named in `stored` need not be floats."""
    found: dict[str, TensorEntry] = {}
    unexpected = []
    for name, entry in entries.items():
        if name in expected:
            found[name] = entry
        elif optional_prefix + name in expected:
            found[optional_prefix + name] = entry
        elif not ignored.fullmatch(name):
            unexpected.append(name)
    missing = [name for name in expected if name not in found]
    where = next(iter(entries.values())).file.parent if entries else Path()
    problems = []
    if missing:
        problem = f"{len(missing)} of {len(expected)} tensors are missing: {_some(missing)}"
        if missing == ["lm_head.weight"]:
            problem += " (if the model ties its head to the embedding, config.json must say tie_word_embeddings: true)"
        problems.append(problem)
    wrong_shapes = [
        f"{name} is {list(entry.shape)}, expected {list(expected[name])}"
        for name, entry in found.items()
        if entry.array_shape != tuple(expected[name])
    ]
    wrong_types = [
        f"{name} is {entry.dtype}"
        for name, entry in found.items()
        if entry.dtype not in _TYPES_OF_ARRAYS.get((stored or {}).get(name, ""), _FLOAT_TYPES)
    ]
    wrong = {
        "are unexpected": unexpected,
        "have another shape": wrong_shapes,
        "have another type": wrong_types,
    }
    problems += [f"{len(names)} tensors {what}: {_some(names)}" for what, names in wrong.items() if names]
    if problems:
        raise ModelLoadError(f"{where} does not fit its config.json: " + "; ".join(problems))
    return found


def checkpoint_dtype(entries: Mapping[str, TensorEntry]) -> str | None:
    """Return the dtype of the first tensor in a supported dtype; None without one."""
    return next((DTYPE_NAMES[e.dtype] for e in entries.values() if e.dtype in DTYPE_NAMES), None)


def are_equal(a: TensorEntry, b: TensorEntry) -> bool:
    """Compare the bytes of two contiguous tensors, piece by piece."""
    if (a.shape, a.dtype) != (b.shape, b.dtype):
        return False
    try:
        with open_file(a.file) as file_a, open_file(b.file) as file_b:
            file_a.seek(a.start)
            file_b.seek(b.start)
            for offset in range(0, a.num_bytes, _PIECE_BYTES):
                count = min(_PIECE_BYTES, a.num_bytes - offset)
                if file_a.read(count) != file_b.read(count):
                    return False
    except OSError as error:
        raise unreadable(a.file, error) from None
    return True


def _some(names: list[str], limit: int = 3) -> str:
    more = len(names) - limit
    return ", ".join(name[:200] for name in names[:limit]) + (f" and {more} more" if more > 0 else "")
