"""The parts of a stage beside its layers: stand-ins for absent layers and an adapter. Verifies a pack's files."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import xxhash
from torch import nn

from quire.loading.errors import ModelLoadError, unreadable
from quire.loading.known_digest import sample_file
from quire.loading.reading.checkpoint_reading import ReadGroup
from quire.loading.stage_manifest import StageManifest
from quire.models.adapter import read_adapter
from quire.models.base import CausalLM
from quire.models.stages import Adapter, PassLayer, read_linear_map


def read_stage_parts(
    manifest: StageManifest, number: int, model: CausalLM
) -> tuple[dict[int, nn.Module], Adapter | None]:
    """Return a stage's stand-ins for absent layers, by index, and its adapter; a rank gets its parts of both.

    Raises ModelLoadError for an unreadable or damaged file, ModelConfigError for one that does not fit.
    """
    stage, directory = manifest.stages[number - 1], manifest.directory
    stand_ins: dict[int, nn.Module] = {i: PassLayer() for i in range(manifest.num_layers) if i not in stage.layers}
    adapter = None
    read = partial(_read_checked, manifest)
    if stage.linear_map is not None:
        stand_ins[min(stand_ins)] = read_linear_map(
            directory / stage.linear_map,
            hidden_size=model.split.hidden,
            dtype=model.dtype,
            device=model.device,
            group=model.split.group,
            read=read,
        )
    if stage.adapter is not None:
        adapter = read_adapter(
            directory / stage.adapter,
            model,
            dtype=model.dtype,
            device=model.device,
            digest=stage.adapter_digest,
            read=read,
        )
    return stand_ins, adapter


def _damaged(path: Path) -> ModelLoadError:
    return ModelLoadError(
        f"{path} is damaged: its checksum differs from the pack's; copy it again, and see `quire stages verify`"
    )


class GroupCheck:
    """Verifies a group's file in a pack: by its checksum if all of it is read, else by a sample at the start."""

    def __init__(self, directory: Path, group: ReadGroup) -> None:
        self._packed = packed = group.file
        self._path = directory if packed is None else directory / packed.name
        self._checksum = xxhash.xxh3_128() if packed is not None and group.is_whole else None
        if packed is None or self._checksum is not None or not packed.sample:
            return
        if sample_file(self._path, packed.num_bytes) != packed.sample:
            raise _damaged(self._path)

    def update(self, data: memoryview) -> None:
        if self._checksum is not None:
            self._checksum.update(data)

    def finish(self) -> None:
        """Raise ModelLoadError if the checksum differs."""
        if self._checksum is not None and self._packed is not None and self._checksum.hexdigest() != self._packed.xxh3:
            raise _damaged(self._path)


def _read_checked(manifest: StageManifest, path: Path) -> bytes:
    """Read and verify a small file, whose digest is part of the namespace."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise unreadable(path, error) from None
    if xxhash.xxh3_128_hexdigest(data) != manifest.files[path.relative_to(manifest.directory).as_posix()].xxh3:
        raise _damaged(path)
    return data
