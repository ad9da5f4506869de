"""Fill arrays piece by piece from a file, or with random numbers that depend on names and the seed only."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping

import numpy as np

from quire.loading.checkpoint import DTYPE_NAMES, TensorEntry
from quire.loading.errors import ModelLoadError
from quire.loading.reading.reader import PIECE_BYTES, ByteReader, runs_in_order_of_use
from quire.models.encodings import BLOCKS, MAX_EXPONENT
from quire.models.linear.layer import Conv1DLinear, WeightLayer
from quire.models.parallel.split import TensorShare
from quire.ops.arrays import (
    Array,
    as_numpy,
    as_tensor,
    cast,
    copy_to,
    empty,
    is_finite,
    is_numpy,
    is_on_host,
    name_of,
    numpy_dtype,
)

RECIPE = 2  # part of the weights' digest: raise it when a seed gives other weights
CHUNK = 262_147  # random numbers per array; a prime, so that repeats align with rows only CHUNK rows apart
_STRIP = 32  # rows transposed at once, so that their cache lines stay in the L1 cache: 2 to 4 times as fast


def fill_random(
    views: Mapping[str, Array],
    *,
    std: float,
    seed: int,
    advance: Callable[[int], None] = lambda num_bytes: None,
    shares: Mapping[str, TensorShare] | None = None,
) -> None:
    """Fill norms with ones, biases with zeros, other arrays with CHUNK normal numbers, repeated for speed. `shares`
    are this rank's parts of arrays."""
    for name, view in views.items():
        if name.endswith(".bias"):
            view[...] = 0.0
        elif len(view.shape) == 1:
            view[...] = 1.0
        else:
            digest = hashlib.sha256(f"{seed}:{name}".encode()).digest()
            _fill_normal(_in_place(view), std, int.from_bytes(digest[:8], "little"), (shares or {}).get(name))
        advance(view.nbytes)


def _fill_normal(view: Array, std: float, seed: int, share: TensorShare | None) -> None:
    num_elements = math.prod(view.shape if share is None else share.whole_shape)
    generator = np.random.Generator(np.random.PCG64(seed))
    drawn = generator.standard_normal(min(CHUNK, num_elements), np.float32) * np.float32(std)
    normals: Array = cast(drawn, numpy_dtype(name_of(view.dtype)))
    if not is_numpy(view):
        normals = as_tensor(normals).to(view.device)
    whole = view if _is_contiguous(view) else empty(view.shape, view.dtype, "cpu" if is_numpy(view) else view.device)
    flat, filled = whole.reshape(-1), 0
    for start, end in [(0, num_elements)] if share is None else share.flat_ranges():
        _repeat(normals, start, flat[filled : filled + end - start])
        filled += end - start
    if whole is not view:  # a transposed weight
        view[...] = whole


def _repeat(normals: Array, start: int, out: Array) -> None:
    first = start % len(normals)
    head = min(len(out), len(normals) - first)
    out[:head] = normals[first : first + head]
    if head == len(out):
        return
    out = out[head:]
    whole = len(out) // len(normals) * len(normals)
    out[:whole].reshape(-1, len(normals))[...] = normals  # one broadcast copy is faster than many small ones
    out[whole:] = normals[: len(out) - whole]


def _in_place(view: Array) -> Array:
    """Return an array in main memory as numpy's, and another one as it is."""
    return as_numpy(view) if is_on_host(view) else view


def _is_contiguous(view: Array) -> bool:
    return bool(view.flags.c_contiguous if is_numpy(view) else view.is_contiguous())


_TYPES = {name: numpy_dtype(dtype) for name, dtype in DTYPE_NAMES.items()} | {"F64": np.dtype(np.float64)}


#: Places of float16 scales in blocks; at the start of others.
_SCALES = {"Q4_1": (0, 2), "Q5_1": (0, 2), "Q2_K": (80, 82), "Q3_K": (108,), "Q4_K": (0, 2), "Q5_K": (0, 2),
           "Q6_K": (208,)}  # fmt: skip


class TensorFill:
    """One array of a model while its bytes arrive in order. `view` may have any layout and dtype."""

    def __init__(self, view: Array, entry: TensorEntry) -> None:
        self.view = _by_pairs(_in_place(view), entry.head_dim)
        self.entry = entry
        self._is_float = entry.dtype in _TYPES
        self._dtype: np.dtype = _TYPES[entry.dtype] if self._is_float else view.dtype
        self._is_suspect = False  # a sum overflowed, or was NaN or infinite
        # A transposed view, or a tensor at an odd offset, is filled by rows from a buffer at the end.
        is_direct = _is_contiguous(self.view) and entry.every == 1 and not entry.is_transposed and not entry.tiles
        is_buffered = not is_direct or entry.start % self._dtype.itemsize
        self._buffer = np.empty(entry.num_bytes, np.uint8) if is_buffered else None

    def add(self, offset: int, data: memoryview) -> None:
        """Add bytes at an offset in the tensor."""
        if self._buffer is not None:
            self._buffer[offset : offset + len(data)] = data
            return
        first = offset // self._dtype.itemsize
        piece = np.frombuffer(data, self._dtype)
        self._put(self.view.reshape(-1)[first : first + len(piece)], piece)

    def finish(self, before_piece: Callable[[], None] = lambda: None) -> None:
        """Complete the tensor, calling `before_piece` before each piece of work; ModelLoadError for NaN or infinity."""
        if self._buffer is not None:
            whole = _own_rows(self._buffer.view(self._dtype), self.view.shape, self.entry)
            rows = max(1, PIECE_BYTES * len(whole) // max(1, self.entry.num_bytes)) if whole.ndim else 1
            for start in range(0, len(whole), rows) if whole.ndim else ():
                before_piece()
                self._put(self.view[start : start + rows], whole[start : start + rows])
            self._buffer = None
        if self.entry.dtype in BLOCKS:
            check_scales(self.view, self.entry)
        elif self._is_suspect:
            check_finite(self.view, self.entry)

    @np.errstate(over="ignore", invalid="ignore", divide="ignore")
    def _put(self, view: Array, piece: np.ndarray) -> None:
        if self.entry.addend:
            piece = piece + piece.dtype.type(self.entry.addend)
        if self.entry.is_rate:
            piece = np.log(-piece.astype(np.float64)).astype(np.float32)
        if not self._is_float:
            view[...] = piece
        elif not is_numpy(view):
            view.copy_(as_tensor(piece))
            # NaN and infinity survive a sum, which is much cheaper than a check of each value.
            self._is_suspect = self._is_suspect or not math.isfinite(view.sum())
        elif _is_contiguous(view):
            copy_to(view, piece)
            self._is_suspect = self._is_suspect or not is_finite(view)
        else:
            piece = cast(piece, view.dtype)
            for start in range(0, len(piece), _STRIP):
                view[start : start + _STRIP] = piece[start : start + _STRIP]
            self._is_suspect = self._is_suspect or not is_finite(piece)


class RestFill:
    """Adds mantissa bits to a linear layer's rows from `first_row` on, while a tensor's bytes arrive in order."""

    def __init__(self, layer: WeightLayer, first_row: int, entry: TensorEntry) -> None:
        self._layer, self._row, self._entry = layer, first_row, entry
        self._dtype = np.dtype(f"u{_TYPES[entry.dtype].itemsize}")
        self._waiting = bytearray()
        self._needs_all = isinstance(layer, Conv1DLinear) or entry.is_transposed or entry.every > 1

    def add(self, data: memoryview) -> None:
        """Add the next bytes of the tensor."""
        if self._needs_all:
            self._waiting += data
            if len(self._waiting) < self._entry.num_bytes:
                return
            rows = _own_rows(np.frombuffer(self._waiting, self._dtype), self._entry.shape, self._entry)
            rows = rows.T if isinstance(self._layer, Conv1DLinear) else rows
        else:
            data = memoryview(self._waiting + data) if self._waiting else data
            words = np.require(np.frombuffer(data, self._dtype), requirements="A")
            words = words[: len(words) // self._layer.in_features * self._layer.in_features]
            rows = words.reshape(-1, self._layer.in_features)
            self._waiting = bytearray(data[words.nbytes :])
        self._layer.add_bits(self._row, rows)
        self._row += len(rows)


def _own_rows(values: np.ndarray, shape: tuple[int, ...], entry: TensorEntry) -> np.ndarray:
    """Return an entry's values, in its array's shape, from those of its bytes."""
    if entry.is_transposed:
        values = values.reshape(shape[1], -1).T
    elif entry.every > 1:
        values = values.reshape(-1, *shape[1:])
    else:
        values = values.reshape(shape)
        return values if entry.tiles is None else values[entry.tiles.order()]
    return values[entry.first :: entry.every]


def _by_pairs(view: Array, head_dim: int) -> Array:
    """Return a view of heads' rows, [heads, pairs, 2, ...], in the order of pairs that rotary embeddings rotate."""
    if not head_dim:
        return view
    return view.reshape(-1, 2, head_dim // 2, *view.shape[1:]).swapaxes(1, 2)


def load_tensors(
    matched: Mapping[str, TensorEntry], views: Mapping[str, Array], advance: Callable[[int], None]
) -> None:
    """Copy each entry into its view in the view's dtype, and report its bytes; raises as `TensorFill.finish`."""
    names = {entry: name for name, entry in matched.items()}
    fill: TensorFill | None = None
    reader = ByteReader(runs_in_order_of_use(matched.values()))
    reader.start()
    try:
        while (piece := reader.next_piece()) is not None:
            for entry, offset, data in piece.parts():
                if fill is None or fill.entry is not entry:
                    fill = TensorFill(views[names[entry]], entry)
                fill.add(offset, data)
                if offset + len(data) == entry.num_bytes:
                    fill.finish()
                    advance(entry.num_bytes)
            reader.release(piece)
    finally:
        reader.close()


def check_scales(view: np.ndarray, entry: TensorEntry) -> None:
    """Raise ModelLoadError if a block's scale is NaN or infinite."""
    blocks = view.reshape(-1, BLOCKS[entry.dtype][1])
    if entry.dtype == "MXFP4":  # an exponent
        bad = blocks[:, 0] > MAX_EXPONENT
    else:
        bad = np.any([(blocks[:, at + 1] & 0x7C) == 0x7C for at in _SCALES.get(entry.dtype, (0,))], axis=0)
    if count := int(np.count_nonzero(bad)):
        raise ModelLoadError(
            f"{entry.name} in {entry.file} has scales in {count} of {len(blocks)} blocks that are NaN or infinite; "
            "download it again"
        )


def check_finite(view: Array, entry: TensorEntry) -> None:
    """Raise ModelLoadError if a loaded tensor holds NaN or infinity."""
    is_good = np.isfinite(view) if is_numpy(view) else view.isfinite()
    size = math.prod(view.shape)
    if bad := size - int(is_good.sum()):
        dtype = name_of(view.dtype)
        converted = f" once converted from {entry.dtype} to {dtype}" if DTYPE_NAMES.get(entry.dtype) != dtype else ""
        raise ModelLoadError(
            f"{entry.name} in {entry.file} has {bad} of {size} values that are NaN or infinite{converted}; "
            "download it again" + (", or choose another dtype" if converted else "")
        )
