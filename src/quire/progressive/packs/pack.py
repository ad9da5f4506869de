"""Pack a checkpoint into a file per layer group, or coded planes; renamed once complete and synced to disk."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from quire.loading.checkpoint import INDEX_FILE, TensorEntry, checkpoint_dtype, read_headers
from quire.loading.digest import combine_digests
from quire.loading.errors import ModelLoadError, check_inside
from quire.loading.known_digest import MANIFEST_FILE, sample_file
from quire.loading.progress import bytes_progress
from quire.loading.source import ModelSource, resolve_model
from quire.loading.stage_manifest import (
    ADAPTER_FILES,
    PLANES_FILE,
    STAGES_FILE,
    LayerGroup,
    PackedFile,
    Stage,
    StageManifest,
    adapter_files,
    missing_kv,
    write_stage_manifest,
)
from quire.progressive.packs.group_file import TensorOrder, copy_file, describe_file, new_directory, write_tensors
from quire.progressive.packs.plane_files import PlaneWriter
from quire.progressive.packs.verify import adapter_digest, check_adapter
from quire.progressive.stage_plan import StagePlan

#: Files of a checkpoint beside its weights: config, tokenizer, texts for people.
_COMPANIONS = ("*.json", "*.jinja", "*.txt", "*.md", "*.model", "LICENSE*", "NOTICE*")
_NOT_COMPANIONS = ("adapter_config.json", MANIFEST_FILE, STAGES_FILE, PLANES_FILE)


def pack(
    model: str,
    plan: StagePlan,
    out: Path,
    *,
    adapters: Mapping[int, Path] | None = None,
    origin: Mapping[str, Any] | None = None,
    use_tqdm: bool = True,
) -> StageManifest:
    """Write a checkpoint's pack to a new or empty directory, with `adapters` (PEFT directories) by stage.
    Raises ModelLoadError for a broken checkpoint; ValueError for unfit adapters, an existing `out`, or a full disk."""
    source = resolve_model(model)
    if source.path is None or source.path.is_file():
        raise ModelLoadError(f"{model} is no checkpoint directory; write one with `quire save`, and pack that")
    order = TensorOrder(source.config)
    adapters = adapters or {}
    _check_parts(source, plan, order, adapters)
    entries = read_headers(source.path)
    dtype = checkpoint_dtype(entries)
    if dtype is None:
        raise ModelLoadError(f"{source.path} has no weights in float32, bfloat16 or float16")
    if plan.has_rest and dtype == "float16":
        raise ValueError(f"{source.name} has float16 weights, which have no precision stages; give --mantissa-bits 7")
    shards = order.group(entries, plan.groups)
    total = sum(entry.num_bytes for entry in entries.values())
    with new_directory(out, total) as directory, bytes_progress("Packing", total, use_tqdm) as advance:
        if plan.mantissa_bits is None:
            write = partial(write_tensors, directory, advance=advance)
            groups, digests = _write_shards("model", len(shards), shards, entries, write)
            index = _write_index(directory, shards, groups, total)
        else:
            bits = {name: plan.bits_of(order.layer_of(name)) for name in order.precise}
            writer = PlaneWriter(directory, bits, advance)
            groups, digests = _write_shards("planes", plan.num_stages, shards, entries, writer.write_group)
            last = f"planes-{plan.num_stages:05}-of-{plan.num_stages:05}.safetensors"
            *rests, index = writer.finish(last if plan.has_rest else None, source.path)
            groups += rests
        files = [replace(each, sample=sample_file(directory / each.name, each.num_bytes)) for each in groups]
        files += [*_copy_companions(source.path, directory, index), index]
        stages, added = _copy_stages(directory, plan, adapters)
        files += added
        manifest = StageManifest(
            directory=directory,
            architecture=source.config.architecture,
            num_layers=plan.num_layers,
            dtype=dtype,
            weights=combine_digests(entries, digests),
            groups=tuple(LayerGroup(file.name, plan.adds(stage)) for stage, file in enumerate(groups, 1)),
            stages=tuple(stages),
            files={file.name: file for file in files},
            plan={**(origin or {}), **plan.to_dict()},
            mantissa_bits=plan.mantissa_bits,
            layer_bits=plan.layer_bits,
        )
        write_stage_manifest(manifest)
    return replace(manifest, directory=out)


def _check_parts(source: ModelSource, plan: StagePlan, order: TensorOrder, adapters: Mapping[int, Path]) -> None:
    if plan.num_layers != source.config.num_layers:
        raise ValueError(
            f"the plan is for {plan.num_layers} layers, and {source.name} has {source.config.num_layers}; make a plan "
            "for it with `quire stages plan`"
        )
    if (problem := missing_kv(plan.groups, source.config)) is not None:
        raise ValueError(f"{source.name} cannot be packed by this plan: {problem}; leave out other layers")
    for stage in adapters:
        if not 1 <= stage < plan.num_stages:
            raise ValueError(
                f"there is nothing to add to stage {stage}: stages count from 1, and the last of {plan.num_stages} is "
                "the original"
            )
    for stage, directory in adapters.items():
        check_adapter(directory, order, plan.layers_in_place(stage))


def _write_shards(
    kind: str,
    num_files: int,
    shards: Sequence[Sequence[str]],
    entries: Mapping[str, TensorEntry],
    write: Callable[[str, Mapping[str, TensorEntry]], tuple[PackedFile, dict[str, bytes]]],
) -> tuple[list[PackedFile], dict[str, bytes]]:
    files: list[PackedFile] = []
    digests: dict[str, bytes] = {}
    for number, names in enumerate(shards, 1):
        name = f"{kind}-{number:05}-of-{num_files:05}.safetensors"
        file, found = write(name, {tensor: entries[tensor] for tensor in names})
        files.append(file)
        digests.update(found)
    return files, digests


def _copy_stages(
    directory: Path, plan: StagePlan, adapters: Mapping[int, Path]
) -> tuple[list[Stage], list[PackedFile]]:
    stages, files = [], []
    for number in range(1, plan.num_stages + 1):
        stage = Stage(number, plan.layers_in_place(number))
        if number in adapters:
            folder = f"adapters/{number}"
            names = zip(ADAPTER_FILES, adapter_files(folder), strict=True)
            copies = [copy_file(adapters[number] / name, directory, packed) for name, packed in names]
            stage = replace(stage, adapter=folder, adapter_digest=adapter_digest(copies))
            files += copies
        stages.append(stage)
    return stages, files


def _write_index(
    directory: Path, shards: Sequence[Sequence[str]], files: Sequence[PackedFile], total: int
) -> PackedFile:
    tensors = {tensor: file.name for file, names in zip(files, shards, strict=True) for tensor in names}
    index = {"metadata": {"total_size": total}, "weight_map": tensors}
    (directory / INDEX_FILE).write_text(json.dumps(index, indent=1) + "\n", encoding="utf-8")
    return describe_file(directory / INDEX_FILE, INDEX_FILE)


def _copy_companions(source: Path, directory: Path, index: PackedFile) -> list[PackedFile]:
    """Copy the files beside the weights; also the index of the original's shards, unless the pack has its own."""
    found = {path for pattern in _COMPANIONS for path in source.glob(pattern) if path.is_file()}
    found -= {path for pattern in (*_NOT_COMPANIONS, index.name) for path in source.glob(pattern)}
    for path in found:
        check_inside(source, path)
    return [copy_file(path, directory, path.name) for path in sorted(found)]
