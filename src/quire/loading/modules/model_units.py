"""All units of a model while it loads: the stage that each arrives with, and which are in place."""

from __future__ import annotations

from collections.abc import Iterator

from quire.loading.modules.units import Unit, tied_head_bytes, units_of
from quire.loading.stage_manifest import StageManifest
from quire.models.base import CausalLM
from quire.models.registry import build_model


class ModelUnits:
    """Args:
    manifest: the model's stages; None for a model with one stage.
    """

    def __init__(self, model: CausalLM, manifest: StageManifest | None) -> None:
        self._model = model
        self._manifest = manifest
        self._units = units_of(model)
        self._in_place: set[str] = set()
        self._first_layer = next(i for i, unit in enumerate(self._units) if unit.layer is not None)

    def __iter__(self) -> Iterator[Unit]:
        return iter(self._units)

    def of_stage(self, number: int) -> list[Unit]:
        return [unit for unit in self._units if self._stage_of(unit) == number]

    def _stage_of(self, unit: Unit) -> int:
        if self._manifest is None or unit.layer is None:
            return 1
        return next(n for n, group in enumerate(self._manifest.groups, 1) if unit.layer in group.layers)

    def is_in_place(self, unit: Unit) -> bool:
        return unit.name in self._in_place

    def has_layer(self, index: int) -> bool:
        return self.is_in_place(self._units[self._first_layer + index])

    def has_input(self) -> bool:
        """Return whether the embeddings are in place, the start of a forward pass."""
        return all(self.is_in_place(unit) for unit in self._units[: self._first_layer])

    def set_in_place(self, unit: Unit) -> None:
        """Mark a complete unit as usable."""
        self._in_place.add(unit.name)

    def pending_bytes(self, last_stage: int) -> int:
        """Return the memory that units up to a stage will still occupy, once packed."""
        pending = [each for each in self._units if self._stage_of(each) <= last_stage and not self.is_in_place(each)]
        has_head = any(unit.name == "embed_tokens" for unit in pending)
        return sum(unit.packed_bytes for unit in pending) + (tied_head_bytes(self._model) if has_head else 0)

    def reset(self, number: int) -> None:
        """Replace the layers of a failed stage by empty ones, which frees their memory. No reader has seen them."""
        model = build_model(self._model.config, self._model.dtype, "meta", self._model.split.group)
        model.quantize(self._model.quantization)
        for i, unit in enumerate(units_of(model)):
            if self._stage_of(unit) == number and unit.layer is not None:
                self._in_place.discard(unit.name)
                self._model.layers[unit.layer] = unit.module
                self._units[i] = unit
