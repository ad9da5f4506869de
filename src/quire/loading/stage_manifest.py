"""The manifest of a pack: a checkpoint in stages, with adapters for all stages but the last.

A pack is an ordinary checkpoint directory with one safetensors file per layer group, a manifest, and adapters in PEFT's
format. Other programs load it as the original model. A pack with planes (`loading.planes`) has coded files instead,
which only Quire reads. Manifests are not trusted: file names must stay inside the directory, and contradictions are
errors.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, TypeVar

from quire.loading.errors import ModelLoadError, check_inside, unreadable
from quire.loading.remote import file_size
from quire.system.user_cache import replace_file

if TYPE_CHECKING:
    from quire.models.model_config import ModelConfig

STAGES_FILE = "quire-stages.json"
ADAPTER_FILES = ("adapter_model.safetensors", "adapter_config.json")  #: PEFT's names
VERSION = 1
PLANES_FILE = "quire-planes.json"  #: of a pack with planes
FIRST, REST = ".first", ".rest"  #: suffixes of views of its original files (`loading.planes.index`)
UNITS = ("layer", "plane")  #: of groups and stages
WHOLE_BITS = 7  #: of a mantissa: all
_DTYPES = ("float32", "bfloat16", "float16")
_SHA256, _XXH3 = re.compile("[0-9a-f]{64}"), re.compile("[0-9a-f]{32}")
_WEIGHTS = re.compile("sha256:[0-9a-f]{64}")


@dataclass(frozen=True)
class PackedFile:
    name: str
    num_bytes: int
    sha256: str  #: hexadecimal; checked by `quire stages verify`
    xxh3: str  #: hexadecimal, 128 bits; checked during loading
    sample: str = ""  #: `known_digest.sample_file` of a group's file, which identifies it without reading all of it


@dataclass(frozen=True)
class LayerGroup:
    """The layers that one stage adds, or whose mantissas it completes, and their file."""

    file: str
    layers: tuple[int, ...]  #: ascending indices in the full model; the first group also has all other tensors


@dataclass(frozen=True)
class Stage:
    """A servable state of a model. Stages count from 1; the last is the original."""

    number: int
    layers: tuple[int, ...]  #: present layers, ascending
    adapter: str | None = None  #: its folder in the pack
    adapter_digest: str = ""  #: digest of its weights and config, for the namespace


@dataclass(frozen=True)
class StageManifest:
    """A pack's manifest, checked for contradictions."""

    directory: Path
    architecture: str
    num_layers: int
    dtype: str  #: dtype of the files, such as bfloat16
    weights: str  #: digest of the original's weights, `sha256:...` (`loading.digest`)
    groups: tuple[LayerGroup, ...]  #: in the order of loading
    stages: tuple[Stage, ...]  #: one per group
    files: Mapping[str, PackedFile]  #: all files but the manifest, by name
    plan: Mapping[str, Any] = field(default_factory=dict)  #: `StagePlan.to_dict` and its origin, for human readers
    mantissa_bits: int | None = None  #: with planes: bits of the weights before the last stage; `WHOLE_BITS` are all
    layer_bits: tuple[
        int, ...
    ] = ()  #: of each layer's weights, if they differ; `mantissa_bits` are those of the others

    @property
    def has_rest(self) -> bool:
        """Return whether the last group completes the mantissas of all layers."""
        return self.mantissa_bits is not None and min(self.mantissa_bits, *self.layer_bits, WHOLE_BITS) < WHOLE_BITS

    @property
    def layer_groups(self) -> tuple[LayerGroup, ...]:
        return self.groups[:-1] if self.has_rest else self.groups

    def bits_of(self, stage: int) -> tuple[int, ...] | None:
        """Return a stage's mantissa bits: those of weights outside layers and then by layer, or of all. None: 7."""
        if self.mantissa_bits is None or not self.has_rest or stage == len(self.stages):
            return None
        return self.mantissa_bits, *self.layer_bits

    def stage_bytes(self, number: int) -> int:
        """Return the bytes of all layer groups up to a stage."""
        return sum(self.files[group.file].num_bytes for group in self.groups[:number])


def without_precision(manifest: StageManifest) -> StageManifest:
    """Return the manifest for loading all bits of a layer at once."""
    if not manifest.has_rest:
        return manifest
    groups = manifest.layer_groups
    last = replace(manifest.stages[-1], number=len(groups))
    stages = (*manifest.stages[: len(groups) - 1], last)
    return replace(manifest, groups=groups, stages=stages, mantissa_bits=WHOLE_BITS, layer_bits=())


def is_pack(directory: Path) -> bool:
    return (directory / STAGES_FILE).is_file()


def is_plane_pack(directory: Path) -> bool:
    return (directory / PLANES_FILE).is_file()


def adapter_files(folder: str) -> tuple[str, ...]:
    return tuple(f"{folder}/{name}" for name in ADAPTER_FILES)


def read_stage_manifest(directory: Path) -> StageManifest:
    """Read a pack's manifest. Raises ModelLoadError if it is unreadable, outdated or contradictory."""
    try:
        values = json.loads((directory / STAGES_FILE).read_bytes())
    except PermissionError as error:
        raise unreadable(directory / STAGES_FILE, error) from None
    except FileNotFoundError:
        raise ModelLoadError(f"{directory} is no pack: no {STAGES_FILE} is there; see `quire stages pack`") from None
    except (OSError, ValueError, RecursionError) as error:
        raise _broken(directory, f"cannot be read ({error})") from None
    unit = UNITS[isinstance(values, dict) and values.get("mantissa_bits") is not None]
    if not isinstance(values, dict) or (values.get("quire_stages"), values.get("unit")) != (VERSION, unit):
        raise _broken(
            directory, f"does not have version {VERSION} with unit {UNITS[0]}, or {UNITS[1]} if it has planes"
        )
    try:
        manifest = _parse(directory, values)
        _check(manifest)
    except ValueError as error:
        raise _broken(directory, str(error)) from None
    return manifest


def write_stage_manifest(manifest: StageManifest) -> None:
    """Write or replace the manifest in its directory. Raises ValueError if it contradicts itself, or OSError."""
    _check(manifest)
    values = {
        "quire_stages": VERSION,
        "unit": UNITS[manifest.mantissa_bits is not None],
        "architecture": manifest.architecture,
        "num_layers": manifest.num_layers,
        "dtype": manifest.dtype,
        "weights": manifest.weights,
        "groups": [{"file": group.file, "layers": group.layers} for group in manifest.groups],
        "stages": [
            {name: value for name, value in vars(stage).items() if value not in (None, "")} for stage in manifest.stages
        ],
        "files": [
            {name: value for name, value in vars(file).items() if value != ""} for file in manifest.files.values()
        ],
        "plan": dict(manifest.plan),
    } | {
        name: getattr(manifest, name)
        for name in ("mantissa_bits", "layer_bits")
        if getattr(manifest, name) not in (None, ())
    }
    replace_file(manifest.directory / STAGES_FILE, json.dumps(values, indent=1) + "\n", mode=0o644)


def check_against(manifest: StageManifest, config: ModelConfig) -> None:
    """Raise ModelLoadError if the manifest and the config describe different models."""
    if (manifest.architecture, manifest.num_layers) != (config.architecture, config.num_layers):
        raise _broken(
            manifest.directory,
            f"is of a {manifest.architecture} with {manifest.num_layers} layers, while config.json beside it describes "
            f"a {config.architecture} with {config.num_layers}: they belong to different models",
        )
    if (problem := missing_kv([group.layers for group in manifest.layer_groups], config)) is not None:
        raise _broken(manifest.directory, problem)


def missing_kv(groups: Sequence[Sequence[int]], config: ModelConfig) -> str | None:
    """Describe a stage that lacks a layer whose KV another one reads; None if there is none."""
    present: set[int] = set()
    for number, layers in enumerate(groups, 1):
        present.update(layers)
        for index in sorted(present):
            read = config.layer_configs[index].reads_layer
            if read is not None and read not in present:
                return f"stage {number} lacks layer {read}, whose KV layer {index} reads"
    return None


def check_files(manifest: StageManifest) -> None:
    """Raise ModelLoadError if a needed file is missing or has another size."""
    for name in _needed_files(manifest):
        check_size(manifest, name)


def _needed_files(manifest: StageManifest) -> list[str]:
    needed = [group.file for group in manifest.groups] + [PLANES_FILE] * (manifest.mantissa_bits is not None)
    for stage in manifest.stages:
        needed += adapter_files(stage.adapter) if stage.adapter is not None else ()
    return needed


def check_size(manifest: StageManifest, name: str) -> None:
    """Raise ModelLoadError if a file of the pack is missing or has another size."""
    path, expected = manifest.directory / name, manifest.files[name].num_bytes
    check_inside(manifest.directory, path)
    try:
        size = file_size(path)
    except OSError as error:
        raise unreadable(path, error) from None
    if size is None:
        raise ModelLoadError(f"{path} is missing, but {STAGES_FILE} lists it; copy the pack again from its origin")
    if size != expected:
        raise ModelLoadError(
            f"{path} has {size} bytes, but {STAGES_FILE} states {expected}: it is truncated or another file; copy it "
            "again from the pack's origin"
        )


def _parse(directory: Path, values: Mapping[str, Any]) -> StageManifest:
    files = _records(PackedFile, values, "files")
    if len({file.name for file in files}) != len(files):
        raise ValueError("names a file twice")
    given = {
        **values,
        "directory": directory,
        "groups": _records(LayerGroup, values, "groups"),
        "stages": _records(Stage, values, "stages"),
        "files": {file.name: file for file in files},
    }
    return _record(StageManifest, given)


_Record = TypeVar("_Record")
_TYPES = {"str": str, "str | None": str, "int": int, "int | None": int, "tuple[int, ...]": list}
_TYPES |= {"Mapping[str, Any]": dict}


def _records(kind: type[_Record], values: Mapping[str, Any], key: str) -> tuple[_Record, ...]:
    value = values.get(key)
    if not isinstance(value, list) or not value or not all(isinstance(each, dict) for each in value):
        raise ValueError(f"has no list of {key}")
    return tuple(_record(kind, each) for each in value)


def _record(kind: type[_Record], values: Mapping[str, Any]) -> _Record:
    given: dict[str, Any] = {}
    for field_ in fields(kind):  # type: ignore[arg-type]
        if field_.name not in values:
            continue
        value = values[field_.name]
        expected = _TYPES.get(str(field_.type))
        if expected is not None and type(value) is not expected:
            raise ValueError(f"has {value!r} as {field_.name}, expected {expected.__name__}")
        if expected is list:
            if not all(type(each) is int for each in value):
                raise ValueError(f"has {value!r} as {field_.name}, expected integers")
            value = tuple(value)
        given[field_.name] = value
    try:
        return kind(**given)
    except TypeError as error:
        raise ValueError(f"is incomplete ({error})") from None


def _check(manifest: StageManifest) -> None:
    if manifest.dtype not in _DTYPES:
        raise ValueError(f"has weights in {manifest.dtype!r}, not in one of {', '.join(_DTYPES)}")
    if not _WEIGHTS.fullmatch(manifest.weights):
        raise ValueError(f"has {manifest.weights!r} as the weights' digest, expected sha256:...")
    check_bits(manifest.mantissa_bits, manifest.layer_bits, manifest.num_layers)
    _check_layers(manifest)
    for stage in manifest.stages:
        if stage.number == len(manifest.stages) and stage.adapter is not None:
            raise ValueError(f"has an adapter on stage {stage.number}, the last one, which is the original model")
        if stage.adapter is not None and not _SHA256.fullmatch(stage.adapter_digest):
            raise ValueError(f"has no digest of stage {stage.number}'s adapter")
    _check_names(manifest)


def check_bits(mantissa_bits: int | None, layer_bits: Sequence[int], num_layers: int) -> None:
    """Raise ValueError unless these are mantissa bits, and those of each layer."""
    for bits in (*layer_bits, *([] if mantissa_bits is None else [mantissa_bits])):
        if not 0 <= bits <= WHOLE_BITS:
            raise ValueError(f"has {bits} mantissa bits, expected 0 to {WHOLE_BITS} (all)")
    if layer_bits and (mantissa_bits is None or len(layer_bits) != num_layers):
        raise ValueError(f"has mantissa bits of {len(layer_bits)} layers, expected {num_layers}, and those of all else")


def _check_layers(manifest: StageManifest) -> None:
    layers = sorted(layer for group in manifest.layer_groups for layer in group.layers)
    if manifest.num_layers < 1 or len(layers) != manifest.num_layers or layers != list(range(manifest.num_layers)):
        raise ValueError(f"has groups that do not contain each of its {manifest.num_layers} layers once")
    if not all(group.layers for group in manifest.groups):
        raise ValueError("has a group without layers")
    if len(manifest.stages) != len(manifest.groups):
        raise ValueError(f"has {len(manifest.stages)} stages, but {len(manifest.groups)} groups")
    in_place: set[int] = set()
    for number, (stage, group) in enumerate(zip(manifest.stages, manifest.groups, strict=True), 1):
        in_place |= set(group.layers)
        if (
            stage.number != number
            or list(stage.layers) != sorted(in_place)
            or list(group.layers) != sorted(group.layers)
        ):
            raise ValueError(f"has a stage {number} whose layers are not those of the groups up to it, ascending")


def _check_names(manifest: StageManifest) -> None:
    groups, needed = [group.file for group in manifest.groups], _needed_files(manifest)
    for name in (*needed, *manifest.files):
        if not _is_inside(name):
            raise ValueError(f"names {name!r}, which is not a file inside its directory")
    if len(set(groups)) != len(groups) or not all(name.endswith(".safetensors") and "/" not in name for name in groups):
        raise ValueError("has groups that are not one safetensors file each, in its directory")
    if missing := [name for name in needed if name not in manifest.files]:
        raise ValueError(f"states neither size nor digest of {missing[0]}")
    for name, file in manifest.files.items():
        if name != file.name or file.num_bytes < (1 if name in needed else 0):
            raise ValueError(f"states {file.num_bytes} bytes of {name}")
        if not (_SHA256.fullmatch(file.sha256) and _XXH3.fullmatch(file.xxh3)):
            raise ValueError(f"has no digests of {name}: 64 and 32 hexadecimal digits")
        if file.sample and not _SHA256.fullmatch(file.sample):
            raise ValueError(f"has an invalid sample of {name}")


def _is_inside(name: str) -> bool:
    path = PurePosixPath(name)
    return (
        path.as_posix() == name
        and not path.is_absolute()
        and not {"..", ".", STAGES_FILE} & set(path.parts)
        and not any(character in name for character in "\\:\0\n")
        and bool(path.parts)
    )


def _broken(directory: Path, what: str) -> ModelLoadError:
    return ModelLoadError(f"{directory / STAGES_FILE} {what}; pack the model again with `quire stages pack`")
