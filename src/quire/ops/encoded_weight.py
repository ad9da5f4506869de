"""Weights as Triton kernels read them, in the forms of `kernels/triton/weights.py`."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from quire.ops.arrays import name_of

GROUP = 64  #: of 12 bits, and of what we round to 4


class Form(NamedTuple):
    bits: int
    group: int = 0
    zero: int = 0
    has_lows: bool = False
    spread: int = 1  #: groups per scale
    is_float: bool = False

    @property
    def unit(self) -> int:
        """Inputs that rows are padded to multiples of: as many as a step takes, and two groups of 4 bits."""
        return 1 if not self.bits else 128 if self.bits == 8 else 2 * self.group

    def step(self, most: int) -> int:
        """Return a step of at most so many numbers; of 4 or 12 bits it is within a group."""
        return min(most, self.group) if self.bits in (4, 12) else most


class EncodedWeight(NamedTuple):
    """A weight of a form. Arrays that it does not have are None."""

    form: Form
    width: int
    depth: int
    numbers: Tensor
    scales: Tensor | None = None
    factors: Tensor | None = None
    table: Tensor | None = None
    starts: Tensor | None = None
    places: Tensor | None = None
    values: Tensor | None = None

    @property
    def arrays(self) -> tuple[Tensor | None, ...]:
        return self[3:]

    @property
    def kind(self) -> tuple[Any, ...]:
        """The form and dtypes, which a kernel is compiled for."""
        return self.form, *(None if each is None else each.dtype for each in self.arrays)

    @property
    def row_size(self) -> int:
        """Bytes of a row of `numbers`, or plain ones."""
        return self.numbers.shape[1]

    @property
    def num_bytes(self) -> int:
        return sum(each.nbytes for each in self.arrays if each is not None)

    def first_rows(self, count: int) -> EncodedWeight:
        """Return a copy of its first rows."""

        def cut(array: Tensor | None) -> Tensor | None:
            return None if array is None else array[..., :count].contiguous()

        table = self.table if self.table is None or self.starts is None else self.table[:count]
        return EncodedWeight(
            self.form, min(count, self.width), self.depth, self.numbers[:count], cut(self.scales), cut(self.factors),
            table, None if self.starts is None else self.starts[: count + 1], self.places, self.values,
        )  # fmt: skip

    def decode(self) -> Tensor:
        """Return the weight, float32 [width, depth]."""
        form, numbers = self.form, self.numbers
        if not form.bits:
            return numbers.float()
        assert self.scales is not None
        if form.bits != 8:
            numbers = torch.stack((numbers & 15, numbers >> 4 & 15), 1)  # halves are of neighbouring groups
            numbers = numbers.unflatten(2, (-1, form.group)).transpose(1, 2).flatten(1)
        if form.bits == 12:
            assert self.table is not None
            assert self.starts is not None
            assert self.places is not None
            assert self.values is not None
            words = (numbers & 8).int() << 12 | (self.scales[:, None].int() + (numbers & 7)) << 8
            words = torch.where((numbers & 7) == 0, 0, words | self.table.view(torch.uint8).int()) << 16
            found = words.view(torch.float32)[:, : self.depth].clone()
            rows = torch.repeat_interleave(torch.arange(self.width, device=found.device), self.starts.diff())
            found[rows, self.places[: len(rows)].long()] = self.values[: len(rows)].float()
            return found
        integers = numbers if self.table is None else self.table[numbers.int()]
        if not form.group:
            return (integers * self.scales[:, None])[:, : self.depth]
        grids = self.scales.float().repeat_interleave(form.spread, 0)
        if self.factors is not None:
            grids = grids[: len(self.factors)] * self.factors
        values = _floats(numbers.int(), form.bits) if form.is_float else integers.float() - form.zero
        groups = values.unflatten(1, (-1, form.group))
        found = groups * grids[:, 0].T[..., None]
        return (found + grids[:, 1].T[..., None] if form.has_lows else found).flatten(1)[:, : self.depth]


def _floats(numbers: Tensor, bits: int) -> Tensor:
    """Return what the bits of small floats are as a float16's."""
    sign, shift = (128, 7) if bits == 8 else (8, 9)
    words = (numbers & sign) * (-32768 // sign) | (numbers & sign - 1) << shift
    return words.to(torch.int16).view(torch.float16).float()


def plain_weight(weight: Tensor) -> EncodedWeight:
    """Return a weight, [width, depth], as it is."""
    return EncodedWeight(Form(0), len(weight), weight.shape[1], weight)


def operands_of(dtype: torch.dtype) -> tl.dtype:
    """Return the dtype of products of weights with activations in a dtype."""
    name = name_of(dtype)
    if triton.knobs.runtime.interpret and name == "bfloat16":  # the interpreter cannot multiply it
        name = "float32"
    return getattr(tl, name)
