"""The parts of a model: small objects whose attributes are arrays, other parts, or lists of parts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from quire.ops.arrays import Array


class Module:
    """A part of a model. Its own arrays are its parameters."""

    __call__: Callable[..., Any]

    def named_parameters(self) -> Iterator[tuple[str, Array]]:
        """Yield this part's own parameters by the names of their attributes."""
        for name, value in vars(self).items():
            if hasattr(value, "nbytes"):
                yield name, value

    def named_children(self) -> Iterator[tuple[str, Module]]:
        for name, value in vars(self).items():
            if isinstance(value, Module):
                yield name, value

    def named_modules(self, prefix: str) -> Iterator[tuple[str, Module]]:
        """Yield this part and all parts below it, by paths that begin with a prefix."""
        yield prefix, self
        for name, child in self.named_children():
            yield from child.named_modules(f"{prefix}.{name}")

    def modules(self) -> Iterator[Module]:
        """Yield this part and all parts below it."""
        return (module for _, module in self.named_modules(""))


class ModuleList(list[Module], Module):
    def named_children(self) -> Iterator[tuple[str, Module]]:
        return ((str(index), module) for index, module in enumerate(self))
