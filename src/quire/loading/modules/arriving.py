"""A stage's layers that are still to come, as a forward pass goes through them."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, overload

from torch import nn

if TYPE_CHECKING:
    from quire.loading.layer_loader import LayerLoader


class ArrivingLayers(Sequence[nn.Module]):
    """The layers of a stage while they arrive: going through them waits for each, and in the end for all of the stage.

    What comes after the layers (norm, head) is there, and the stage verified, before the last step of the iteration
    returns. Seconds that were waited are added to `CausalLM.waited_s`.
    """

    def __init__(self, loader: LayerLoader, number: int, stand_ins: Mapping[int, nn.Module]) -> None:
        self._loader = loader
        self._number = number
        self.has_arrived = False  #: from the end of the first pass on
        self._stand_ins = stand_ins  # by index: for layers that the stage does not have

    def __len__(self) -> int:
        return self._loader.model.config.num_layers

    @overload
    def __getitem__(self, index: int) -> nn.Module: ...
    @overload
    def __getitem__(self, index: slice) -> list[nn.Module]: ...
    def __getitem__(self, index: int | slice) -> nn.Module | list[nn.Module]:
        if isinstance(index, slice):
            return [self[i] for i in range(len(self))[index]]
        return self._stand_ins.get(index) or self._loader.layer(index)

    def __iter__(self) -> Iterator[nn.Module]:
        model = self._loader.model
        for index in range(len(self)):
            started = time.monotonic()
            layer = self[index]
            model.waited_s += time.monotonic() - started
            yield layer
        started = time.monotonic()
        self._loader.wait_stage(self._number)
        model.waited_s += time.monotonic() - started
        self.has_arrived = True
