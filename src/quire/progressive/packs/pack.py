"""Pack a checkpoint into a file per layer group; renamed once complete and synced to disk."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
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
    STAGES_FILE,
    LayerGroup,
    PackedFile,
    Stage,
    StageManifest,
    adapter_files,
    missing_kv,
    write_stage_manifest,
)
from quire.progressive.packs.group_file import TensorOrder, copy_file, describe_file, write_tensors
from quire.progressive.packs.verify import adapter_digest, check_adapter
from quire.progressive.stage_plan import StagePlan

#: Files of a checkpoint beside its weights: config, tokenizer, texts for people.
_COMPANIONS = ("*.json", "*.jinja", "*.txt", "*.md", "*.model", "LICENSE*", "NOTICE*")
_NOT_COMPANIONS = ("*.index.json", "adapter_config.json", MANIFEST_FILE, STAGES_FILE)


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
    shards = order.group(entries, plan.groups)
    total = sum(entry.num_bytes for entry in entries.values())
    with _new_directory(out, total) as directory, bytes_progress("Packing", total, use_tqdm) as advance:
        groups, digests = _write_shards(directory, shards, entries, advance)
        files = [replace(each, sample=sample_file(directory / each.name, each.num_bytes)) for each in groups]
        files += [*_copy_companions(source.path, directory), _write_index(directory, shards, groups, total)]
        stages, added = _copy_stages(directory, plan, adapters)
        files += added
        manifest = StageManifest(
            directory=directory,
            architecture=source.config.architecture,
            num_layers=plan.num_layers,
            dtype=dtype,
            weights=combine_digests(entries, digests),
            groups=tuple(LayerGroup(file.name, group) for file, group in zip(groups, plan.groups, strict=True)),
            stages=tuple(stages),
            files={file.name: file for file in files},
            plan={**(origin or {}), **plan.to_dict()},
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
    directory: Path, shards: Sequence[Sequence[str]], entries: Mapping[str, TensorEntry], advance: Callable[[int], None]
) -> tuple[list[PackedFile], dict[str, bytes]]:
    files: list[PackedFile] = []
    digests: dict[str, bytes] = {}
    for number, names in enumerate(shards, 1):
        name = f"model-{number:05}-of-{len(shards):05}.safetensors"
        file, found = write_tensors(directory, name, {tensor: entries[tensor] for tensor in names}, advance)
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


def _copy_companions(source: Path, directory: Path) -> list[PackedFile]:
    found = {path for pattern in _COMPANIONS for path in source.glob(pattern) if path.is_file()}
    found -= {path for pattern in _NOT_COMPANIONS for path in source.glob(pattern)}
    for path in found:
        check_inside(source, path)
    return [copy_file(path, directory, path.name) for path in sorted(found)]


@contextlib.contextmanager
def _new_directory(out: Path, num_bytes: int) -> Iterator[Path]:
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
