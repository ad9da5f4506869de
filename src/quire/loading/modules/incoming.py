"""Bytes of a checkpoint on their way into a model: each to the unit whose tensor it is of, and through the digest."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import torch

from quire.loading.checkpoint import TensorEntry
from quire.loading.digest import RunningDigest
from quire.loading.modules.fill import TensorFill
from quire.loading.modules.units import Unit


class IncomingTensors:
    """Fills units with tensors, whose bytes come one tensor after the other.

    Args:
        names: of tensors in the files, as the model calls them; bytes of others go no further than the digest.
        device: that units get memory on.
        digest: that is taken as the bytes pass.
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
        """Tensors of these units go to them from now on. One that has arrived in part is let go of."""
        self._fill = None
        self._unit_of.update((name, unit) for unit in units for name in unit.tensors)

    def add(self, entry: TensorEntry, offset: int, data: memoryview, rest: Callable[[], None]) -> Unit | None:
        """Bytes of a tensor, from an offset on. Returns the unit where the tensor is in place with them.

        Args:
            rest: called before each piece of work.

        Raises:
            ModelLoadError: it holds NaN or infinity.
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
        self._fill.finish(rest)
        self._fill = None  # with the view, which packing makes useless
        rest()
        unit.finish(name)
        return unit
