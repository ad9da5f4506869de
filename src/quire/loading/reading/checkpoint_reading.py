"""An open checkpoint: its headers, the groups in which its bytes are read, and their reader."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from quire.loading.checkpoint import TensorEntry, read_headers
from quire.loading.errors import ModelLoadError
from quire.loading.known_digest import stat_weights
from quire.loading.planes.choice import faster_directory
from quire.loading.reading.reader import (
    BUFFER_BYTES,
    ByteReader,
    Run,
    cost_of,
    original_of,
    position_in_use,
    run_of_file,
    runs_in_order_of_use,
)
from quire.loading.remote import is_remote, remote_file
from quire.loading.source import find_model, resolve_model
from quire.loading.stage_manifest import (
    FIRST,
    REST,
    STAGES_FILE,
    LayerGroup,
    PackedFile,
    StageManifest,
    check_files,
    is_pack,
    read_stage_manifest,
    without_precision,
)

#: Read while the engine is imported. This does not raise the peak: buffers are freed as the model grows.
_EARLY_BUFFER_BYTES = 2**30


@dataclass(frozen=True)
class ReadGroup:
    """The bytes that a stage adds. A model without stages is one group."""

    runs: tuple[Run, ...]
    file: PackedFile | None  #: the group's file in a pack
    is_whole: bool = False  #: the only run is the whole file, so its checksum can be verified
    view: str = ""  #: of original files (`FIRST`, `REST`)

    @property
    def num_bytes(self) -> int:
        return sum(cost_of(original_of(run.file), run.start, run.end) for run in self.runs)


class CheckpointReading:
    """Reads the headers in the constructor, and the weights after `start`, in groups of the `manifest` (None: one), at
    most `bandwidth` bytes per second and `buffer_bytes` ahead. ModelLoadError for missing or truncated files, or a
    manifest of other files."""

    def __init__(
        self,
        directory: Path,
        *,
        manifest: StageManifest | None = None,
        last_stage: int | None = None,
        bandwidth: float | None = None,
        buffer_bytes: int = BUFFER_BYTES,
    ) -> None:
        self.directory = directory
        if manifest is not None:
            check_files(manifest)
        self.started_ns = time.time_ns()
        self.files = stat_weights(directory)  #: before reading
        self.manifest = manifest
        self.entries: Mapping[str, TensorEntry] = read_headers(directory)
        self._bandwidth = bandwidth
        self._buffer_bytes = buffer_bytes
        self._last_stage = last_stage
        self.groups: Sequence[ReadGroup] = self._make_groups()
        self._reader: ByteReader | None = None
        self._reread: set[tuple[int, object]] = set()  # group and state of damaged remote files that were read again
        self._found: list[tuple[int, ...] | None] = []  # state of each group's file when its last reader started

    def _make_groups(self) -> Sequence[ReadGroup]:
        if (manifest := self.manifest) is None:
            return [ReadGroup(tuple(runs_in_order_of_use(self.entries.values())), None)]
        make = _group_of if manifest.mantissa_bits is None else _decoded_group
        return [make(manifest, group, self.entries) for group in manifest.groups[: self._last_stage]]

    def read_at_once(self) -> None:
        """Read all mantissa bits of a layer at once, in one stage fewer. Stops reading."""
        if self.manifest is not None and self.manifest.has_rest:
            self.close()
            self.manifest = without_precision(self.manifest)
            self.groups = self._make_groups()

    def narrow(self, entries: Iterable[TensorEntry]) -> None:
        """Restrict reading to these tensors or parts of them. Stops reading."""
        self.close()
        wanted = list(entries)
        self.groups = [
            replace(group, runs=_runs_of(_of_group(group, wanted), group.view), is_whole=False) for group in self.groups
        ]

    def start(self) -> None:
        if self._reader is None:
            self._reader = self._make_reader(0)
            self._reader.start()

    def reader(self, first_group: int) -> ByteReader:
        """Return a running reader from a group on, the one of `start` if possible. The caller closes it."""
        reader, self._reader = self._reader, None
        if reader is not None and first_group == 0:
            return reader
        reader = self._make_reader(first_group)
        reader.start()
        return reader

    def has_changed(self, group: int) -> bool:
        """Return whether the file of a pack's group changed since its last reader started. A remote file is also read
        again once as it is, since its bytes may have been damaged on their way."""
        file = self.groups[group].file
        if file is not None and (remote := remote_file(self.directory / file.name)) is not None:
            state = (group, remote.current_state())
            is_new = state not in self._reread
            self._reread.add(state)
            return is_new
        return self._stat(group) != self._found[group]

    def close(self) -> None:
        """Stop the reader of `start`, unless `reader` has returned it."""
        if self._reader is not None:
            self._reader.close()
            self._reader = None

    def _make_reader(self, first_group: int) -> ByteReader:
        self._found = [self._stat(group) for group in range(len(self.groups))]
        runs = [run for group in self.groups[first_group:] for run in group.runs]
        has_checks = self.manifest is not None and self.manifest.mantissa_bits is not None
        is_pinned = first_group == 0 or not (has_checks or self.groups[first_group].is_whole)  # else of a repaired file
        return ByteReader(
            runs,
            bandwidth=self._bandwidth,
            buffer_bytes=self._buffer_bytes,
            is_pinned=is_pinned,
            num_first=len(self.groups[0].runs) if first_group == 0 else None,
        )

    def _stat(self, group: int) -> tuple[int, ...] | None:
        file = self.groups[group].file
        if file is None:
            return None
        try:
            stat = (self.directory / file.name).stat()
        except OSError:
            return None
        return stat.st_size, stat.st_mtime_ns, stat.st_ino


def begin_reading(
    model: str, *, load_format: str = "auto", bandwidth: float | None = None, last_stage: int | None = None
) -> CheckpointReading | None:
    """Start reading the files of a directory or URL. Errors give None: loading reports them."""
    try:
        source = resolve_model(model) if is_remote(model) else find_model(model)
        if source is None or source.path is None or load_format == "random":
            return None
        reading = read_checkpoint(
            source.path, bandwidth=bandwidth, last_stage=last_stage, buffer_bytes=_EARLY_BUFFER_BYTES
        )
    except ValueError:
        return None
    reading.start()
    return reading


def read_checkpoint(
    directory: Path, *, bandwidth: float | None = None, last_stage: int | None = None, buffer_bytes: int = BUFFER_BYTES
) -> CheckpointReading:
    """Open a checkpoint or a pack, or the plain files in it if reading them takes less time. Raises as
    `CheckpointReading`."""
    manifest = read_stage_manifest(directory) if is_pack(directory) else None
    if manifest is not None and manifest.mantissa_bits is not None and last_stage is None:
        directory = faster_directory(manifest, bandwidth)
        manifest = manifest if directory == manifest.directory else None
    return CheckpointReading(
        directory, manifest=manifest, bandwidth=bandwidth, last_stage=last_stage, buffer_bytes=buffer_bytes
    )


def _group_of(manifest: StageManifest, group: LayerGroup, entries: Mapping[str, TensorEntry]) -> ReadGroup:
    """Return a group, whose file must contain the manifest's layers."""
    path, packed = manifest.directory / group.file, manifest.files[group.file]
    run = run_of_file(path, packed.num_bytes, entries.values())
    _check_layers(manifest, group, run.tensors)
    return ReadGroup((run,), packed, is_whole=True)


def _decoded_group(manifest: StageManifest, group: LayerGroup, entries: Mapping[str, TensorEntry]) -> ReadGroup:
    """As `_group_of` with planes. Each chunk has a checksum, so the file needs no check."""
    from quire.loading.planes.index import plane_index  # with numpy

    files, packed = plane_index(manifest.directory).coded_files, manifest.files[group.file]
    own = [entry for entry in entries.values() if group.file in files[entry.name]]
    view = FIRST if manifest.has_rest else ""
    if group in manifest.layer_groups:
        _check_layers(manifest, group, own)
    else:
        view = REST
    return ReadGroup(_runs_of(own, view), replace(packed, sample=""), view=view)


def _runs_of(entries: Iterable[TensorEntry], view: str) -> tuple[Run, ...]:
    runs = runs_in_order_of_use(entries)
    return tuple(replace(run, file=run.file.with_suffix(view)) if view else run for run in runs)


def _check_layers(manifest: StageManifest, group: LayerGroup, entries: Iterable[TensorEntry]) -> None:
    positions = [position_in_use(entry.name) for entry in entries]
    found = {int(each) for each in positions if 0 <= each < manifest.num_layers}  # the next is a draft head's
    if found != set(group.layers):
        raise ModelLoadError(
            f"{manifest.directory / STAGES_FILE} expects layers {list(group.layers)} in {group.file}, which contains "
            f"{sorted(found)}; copy the pack again, or pack the model again with `quire stages pack`"
        )


def _of_group(group: ReadGroup, entries: Iterable[TensorEntry]) -> Iterator[TensorEntry]:
    names = {tensor.name for run in group.runs for tensor in run.tensors}
    return (entry for entry in entries if entry.name in names)
