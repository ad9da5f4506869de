"""Verify a pack: every byte against the manifest, and the tensors against the config."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from quire.loading.checkpoint import read_headers, weight_files
from quire.loading.digest import hash_checkpoint
from quire.loading.errors import ModelLoadError
from quire.loading.planes.index import plane_index
from quire.loading.source import resolve_model
from quire.loading.stage_manifest import (
    ADAPTER_FILES,
    STAGES_FILE,
    PackedFile,
    StageManifest,
    adapter_files,
    check_against,
    check_size,
    read_stage_manifest,
)
from quire.models.adapter import read_adapter
from quire.models.tensor_file import read_tensors, wrong_file
from quire.progressive.packs.group_file import TensorOrder, describe_file

_PEFT_PREFIX = "base_model.model."


def verify(directory: Path, advance: Callable[[int], None] = lambda num_bytes: None) -> list[str]:
    """Read a whole pack twice, by file and by tensor, and return one error per broken file."""
    try:
        manifest = read_stage_manifest(directory)
        broken = [problem for name in manifest.files if (problem := _check_file(manifest, name, advance))]
        if broken:
            return broken
        _check_model(manifest, advance)
    except ValueError as error:
        return [str(error)]
    return []


def _check_file(manifest: StageManifest, name: str, advance: Callable[[int], None]) -> str | None:
    path, expected = manifest.directory / name, manifest.files[name]
    try:
        check_size(manifest, name)
        found = describe_file(path, name, advance)
    except ModelLoadError as error:
        return str(error)
    for kind, digest, stated in (("SHA-256", found.sha256, expected.sha256), ("XXH3", found.xxh3, expected.xxh3)):
        if digest != stated:
            return f"{path} has the {kind} {digest} where {STAGES_FILE} states {stated}; copy it again from its origin"
    return None


def _check_model(manifest: StageManifest, advance: Callable[[int], None]) -> None:
    """Raise ValueError unless the files, which match the manifest, belong to one model."""
    directory = manifest.directory
    config = resolve_model(str(directory.absolute())).config
    check_against(manifest, config)
    order, entries = TensorOrder(config), read_headers(directory)
    if [file.name for file in weight_files(directory)] != sorted(group.file for group in manifest.groups):
        raise ModelLoadError(f"{directory} has weights in other files than {STAGES_FILE} names; pack the model again")
    groups = order.group(entries, [group.layers for group in manifest.layer_groups])
    files: Mapping[str, Sequence[str]] = {name: [entry.file.name] for name, entry in entries.items()}
    if manifest.mantissa_bits is not None:
        files = plane_index(directory).coded_files
    for names, group in zip(groups, manifest.layer_groups, strict=True):
        for name in names:
            if files[name][0] != group.file:
                raise ModelLoadError(
                    f"{directory / files[name][0]} holds {name}, which by {STAGES_FILE} belongs to {group.file}; pack "
                    "the model again"
                )
    if (weights := hash_checkpoint(directory, advance=advance)) != manifest.weights:
        raise ModelLoadError(
            f"{directory / STAGES_FILE} is of a model with the digest {manifest.weights}, and the files beside it are "
            f"of one with {weights}; pack the model again"
        )
    for stage in manifest.stages:
        if stage.adapter is not None:
            check_adapter(directory / stage.adapter, order, stage.layers)
            if adapter_digest([manifest.files[name] for name in adapter_files(stage.adapter)]) != stage.adapter_digest:
                raise ModelLoadError(f"{directory / stage.adapter} is not the adapter whose digest {STAGES_FILE} names")


def check_adapter(directory: Path, order: TensorOrder, layers: Sequence[int]) -> None:
    """Raise ValueError, which names the file, unless a PEFT directory holds a servable adapter for these layers."""
    read_adapter(directory, order.model, dtype=order.model.dtype, device="cpu", digest="")
    weights = directory / ADAPTER_FILES[0]
    for name in read_tensors(weights):
        if (layer := order.layer_of(name.removeprefix(_PEFT_PREFIX))) not in layers:
            raise wrong_file(
                weights, f"is for layer {layer}, which is not in place at this stage; that has {list(layers)}"
            )


def adapter_digest(files: Sequence[PackedFile]) -> str:
    """Digest of an adapter, from those of its files in the order of `ADAPTER_FILES`."""
    return hashlib.sha256("".join(file.sha256 for file in files).encode()).hexdigest()
