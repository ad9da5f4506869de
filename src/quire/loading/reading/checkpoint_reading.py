"""A checkpoint that is read: its headers, the groups in which its bytes are wanted, and a reader of them."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from quire.loading.checkpoint import TensorEntry, read_headers
from quire.loading.errors import ModelLoadError
from quire.loading.known_digest import stat_weights
from quire.loading.reading.order import Run, place_in_use, run_of_file, runs_in_order_of_use
from quire.loading.reading.reader import BUFFER_BYTES, ByteReader
from quire.loading.source import find_model
from quire.loading.stage_manifest import (
    STAGES_FILE,
    LayerGroup,
    PackedFile,
    StageManifest,
    check_files,
    is_pack,
    read_stage_manifest,
)

#: That are read before torch is imported, which takes seconds. The peak is no higher for it: there is no model yet, and
#: buffers go as it grows.
_EARLY_BUFFER_BYTES = 2**30


@dataclass(frozen=True)
class ReadGroup:
    """What a stage needs beside the stages before it. A model without stages is one group."""

    runs: tuple[Run, ...]
    file: PackedFile | None  #: that it comes in, of a pack
    is_whole: bool = False  #: the one run is the whole file, so that its checksum can be taken as the bytes pass

    @property
    def num_bytes(self) -> int:
        return sum(run.end - run.start for run in self.runs)


class CheckpointReading:
    """A checkpoint whose headers are read; its bytes are from `start` on.

    Args:
        directory: of the checkpoint.
        manifest: of its stages; None reads it as it comes, whether it has stages or not.
        last_stage: that is read; None is the last.
        bandwidth: bytes a second that storage seems to give.
        buffer_bytes: that are read ahead at most.

    Raises:
        ModelLoadError: no weights, a file that is missing or cut off, or a manifest of other files.
    """

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
        self.files = stat_weights(directory)  #: as they were before they were read
        self.manifest = manifest
        self.entries: Mapping[str, TensorEntry] = read_headers(directory)
        self._bandwidth = bandwidth
        self._buffer_bytes = buffer_bytes
        self.groups: Sequence[ReadGroup]
        if manifest is None:
            self.groups = [ReadGroup(tuple(runs_in_order_of_use(self.entries.values())), None)]
        else:
            groups = manifest.groups[:last_stage]
            self.groups = [_group_of(manifest, group, self.entries) for group in groups]
        self._reader: ByteReader | None = None
        self._found: list[tuple[int, ...] | None] = []  # of each group's file, when a reader of it last began

    def narrow(self, entries: Iterable[TensorEntry]) -> None:
        """Read no more than these: tensors of the checkpoint, or parts of them. Whatever was begun is ended."""
        self.close()
        wanted = list(entries)
        self.groups = [
            replace(group, runs=tuple(runs_in_order_of_use(_of_group(group, wanted))), is_whole=False)
            for group in self.groups
        ]

    def start(self) -> None:
        """Begin to read. Whoever builds the model meanwhile finds the first bytes there."""
        if self._reader is None:
            self._reader = self._make_reader(0)
            self._reader.start()

    def reader(self, first_group: int) -> ByteReader:
        """A reader that has been started and gives the pieces of a group and all later ones: that which `start` began,
        if it is the first that is asked for. It is the caller's to close."""
        reader, self._reader = self._reader, None
        if reader is not None and first_group == 0:
            return reader
        reader = self._make_reader(first_group)
        reader.start()
        return reader

    def has_changed(self, group: int) -> bool:
        """Whether the file of a pack's group has come or gone or is another one since the last reader of it began."""
        return self._look_at(group) != self._found[group]

    def close(self) -> None:
        """End reading that nobody has asked for the reader of."""
        if self._reader is not None:
            self._reader.close()
            self._reader = None

    def _make_reader(self, first_group: int) -> ByteReader:
        self._found = [self._look_at(group) for group in range(len(self.groups))]
        runs = [run for group in self.groups[first_group:] for run in group.runs]
        return ByteReader(runs, bandwidth=self._bandwidth, buffer_bytes=self._buffer_bytes)

    def _look_at(self, group: int) -> tuple[int, ...] | None:
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
    """Begin to read what is on this machine, if it has files that will be loaded. None also where they are broken:
    whoever loads them says what is wrong.

    Args:
        model: as `EngineConfig` names it.
    """
    try:
        source = find_model(model)
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
    directory: Path,
    *,
    bandwidth: float | None = None,
    last_stage: int | None = None,
    buffer_bytes: int = BUFFER_BYTES,
) -> CheckpointReading:
    """The headers of a checkpoint, and the manifest of one that comes in stages; raises as `CheckpointReading`."""
    manifest = read_stage_manifest(directory) if is_pack(directory) else None
    return CheckpointReading(
        directory, manifest=manifest, bandwidth=bandwidth, last_stage=last_stage, buffer_bytes=buffer_bytes
    )


def _group_of(manifest: StageManifest, group: LayerGroup, entries: Mapping[str, TensorEntry]) -> ReadGroup:
    """A group's file, which must hold the layers that the manifest says."""
    path, packed = manifest.directory / group.file, manifest.files[group.file]
    run = run_of_file(path, packed.num_bytes, entries.values())
    names = [entry.name for entry in run.tensors]
    found = {int(place) for place in map(place_in_use, names) if place >= 0 and math.isfinite(place)}
    if found != set(group.layers):
        raise _misfit(manifest, f"says that {group.file} holds layers {list(group.layers)}; it holds {sorted(found)}")
    return ReadGroup((run,), packed, is_whole=True)


def _of_group(group: ReadGroup, entries: Iterable[TensorEntry]) -> Iterator[TensorEntry]:
    files = {run.file for run in group.runs}
    return (entry for entry in entries if entry.file in files)


def _misfit(manifest: StageManifest, what: str) -> ModelLoadError:
    return ModelLoadError(
        f"{manifest.directory / STAGES_FILE} {what}; copy the pack again, or pack the model again with "
        "`quire stages pack`"
    )
