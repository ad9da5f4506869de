"""The stages of a model while it is loaded, each from when it is made until a later one is served."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import nn

from quire.loading.modules.arriving import ArrivingLayers
from quire.loading.modules.stage_parts import read_stage_parts
from quire.loading.stage_manifest import StageManifest
from quire.models.base import CausalLM
from quire.models.stages import Adapter, ServableStage

if TYPE_CHECKING:
    from quire.loading.layer_loader import LayerLoader


class LoadedStages:
    """Args:
    model: whose layers arrive.
    manifest: of its stages; None is a model that is one stage.
    """

    def __init__(self, model: CausalLM, manifest: StageManifest | None) -> None:
        self._model = model
        self._manifest = manifest
        self._made: dict[int, ServableStage] = {}
        self._arriving: dict[int, ServableStage] = {}  #: whose layers are waited for
        self._left_out: dict[int, Exception] = {}  #: that cannot be served, though their layers are there

    def get(self, number: int) -> ServableStage | None:
        """A stage whose layers were there when it was made, or that has arrived since."""
        return self._made.get(number)

    def why_left_out(self, number: int) -> Exception | None:
        """Why a stage will never be there, though later ones may."""
        return self._left_out.get(number)

    def make(self, number: int) -> None:
        """All layers of a stage are there.

        Raises:
            ModelLoadError: its adapter or its linear map cannot be read, or is not what was packed.
            ModelConfigError: it holds something else than the stage needs.
        """
        if number in self._arriving:
            self._made[number] = self._arriving[number]
            return
        stand_ins, adapter = self._read_parts(number)
        layers = [stand_ins.get(i, layer) for i, layer in enumerate(self._model.layers)]
        self._made[number] = ServableStage(number, layers, adapter)

    def arriving(self, number: int, loader: LayerLoader) -> ServableStage:
        """A stage at once, whose layers are waited for as they are needed; raises as `make`.

        Args:
            loader: brings them.
        """
        if number not in self._made and number not in self._arriving:
            stand_ins, adapter = self._read_parts(number)
            self._arriving[number] = ServableStage(number, ArrivingLayers(loader, number, stand_ins), adapter)
        return self._made.get(number) or self._arriving[number]

    def _read_parts(self, number: int) -> tuple[dict[int, nn.Module], Adapter | None]:
        return ({}, None) if self._manifest is None else read_stage_parts(self._manifest, number, self._model)

    def leave_out(self, number: int, error: Exception) -> None:
        """A stage cannot be served; those after it need nothing of it but its layers."""
        self._made.pop(number, None)
        self._left_out[number] = error

    def let_go_before(self, number: int) -> None:
        """Adapters and maps of earlier stages are not needed any more."""
        for stages in (self._made, self._arriving):
            for earlier in [each for each in stages if each < number]:
                del stages[earlier]
