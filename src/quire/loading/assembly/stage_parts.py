"""What a stage has beside its layers: identities, or a linear map, in the places of absent ones, and an adapter."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import xxhash
from torch import nn

from quire.loading.errors import ModelLoadError, unreadable
from quire.loading.known_digest import sample_file
from quire.loading.stage_manifest import PackedFile, StageManifest
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


def other_content(path: Path) -> ModelLoadError:
    """The error for a file of a pack whose checksum is another one."""
    return ModelLoadError(
        f"{path} is not what was packed: its checksum is another one; copy it again, and see `quire stages verify`"
    )


def check_sample(path: Path, packed: PackedFile) -> None:
    """Raise `other_content` unless a sample of a group's file is what was packed: for who does not read all of it."""
    if packed.sample and sample_file(path, packed.num_bytes) != packed.sample:
        raise other_content(path)


def _read_checked(manifest: StageManifest, path: Path) -> bytes:
    """The content of a small file; ModelLoadError unless it is what was packed: the namespace has its digest."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise unreadable(path, error) from None
    if xxhash.xxh3_128_hexdigest(data) != manifest.files[path.relative_to(manifest.directory).as_posix()].xxh3:
        raise other_content(path)
    return data
