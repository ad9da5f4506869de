"""The stages of a model while it loads, each kept from its creation until a later one is served."""

from __future__ import annotations

from torch import nn

from quire.loading.modules.arriving import ArrivingLayers, LayerSource
from quire.loading.modules.stage_parts import read_stage_parts
from quire.loading.stage_manifest import StageManifest
from quire.models.base import CausalLM
from quire.models.stages import Adapter, ServableStage


class LoadedStages:
    """Args:
    manifest: the model's stages; None for a model with one stage.
    """

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
        stand_ins, adapter = self._read_parts(number)
        layers = [stand_ins.get(i, layer) for i, layer in enumerate(self._model.layers)]
        self._made[number] = ServableStage(number, layers, adapter)

    def arriving(self, number: int, source: LayerSource) -> ServableStage:
        """Return a stage at once, with layers that a forward pass waits for; raises as `make`."""
        if number not in self._made and number not in self._arriving:
            stand_ins, adapter = self._read_parts(number)
            self._arriving[number] = ServableStage(number, ArrivingLayers(source, number, stand_ins), adapter)
        return self._made.get(number) or self._arriving[number]

    def _read_parts(self, number: int) -> tuple[dict[int, nn.Module], Adapter | None]:
        return ({}, None) if self._manifest is None else read_stage_parts(self._manifest, number, self._model)

    def leave_out(self, number: int, error: Exception) -> None:
        """Skip a stage. Later stages need only its layers."""
        self._made.pop(number, None)
        self._left_out[number] = error

    def drop_before(self, number: int) -> None:
        for stages in (self._made, self._arriving):
            for earlier in [each for each in stages if each < number]:
                del stages[earlier]
