"""What a stage has beside its layers: identities, or a linear map, in the places of absent ones, and an adapter; and
whether its files are what was packed."""

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
    """What stands in for layers that a stage does not have, by their indices, and its adapter.

    Args:
        model: of which a rank may have a part; then it gets its parts of these, too.

    Raises:
        ModelLoadError: a file cannot be read, or is not what was packed.
        ModelConfigError: it holds something else than the stage needs.
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


def _other_content(path: Path) -> ModelLoadError:
    """The error for a file of a pack whose checksum is another one."""
    return ModelLoadError(
        f"{path} is not what was packed: its checksum is another one; copy it again, and see `quire stages verify`"
    )


class GroupCheck:
    """Whether a group of a pack is what was packed: by its file's checksum, taken on the way, or by a sample, taken
    beforehand, for who does not read all of the file. Nothing is known of a plain checkpoint.

    Args:
        directory: of the pack.
        group: that is about to be read.

    Raises:
        ModelLoadError: its sample is another one.
    """

    def __init__(self, directory: Path, group: ReadGroup) -> None:
        self._packed = packed = group.file
        self._path = directory if packed is None else directory / packed.name
        self._checksum = xxhash.xxh3_128() if packed is not None and group.is_whole else None
        if packed is None or self._checksum is not None or not packed.sample:
            return
        if sample_file(self._path, packed.num_bytes) != packed.sample:
            raise _other_content(self._path)

    def update(self, data: memoryview) -> None:
        """Bytes pass, in the order of the file."""
        if self._checksum is not None:
            self._checksum.update(data)

    def finish(self) -> None:
        """All have passed. Raises ModelLoadError where they are others than were packed."""
        if self._checksum is not None and self._packed is not None and self._checksum.hexdigest() != self._packed.xxh3:
            raise _other_content(self._path)


def _read_checked(manifest: StageManifest, path: Path) -> bytes:
    """The content of a small file; ModelLoadError unless it is what was packed: the namespace has its digest."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise unreadable(path, error) from None
    if xxhash.xxh3_128_hexdigest(data) != manifest.files[path.relative_to(manifest.directory).as_posix()].xxh3:
        raise _other_content(path)
    return data
