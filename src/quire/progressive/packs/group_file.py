"""Write safetensors files in the order of use; data must be contiguous and begin at a multiple of 8 bytes."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import xxhash

from quire.loading.checkpoint import DTYPE_NAMES, TensorEntry, checkpoint_dtype
from quire.loading.modules.fitting import fit_model
from quire.loading.remote import read_pieces
from quire.loading.save import tensors_header
from quire.loading.stage_manifest import PackedFile
from quire.models.model_config import ModelConfig
from quire.models.registry import build_model, text_name
from quire.ops.arrays import numpy_dtype


class TensorOrder:
    """The tensors of a config's checkpoints: their layers and their order of use."""

    def __init__(self, config: ModelConfig) -> None:
        self.model = build_model(config, numpy_dtype("float32"), "meta")  #: without weights
        #: In order of use: embeddings, layers, norm, head.
        self.shapes = {name: tuple(view.shape) for name, view in self.model.checkpoint_tensors().items()}
        self._rank = {name: rank for rank, name in enumerate(self.shapes)}
        layers = self.model.checkpoint_names["layers"]
        self._first_layer = next(rank for name, rank in self._rank.items() if name.startswith(f"{layers}."))
        self.precise: set[str] = set()  #: tensors that precision stages may complete later, by `group`
        self._in_layer = re.compile(rf"{re.escape(layers.removeprefix(self.model.optional_prefix))}\.(\d+)\.")

    def layer_of(self, name: str) -> int | None:
        """The layer of a tensor or module by its checkpoint name; None outside layers."""
        found = self._in_layer.match(self._own(name).removeprefix(self.model.optional_prefix))
        return int(found[1]) if found else None

    def _own(self, name: str) -> str:
        return text_name(name) if self.model.config.text_of else name

    def group(self, entries: Mapping[str, TensorEntry], groups: Sequence[Sequence[int]]) -> list[list[str]]:
        """Group tensor names by layer groups, in order of use; the first also has embeddings, final norm and head, and
        the last what a multimodal model has beside text. ModelLoadError if the tensors do not match the config."""
        fitted, matched = fit_model(self.model.config, entries, lambda *_: numpy_dtype("float32"))
        layers = [(path, layer) for path, layer in fitted.weighted_layers() if layer.has_precisions]
        weights = {f"{part}.weight" for path, layer in layers for part, _, _ in layer.parts(path)}
        dtype = checkpoint_dtype(entries)
        self.precise = {
            entry.name for name, entry in matched.items() if name in weights and DTYPE_NAMES.get(entry.dtype) == dtype
        }
        used = {entry.name for entry in matched.values()}
        group_of = {layer: number for number, group in enumerate(groups) for layer in group}
        found: list[list[str]] = [[] for _ in groups]
        for name in sorted(entries, key=self._order):
            layer, is_spare = self.layer_of(name), self.model.config.text_of and name not in used
            found[-1 if is_spare else 0 if layer is None else group_of.get(layer, 0)].append(name)
        return found

    def _order(self, name: str) -> tuple[int, int, int, str]:
        own = self._own(name)
        rank = self._rank.get(own, self._rank.get(self.model.optional_prefix + own, len(self._rank)))
        if (layer := self.layer_of(name)) is not None:
            return 1, layer, rank, name
        return 0 if rank < self._first_layer else 2, 0, rank, name


class FileCopy:
    """A new file that is digested while it is written."""

    def __init__(self, path: Path, advance: Callable[[int], None]) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("xb")
        self._sha256, self._xxh3 = hashlib.sha256(), xxhash.xxh3_128()
        self._num_bytes, self._advance = 0, advance

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def write(self, piece: Any) -> None:
        self._file.write(piece)
        self._sha256.update(piece)
        self._xxh3.update(piece)
        self._num_bytes += len(piece)
        self._advance(len(piece))

    def copy(self, source: Path, start: int = 0, num_bytes: int | None = None) -> bytes:
        """Copy bytes of another file, by default all, and return their SHA-256. Raises ModelLoadError."""
        digest = hashlib.sha256()
        for piece in read_pieces(source, start, num_bytes):
            digest.update(piece)
            self.write(piece)
        return digest.digest()

    def finish(self, name: str) -> PackedFile:
        """Sync the file to disk. `name` is its path in the pack."""
        self._file.flush()
        os.fsync(self._file.fileno())
        return PackedFile(name, self._num_bytes, self._sha256.hexdigest(), self._xxh3.hexdigest())


def copy_file(
    source: Path, directory: Path, name: str, advance: Callable[[int], None] = lambda num_bytes: None
) -> PackedFile:
    with FileCopy(directory / name, advance) as copy:
        copy.copy(source)
        return copy.finish(name)


def describe_file(path: Path, name: str, advance: Callable[[int], None] = lambda num_bytes: None) -> PackedFile:
    """Digest a file; `name` is its path in the pack. Raises ModelLoadError if it cannot be read."""
    sha256, xxh3, num_bytes = hashlib.sha256(), xxhash.xxh3_128(), 0
    for piece in read_pieces(path):
        sha256.update(piece)
        xxh3.update(piece)
        num_bytes += len(piece)
        advance(len(piece))
    return PackedFile(name, num_bytes, sha256.hexdigest(), xxh3.hexdigest())


def write_tensors(
    directory: Path, name: str, tensors: Mapping[str, TensorEntry], advance: Callable[[int], None]
) -> tuple[PackedFile, dict[str, bytes]]:
    """Write tensors of other files in order, unaligned sizes last; return the file and SHA-256 by tensor."""
    entries = dict(sorted(tensors.items(), key=lambda item: _alignment_rank(item[1])))
    with FileCopy(directory / name, advance) as copy:
        copy.write(tensors_header((name, entry.dtype, entry.shape, entry.num_bytes) for name, entry in entries.items()))
        digests = {tensor: copy.copy(entry.file, entry.start, entry.num_bytes) for tensor, entry in entries.items()}
        return copy.finish(name), digests


def _alignment_rank(entry: TensorEntry) -> int:
    """0 for sizes that keep alignment, then wide elements before narrow ones."""
    if entry.num_bytes % 8 == 0:
        return 0
    numbers = 1
    for size in entry.shape:
        numbers *= size
    return 8 - entry.num_bytes // numbers


@contextlib.contextmanager
def new_directory(out: Path, num_bytes: int) -> Iterator[Path]:
    """Yield a temporary directory that is renamed to `out` on success, and removed on failure. Raises ValueError."""
    out = Path(os.path.realpath(out))
    try:
        if os.path.lexists(out) and (os.path.ismount(out) or not out.is_dir() or any(out.iterdir())):
            raise ValueError(f"{out} is there already and not an empty directory; name a new one")
        out.parent.mkdir(parents=True, exist_ok=True)
        if num_bytes > (free := shutil.disk_usage(out.parent).free):
            raise ValueError(f"{out} needs {num_bytes} bytes, and only {free} are free there")
        made = Path(tempfile.mkdtemp(prefix=f".{out.name}-", dir=out.parent))
        try:
            yield made
            made.chmod(0o755)
            made.rename(out)
        except BaseException:  # Ctrl-C as well
            shutil.rmtree(made, ignore_errors=True)
            raise
    except OSError as error:
        raise ValueError(f"{out} could not be written: {error.strerror or error}") from None
