"""The layers of a stage while they load: a forward pass waits for each one that has not arrived."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol, overload

from torch import nn

from quire.models.base import CausalLM


class LayerSource(Protocol):
    """Provides the layers of a model that is being loaded; `LayerLoader` is one."""

    model: CausalLM

    def layer(self, index: int) -> nn.Module:
        """Wait for a layer and return it."""
        ...

    def wait_stage(self, number: int) -> None:
        """Wait until a stage is complete and verified."""
        ...


class ArrivingLayers(Sequence[nn.Module]):
    """The layers of one stage. Iteration waits for each layer, and before it ends for the whole stage.

    So the final norm and the head are in place, and the stage is verified, before the first token is computed.
    `stand_ins` replace absent layers, by index. `CausalLM.waited_s` counts the seconds.
    """

    def __init__(self, source: LayerSource, number: int, stand_ins: Mapping[int, nn.Module]) -> None:
        self._source = source
        self._number = number
        self._stand_ins = stand_ins
        self.has_arrived = False  #: set at the end of the first pass

    def __len__(self) -> int:
        return self._source.model.config.num_layers

    @overload
    def __getitem__(self, index: int) -> nn.Module: ...
    @overload
    def __getitem__(self, index: slice) -> list[nn.Module]: ...
    def __getitem__(self, index: int | slice) -> nn.Module | list[nn.Module]:
        if isinstance(index, slice):
            return [self[i] for i in range(len(self))[index]]
        return self._stand_ins.get(index) or self._source.layer(index)

    def __iter__(self) -> Iterator[nn.Module]:
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
