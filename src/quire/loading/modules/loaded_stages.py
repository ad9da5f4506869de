"""The stages of a model while it loads: stand-ins for absent layers, adapters, and layers still to wait for."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Protocol, overload

import xxhash

from quire.loading.errors import ModelLoadError
from quire.loading.known_digest import sample_file
from quire.loading.reading.checkpoint_reading import ReadGroup
from quire.loading.remote import read_bytes
from quire.loading.stage_manifest import StageManifest
from quire.models.adapter import read_adapter
from quire.models.base import CausalLM
from quire.models.stages import Adapter, PassLayer, ServableStage
from quire.ops.module import Module


def read_stage_parts(manifest: StageManifest, number: int, model: CausalLM) -> tuple[dict[int, Module], Adapter | None]:
    """Return a stage's stand-ins by index, and its adapter. Raises ModelLoadError or ModelConfigError for bad files."""
    stage, directory = manifest.stages[number - 1], manifest.directory
    stand_ins: dict[int, Module] = {i: PassLayer() for i in range(manifest.num_layers) if i not in stage.layers}
    if stage.adapter is None:
        return stand_ins, None
    adapter = read_adapter(
        directory / stage.adapter,
        model,
        dtype=model.dtype,
        device=model.device,
        digest=stage.adapter_digest,
        read=partial(_read_checked, manifest),
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
    data = read_bytes(path)
    if xxhash.xxh3_128_hexdigest(data) != manifest.files[path.relative_to(manifest.directory).as_posix()].xxh3:
        raise _damaged(path)
    return data


class LayerSource(Protocol):
    """Provides the layers of a model that is being loaded; `LayerLoader` is one."""

    model: CausalLM

    def layer(self, index: int) -> Module:
        """Wait for a layer and return it."""
        ...

    def wait_stage(self, number: int) -> None:
        """Wait until a stage is complete and verified."""
        ...


class ArrivingLayers(Sequence[Module]):
    """The layers of one stage. Iteration waits for each layer, and at its end for the verified stage with norm and
    head. `stand_ins` replace absent layers, by index. `CausalLM.waited_s` counts the seconds."""

    def __init__(self, source: LayerSource, number: int, stand_ins: Mapping[int, Module]) -> None:
        self._source = source
        self._number = number
        self._stand_ins = stand_ins
        self.has_arrived = False  #: set at the end of the first pass

    def __len__(self) -> int:
        return self._source.model.config.num_layers

    @overload
    def __getitem__(self, index: int) -> Module: ...
    @overload
    def __getitem__(self, index: slice) -> list[Module]: ...
    def __getitem__(self, index: int | slice) -> Module | list[Module]:
        if isinstance(index, slice):
            return [self[i] for i in range(len(self))[index]]
        return self._stand_ins.get(index) or self._source.layer(index)

    def __iter__(self) -> Iterator[Module]:
        model = self._source.model
        for index in range(len(self)):
            started = time.monotonic()
            layer = self[index]
            model.waited_s += time.monotonic() - started
            yield layer
        started = time.monotonic()
        self._source.wait_stage(self._number)
        model.waited_s += time.monotonic() - started
        self.has_arrived = True


class LoadedStages:
    """Each stage from its creation until a later one is served; without a manifest there is one."""

    def __init__(self, model: CausalLM, manifest: StageManifest | None) -> None:
        self._model = model
        self._manifest = manifest
        self._made: dict[int, ServableStage] = {}
        self._arriving: dict[int, ServableStage] = {}  #: with `ArrivingLayers`
        self._left_out: dict[int, Exception] = {}  #: reasons, by stage

    def get(self, number: int) -> ServableStage | None:
        return self._made.get(number)

    def why_left_out(self, number: int) -> Exception | None:
        """Return why a stage was skipped; later stages may still be served."""
        return self._left_out.get(number)

    def make(self, number: int) -> None:
        """Complete a stage, whose layers are all in place; raises as `read_stage_parts`."""
        if number in self._arriving:
            self._made[number] = self._arriving[number]
            return
        stand_ins, adapter, is_truncated = self._read_parts(number)
        layers = [stand_ins.get(i, layer) for i, layer in enumerate(self._model.layers)]
        self._made[number] = ServableStage(number, layers, adapter, is_truncated)

    def arriving(self, number: int, source: LayerSource) -> ServableStage:
        """Return a stage at once, with layers that a forward pass waits for; raises as `make`."""
        if number not in self._made and number not in self._arriving:
            stand_ins, adapter, is_truncated = self._read_parts(number)
            layers = ArrivingLayers(source, number, stand_ins)
            self._arriving[number] = ServableStage(number, layers, adapter, is_truncated)
        return self._made.get(number) or self._arriving[number]

    def _read_parts(self, number: int) -> tuple[dict[int, Module], Adapter | None, bool]:
        if self._manifest is None:
            return {}, None, False
        return *read_stage_parts(self._manifest, number, self._model), self._manifest.bits_of(number) is not None

    def leave_out(self, number: int, error: Exception) -> None:
        """Skip a stage. Later stages need only its layers."""
        self._made.pop(number, None)
        self._left_out[number] = error

    def drop_before(self, number: int) -> None:
        for stages in (self._made, self._arriving):
            for earlier in [each for each in stages if each < number]:
                del stages[earlier]
