"""What a pack says of itself: a checkpoint that comes in stages, and the adapters of those that are not the last.

A pack is an ordinary checkpoint directory, with one safetensors file a layer group in the order in which they are
wanted, a manifest beside them, and adapters in PEFT's format. Whoever knows nothing of stages loads it as the original.
Imports no torch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from quire.loading.errors import ModelLoadError

STAGES_FILE = "quire-stages.json"
VERSION = 1


@dataclass(frozen=True)
class PackedFile:
    """A file of a pack, by its name there."""

    name: str
    num_bytes: int
    sha256: str  #: hexadecimal; what `quire stages verify` checks
    xxh3: str  #: hexadecimal, 128 bits; what loading checks, as the bytes pass


@dataclass(frozen=True)
class LayerGroup:
    """The layers that one stage adds, and the file that holds them."""

    file: str
    layers: tuple[int, ...]  #: ascending indices in the full model; the first group also holds all that is no layer


@dataclass(frozen=True)
class Stage:
    """A servable state of a model. Stages count from 1; the last is the original."""

    number: int
    layers: tuple[int, ...]  #: in place, ascending
    adapter: str | None = None  #: its folder in the pack; None where none is on, as in the last stage
    adapter_digest: str = ""  #: of its weights and config, for the namespace
    linear_map: str | None = None  #: a safetensors file of the pack: the map that stands in the gap
    linear_map_digest: str = ""


@dataclass(frozen=True)
class StageManifest:
    """A pack's manifest, checked as far as it can be without its files."""

    directory: Path
    architecture: str
    num_layers: int
    dtype: str  #: of the weights in the files, as torch calls it
    weights: str  #: the digest of the original's weights, `sha256:...` (`loading.digest`)
    groups: tuple[LayerGroup, ...]  #: in the order in which they are wanted
    stages: tuple[Stage, ...]  #: one a group
    files: Mapping[str, PackedFile]  #: all of them but the manifest
    plan: Mapping[str, Any] = field(default_factory=dict)  #: `StagePlan.to_dict` and where it came from; for people

    def stage_bytes(self, number: int) -> int:
        """Bytes of weights that a stage needs, those of the stages before it included."""
        return sum(self.files[group.file].num_bytes for group in self.groups[:number])


def is_pack(directory: Path) -> bool:
    """Whether a checkpoint directory says that it comes in stages."""
    return (directory / STAGES_FILE).is_file()


def read_stage_manifest(directory: Path) -> StageManifest:
    """A pack's manifest.

    Raises:
        ModelLoadError: it cannot be read, is of another version, or contradicts itself; the message names what.
    """
    raise _broken(directory, "cannot be read yet")


def _broken(directory: Path, what: str) -> ModelLoadError:
    return ModelLoadError(f"{directory / STAGES_FILE} {what}; pack the model again with `quire stages pack`")
