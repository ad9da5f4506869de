"""Route a checkpoint's bytes to the units of a model, and through the digest."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import torch

from quire.loading.checkpoint import TensorEntry
from quire.loading.digest import RunningDigest
from quire.loading.modules.fill import TensorFill
from quire.loading.modules.units import Unit


class IncomingTensors:
    """Fills units with tensors, whose bytes arrive one tensor after the other.

    Args:
        names: the model's names of the files' tensors. Other tensors pass through the digest only.
    """

    def __init__(
        self,
        names: Mapping[TensorEntry, str],
        units: Iterable[Unit],
        device: torch.device,
        digest: RunningDigest | None,
    ) -> None:
        self._names, self._device, self._digest = names, device, digest
        self._unit_of: dict[str, Unit] = {}
        self.expect(units)
        self._fill: TensorFill | None = None

    def expect(self, units: Iterable[Unit]) -> None:
        """Route the tensors of these units to them, and drop a partial tensor."""
        self._fill = None
        self._unit_of.update((name, unit) for unit in units for name in unit.tensors)

    def add(self, entry: TensorEntry, offset: int, data: memoryview, before_piece: Callable[[], None]) -> Unit | None:
        """Add bytes of a tensor at an offset. Returns the unit if they complete the tensor.

        Args:
            before_piece: called before each piece of work.

        Raises:
            ModelLoadError: the tensor holds NaN or infinity.
        """
        is_last = offset + len(data) == entry.num_bytes
        if self._digest is not None:
            self._digest.add(entry.name, data, is_last)
        if (name := self._names.get(entry)) is None:
            return None
        unit = self._unit_of[name]
        if not offset:
            self._fill = TensorFill(unit.view(name, self._device), entry)
        assert self._fill is not None
        if data:
            self._fill.add(offset, data)
        if not is_last:
            return None
        self._fill.finish(before_piece)
        self._fill = None  # drops the view, which packing invalidates
        before_piece()
        unit.finish(name)
        return unit
