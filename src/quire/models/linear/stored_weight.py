"""Weights in the encodings of checkpoints: the arrays that loading fills, and what packing makes of them."""

from __future__ import annotations

import functools
import logging
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from quire.models.encodings import BLOCKS, FLOATS, Tiles
from quire.models.linear.block_weight import TYPES, BlockRows, BlockWeight, block_kernels, same_order
from quire.models.linear.interface import PackedWeight
from quire.models.model_config import UnsupportedModelError
from quire.models.parallel.split import Share, TensorShare
from quire.ops.arrays import Array, DType, as_tensor, cast, empty, is_numpy, name_of, numpy_dtype
from quire.ops.module import Module

logger = logging.getLogger("quire")

_ROWS_AT_ONCE = 1024  # decoded at once


class StoredWeight(Module):
    """One projection's weight, or this rank's part, as a checkpoint stores it. Its arrays have the names of the
    checkpoint's tensors, and are numpy's even where the model computes with torch."""

    encoding: str  #: such as Q4_K
    out_features: int  #: on this rank
    in_features: int
    has_kernel: bool  #: whether `block_rows` has a kernel, except for rare values
    takes_triton: bool  #: the same on a GPU

    def shares(self) -> Iterator[tuple[str, TensorShare]]:
        """Yield this rank's part of each tensor, except whole ones, counted in the array's elements."""
        raise NotImplementedError

    def decode(self, rows: slice) -> np.ndarray:
        """Return rows of the weight: float32 [n, in_features]."""
        raise NotImplementedError

    def block_rows(self) -> BlockRows | None:
        """Return the weight for kernels, or None. Call it if there are some."""
        raise NotImplementedError


class EncodedRows(StoredWeight):
    """Rows of blocks of an encoding in `BLOCKS`, uint8 [out_features, row_bytes], or of floats beside such rows.
    `tiles` are of its columns. UnsupportedModelError if this rank's part would cut blocks."""

    def __init__(self, name: str, encoding: str, outputs: Share, inputs: Share, tiles: Tiles | None = None) -> None:
        self.encoding, self.has_kernel, self.tiles = encoding, encoding in TYPES, tiles
        self.takes_triton = self.has_kernel
        if tiles is not None and not inputs.is_whole:
            self.tiles, ranges = tiles.of(inputs.ranges)
            inputs = replace(inputs, ranges=ranges)
        self.out_features, self.in_features = outputs.size, inputs.size
        self._outputs, self._inputs = outputs, inputs
        if encoding in FLOATS:
            self._block, dtype, size = (1, 1), numpy_dtype(FLOATS[encoding]), self.in_features
        else:
            self._block, dtype = BLOCKS[encoding], np.dtype(np.uint8)
            values, num_bytes = self._block
            if inputs.total % values or any(end % values for each in inputs.ranges for end in each):
                raise UnsupportedModelError(
                    f"{name} is in blocks of {values} values ({encoding}), which tensor_parallel_size would cut: its "
                    f"{inputs.total} columns cannot be shared by these ranks; use another size or a file in Q8_0"
                )
            size = self.in_features // values * num_bytes
        self.weight: np.ndarray = empty((self.out_features, size), dtype, "meta")

    def shares(self) -> Iterator[tuple[str, TensorShare]]:
        values, num_bytes = self._block
        shape = (self._outputs.total, self._inputs.total // values * num_bytes)
        if not self._outputs.is_whole:
            yield "weight", TensorShare(shape, 0, self._outputs.ranges)
        elif not self._inputs.is_whole:
            ranges = ((start // values * num_bytes, end // values * num_bytes) for start, end in self._inputs.ranges)
            yield "weight", TensorShare(shape, 1, tuple(ranges))

    def decode(self, rows: slice) -> np.ndarray:
        decoded = decode_rows(self.encoding, self.weight[rows])
        return decoded if self.tiles is None else decoded[:, self.tiles.order()]

    def block_rows(self) -> BlockRows | None:
        order = None if self.tiles is None else np.argsort(self.tiles.order()).astype(np.int32)
        return BlockRows(self.encoding, self.weight, order=order)


def decode_rows(encoding: str, rows: np.ndarray) -> np.ndarray:
    """Decode rows of blocks, uint8 [n, row_bytes], or of floats: float32 [n, in_features]."""
    if encoding in FLOATS:
        return cast(rows, np.dtype(np.float32))
    import gguf  # takes 40 ms

    return gguf.quants.dequantize(np.ascontiguousarray(rows), gguf.GGMLQuantizationType[encoding])


class StoredParts(list[StoredWeight], Module):
    """A layer's weight: stacked projections, whose encodings may differ."""

    def named_children(self) -> Iterator[tuple[str, Module]]:
        return ((str(index), part) for index, part in enumerate(self))

    @property
    def num_bytes(self) -> int:
        return sum(array.nbytes for part in self for _, array in part.named_parameters())

    def packed_bytes(self, dtype: DType, *, uses_triton: bool = False) -> int:
        """Return the memory of what `pack` returns, or else `decode`, without the padding of kernels."""
        has_kernels = is_numpy(dtype) and block_kernels(dtype) is not None
        if all(part.takes_triton if uses_triton else has_kernels and part.has_kernel for part in self):
            return self.num_bytes
        return sum(part.out_features * part.in_features for part in self) * int(dtype.itemsize)

    def pack(self, dtype: DType) -> PackedWeight | None:
        """Return a weight for inputs of a dtype that computes with the encoded rows; None without a kernel for them."""
        library = block_kernels(dtype) if is_numpy(dtype) else None
        blocks = None if library is None else self._blocks()
        if library is None or blocks is None:
            self._say_decoded(dtype, has_kernels=library is not None)
            return None
        return BlockWeight(blocks, self[0].in_features, dtype, library)

    def pack_on(self, device: str, dtype: DType) -> PackedWeight | None:
        """As `pack`, for Triton's kernels."""
        from quire.models.linear.triton_weight import pack_blocks  # imports torch

        if (blocks := self._blocks(uses_triton=True)) is None:
            self._say_decoded(dtype, has_kernels=True)
            return None
        return pack_blocks(blocks, self[0].in_features, dtype, device)

    def _blocks(self, *, uses_triton: bool = False) -> list[BlockRows] | None:
        found = [
            part.block_rows() if (part.takes_triton if uses_triton else part.has_kernel) else None for part in self
        ]
        blocks = [part for part in found if part is not None and same_order(part.order, found[0] and found[0].order)]
        return blocks if len(blocks) == len(self) else None

    def _say_decoded(self, dtype: DType, *, has_kernels: bool) -> None:
        if not all(part.encoding in FLOATS for part in self):
            _say_decoded(", ".join(dict.fromkeys(part.encoding for part in self)), name_of(dtype), has_kernels)

    def decode(self, dtype: DType, device: str) -> Array:
        """Return the weight, [out_features, in_features], in a dtype on a device."""
        decoded = empty((sum(part.out_features for part in self), self[0].in_features), numpy_dtype(name_of(dtype)))
        start = 0
        for part in self:
            for first in range(0, part.out_features, _ROWS_AT_ONCE):
                rows = part.decode(slice(first, min(first + _ROWS_AT_ONCE, part.out_features)))
                decoded[start + first : start + first + len(rows)] = cast(rows, decoded.dtype)
            start += part.out_features
        return decoded if is_numpy(dtype) else as_tensor(decoded).to(device)


@functools.cache
def _say_decoded(encoding: str, dtype: str, has_kernels: bool) -> None:
    why = "no kernel takes them" if has_kernels else f"there are no kernels for {dtype} here"
    logger.info("weights in %s are decoded to %s: %s", encoding, dtype, why)
