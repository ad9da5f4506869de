"""Weights of AWQ, GPTQ, compressed-tensors, FP8 and MXFP4 checkpoints: one projection's tensors, and their integers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import ml_dtypes
import numpy as np

from quire.models.encodings import MAX_EXPONENT, QuantizedWeights
from quire.models.linear.block_weight import BlockRows
from quire.models.linear.stored_weight import StoredWeight, decode_rows
from quire.models.model_config import UnsupportedModelError
from quire.models.parallel.split import Share, TensorShare
from quire.ops.arrays import empty

_ROWS_AT_ONCE = 512  # a multiple of 8
_UNIT = 32  # inputs; groups of the kernels are multiples of it
_AWQ_PLACES = [0, 4, 1, 5, 2, 6, 3, 7]  # of eight columns in a word
_FLOATS_OF_BYTES = np.arange(256, dtype=np.uint8).view(ml_dtypes.float8_e4m3fn).astype(np.float32)

Axes = tuple[tuple[Share, int], ...]  #: dimensions, and how many of their numbers one element holds; 0: all


class QuantizedTensors(StoredWeight):
    """See `StoredWeight`: (integer - zero) * scale, or in FP8 a number times a scale, with scales of groups of inputs.
    FP8 has scales of several shapes: `scale_shape` is the one in the files, if they have scales."""

    def __init__(self, name: str, form: QuantizedWeights, outputs: Share, inputs: Share, scale_shape: Any) -> None:
        self.encoding = f"{form.method}, {form.bits} bits"
        self.out_features, self.in_features = outputs.size, inputs.size
        self._form, self._axes = form, _axes(form, outputs, inputs, scale_shape)
        self._group = form.block[1] or inputs.size
        self.takes_triton = form.block[1] % _UNIT == 0
        self.has_kernel = form.method != "fp8" and self.takes_triton
        is_cut, bytes_dtype = form.is_ordered and not inputs.is_whole, "uint8" if form.method == "fp8" else "int8"
        for kind, axes in self._axes.items():
            for share, values in axes:
                is_cut |= any(values and end % values and end != share.total for part in share.ranges for end in part)
            shape = [sum(-(-(end - at) // n) for at, end in share.ranges) if n else 1 for share, n in axes]
            dtype = bytes_dtype if kind == "weight" else "float32" if "scale" in kind else "int32"
            setattr(self, kind, empty(shape, np.dtype("uint8" if form.method == "mxfp4" else dtype), "meta"))
        if is_cut:
            where = f"{name} is in groups of {self._group} ({self.encoding})"
            raise UnsupportedModelError(f"{where}, which tensor_parallel_size would cut; use another size")

    def shares(self) -> Iterator[tuple[str, TensorShare]]:
        for kind, axes in self._axes.items():
            whole = tuple(-(-share.total // n) if n else 1 for share, n in axes)
            for dim, (share, n) in enumerate(axes):
                if n and not share.is_whole:
                    yield kind, TensorShare(whole, dim, tuple((at // n, -(-end // n)) for at, end in share.ranges))

    def decode(self, rows: slice) -> np.ndarray:
        of_input = self._group_of_input()
        integers, zeros, scales = self._open(rows)
        if self._form.method == "fp8":
            return _FLOATS_OF_BYTES[integers] * scales[:, of_input]
        return (integers.astype(np.float32) - zeros[:, of_input]) * scales[:, of_input]

    def block_rows(self) -> BlockRows | None:
        group, order = -(-self._group // _UNIT) * _UNIT, None
        num_groups = -(-self.in_features // self._group)
        if self._form.is_ordered:
            of_input = self._group_of_input()
            order = np.argsort(of_input, kind="stable").astype(np.int32)
            if (np.bincount(of_input, minlength=num_groups) != group).any():
                return None
        blocks = np.empty((self.out_features, num_groups, 5 + group), np.uint8)
        for first in range(0, self.out_features, _ROWS_AT_ONCE):  # stay in the cache
            integers, zeros, scales = self._open(slice(first, min(first + _ROWS_AT_ONCE, self.out_features)))
            if self._form.bits == 8 and (zeros != 128).any() and self.has_kernel:
                return None
            if order is not None:
                integers = integers[:, order]
            if padding := num_groups * group - self.in_features:
                integers = np.pad(integers, ((0, 0), (0, padding)))
            some = blocks[first : first + len(integers)]
            some[..., :4] = np.ascontiguousarray(scales)[..., None].view(np.uint8)
            some[..., 4] = zeros
            some[..., 5:] = integers.reshape(len(some), num_groups, group)
        kind = f"INT{self._form.bits}" if self.has_kernel else "FP8"
        return BlockRows(kind, blocks.reshape(self.out_features, -1), group, order)

    def _open(self, rows: slice) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return rows' integers, or FP8, uint8 [n, in_features], their zero points, uint8, and scales, [n, groups]."""
        arrays, method, bits = vars(self), self._form.method, self._form.bits
        scales = arrays[self._form.scale_name]
        if method == "fp8":
            scales = np.atleast_2d(scales)
            of_row = np.arange(self.out_features)[rows] // (self._form.block[0] or 1)
            scales = scales[of_row if scales.size > 1 else np.zeros_like(of_row)]
            return arrays["weight"][rows], np.zeros(scales.shape, np.uint8), scales
        if method == "awq":
            return _awq_rows(arrays["qweight"], rows), _awq_rows(arrays["qzeros"], rows), scales[:, rows].T
        if method in ("gptq", "gptq_v2"):
            zeros = _unpack(arrays["qzeros"], bits)[:, rows].T
            zeros = zeros if method == "gptq_v2" else (zeros + 1) & (2**bits - 1)
            return _unpack(arrays["qweight"][:, rows].T, bits)[:, : self.in_features], zeros, scales[:, rows].T
        zeros = np.full(scales[rows].shape, 2 ** (bits - 1), np.uint8)
        if method == "int-quantized":
            return arrays["weight"][rows].view(np.uint8) ^ 128, zeros, scales[rows]
        if self._form.has_zeros:
            zeros = _unpack(arrays["weight_zero_point"].T, bits)[:, rows].T
        return _unpack(arrays["weight_packed"][rows], bits)[:, : self.in_features], zeros, scales[rows]

    def _group_of_input(self) -> np.ndarray:
        """Return the group of each input: int [in_features]. Raises ValueError for a group that does not exist."""
        if not self._form.is_ordered:
            return np.arange(self.in_features) // self._group
        groups: np.ndarray = vars(self)["weight_g_idx" if self._form.method == "pack-quantized" else "g_idx"]
        first, last, count = groups.min(), groups.max(), -(-self.in_features // self._group)
        if first < 0 or last >= count:
            raise ValueError(f"a g_idx is from {first} to {last}, but there are {count} groups; download it again")
        return groups


class MXFP4Tensors(QuantizedTensors):
    """See `StoredWeight`: 4-bit floats in blocks of 32 inputs, with an exponent of two each."""

    def decode(self, rows: slice) -> np.ndarray:
        return decode_rows("MXFP4", self._encoded(rows))

    def block_rows(self) -> BlockRows | None:
        return BlockRows("MXFP4", self._encoded(slice(0, self.out_features)))

    def _encoded(self, rows: slice) -> np.ndarray:
        """Return rows as GGUF's MXFP4, uint8 [n, row_bytes]: a block is a scale and 16 bytes, of which byte i holds its
        values i and i + 16. Here it holds 2 i and 2 i + 1."""
        scales: np.ndarray = vars(self)["scales"][rows]
        if scales.size and scales.max() > MAX_EXPONENT:
            raise ValueError("scales of MXFP4 weights are NaN or infinite; download the checkpoint again")
        halves = vars(self)["blocks"][rows].reshape(*scales.shape, 2, 8).view(np.uint64)  # 16 values each
        first, second = halves[..., 0, 0], halves[..., 1, 0]
        lower, upper, four = np.uint64(0x0F0F0F0F0F0F0F0F), np.uint64(0xF0F0F0F0F0F0F0F0), np.uint64(4)
        even, odd = first & lower | (second & lower) << four, first >> four & lower | second & upper
        found = np.empty((*scales.shape, 17), np.uint8)
        found[..., 0] = scales
        found[..., 1:] = np.stack((even.view(np.uint8), odd.view(np.uint8)), axis=-1).reshape(*scales.shape, 16)
        return found.reshape(len(scales), -1)


def _axes(form: QuantizedWeights, outputs: Share, inputs: Share, scale_shape: Any) -> dict[str, Axes]:
    """Return the dimensions of a layer's tensors by name."""
    n, (rows, group) = 32 // form.bits, form.block
    out, scales = (outputs, 1), ((outputs, rows), (inputs, group))
    axes: dict[str, Axes]
    if form.method in ("awq", "gptq", "gptq_v2"):
        words = ((inputs, 1), (outputs, n)) if form.method == "awq" else ((inputs, n), out)
        axes = {"qweight": words, "qzeros": ((inputs, group), (outputs, n)), "scales": ((inputs, group), out)}
    elif form.method == "mxfp4":
        axes = {"blocks": (out, (inputs, 2)), "scales": scales}
    elif form.method == "pack-quantized":
        axes = {"weight_packed": (out, (inputs, n)), "weight_scale": scales}
        if form.has_zeros:
            axes["weight_zero_point"] = ((outputs, n), (inputs, group))
    else:
        axes = {"weight": (out, (inputs, 1)), form.scale_name: scales}
        if not rows and scale_shape in ((), (1,), (outputs.total, 1)):
            axes[form.scale_name] = (out, (inputs, 0)) if len(scale_shape) == 2 else scales[: len(scale_shape)]
    if form.is_ordered:
        axes["weight_g_idx" if form.method == "pack-quantized" else "g_idx"] = ((inputs, 1),)
    return axes


def _unpack(words: np.ndarray, bits: int) -> np.ndarray:
    """Unpack integers from words, the lowest first: int32 [n, k] -> uint8 [n, k * 32 / bits]."""
    packed = np.ascontiguousarray(words).view(np.uint8)
    if bits == 8:
        return packed
    pairs = packed.astype("<u2")
    pairs |= pairs << 4
    pairs &= 0x0F0F
    return pairs.view(np.uint8)


def _awq_rows(words: np.ndarray, rows: slice) -> np.ndarray:
    """Unpack AWQ's words for outputs from a multiple of 8 on: int32 [k, out / 8] -> uint8 [n, k]."""
    first = rows.start // 8
    columns = np.ascontiguousarray(words[:, first : -(-rows.stop // 8)].T).view(np.uint32)
    found = np.empty((len(columns), 8, len(words)), np.uint8)
    for column, place in enumerate(_AWQ_PLACES):
        np.bitwise_and(columns >> 4 * place, 15, out=found[:, column], casting="unsafe")
    return found.reshape(-1, len(words))[: rows.stop - 8 * first]
