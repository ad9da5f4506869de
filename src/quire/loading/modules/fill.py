"""Fill tensors piece by piece from a file, or with random numbers that depend on names and the seed only."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from quire.loading.checkpoint import TORCH_TYPES, TensorEntry
from quire.loading.errors import ModelLoadError
from quire.loading.reading.reader import PIECE_BYTES, ByteReader, runs_in_order_of_use
from quire.models.parallel.split import TensorShare

RECIPE = 1  # part of the weights' digest: raise it when a seed gives other weights
CHUNK = 1_048_573  # random numbers per tensor; a prime, so that repeats do not align with rows


def fill_random(
    views: Mapping[str, Tensor],
    *,
    std: float,
    seed: int,
    advance: Callable[[int], None] = lambda num_bytes: None,
    shares: Mapping[str, TensorShare] | None = None,
) -> None:
    """Fill norms with ones, biases with zeros, other tensors with CHUNK normal numbers, repeated for speed. `shares`
    are this rank's parts of tensors."""
    for name, view in views.items():
        if name.endswith(".bias"):
            view.zero_()
        elif view.dim() == 1:
            view.fill_(1.0)
        else:
            digest = hashlib.sha256(f"{seed}:{name}".encode()).digest()
            share = (shares or {}).get(name)
            _fill_normal(view, std, int.from_bytes(digest[:8], "little") >> 1, share)
        advance(view.numel() * view.element_size())


def _fill_normal(view: Tensor, std: float, seed: int, share: TensorShare | None) -> None:
    generator = torch.Generator(device="cpu").manual_seed(seed)
    num_elements = view.numel() if share is None else math.prod(share.whole_shape)
    normals = torch.empty(min(CHUNK, num_elements), dtype=torch.float32, device="cpu")
    normals = normals.normal_(0.0, std, generator=generator).to(device=view.device, dtype=view.dtype)
    whole = view if view.is_contiguous() else torch.empty_like(view, memory_format=torch.contiguous_format)
    flat, filled = whole.view(-1), 0
    for start, end in [(0, num_elements)] if share is None else share.flat_ranges():
        _repeat(normals, start, flat[filled : filled + end - start])
        filled += end - start
    if whole is not view:  # a transposed weight
        view.copy_(whole)


def _repeat(normals: Tensor, start: int, out: Tensor) -> None:
    first = start % len(normals)
    head = min(len(out), len(normals) - first)
    out[:head].copy_(normals[first : first + head])
    if head == len(out):
        return
    out = out[head:]
    whole = len(out) // len(normals) * len(normals)
    out[:whole].view(-1, len(normals)).copy_(normals)  # one broadcast copy is faster than many small ones
    out[whole:].copy_(normals[: len(out) - whole])


_TYPES = {name: getattr(torch, dtype) for name, dtype in TORCH_TYPES.items()} | {"F64": torch.float64}


class TensorFill:
    """One tensor of a model while its bytes arrive in order. `view` may have any layout and dtype."""

    def __init__(self, view: Tensor, entry: TensorEntry) -> None:
        self.view = view
        self.entry = entry
        self._dtype = _TYPES[entry.dtype]
        self._is_suspect = False  # a sum overflowed, or was NaN or infinite
        # A transposed view, or a tensor at an odd offset, is filled by rows from a buffer at the end.
        is_buffered = not view.is_contiguous() or entry.start % self._dtype.itemsize
        self._buffer = torch.empty(entry.num_bytes, dtype=torch.uint8, device="cpu") if is_buffered else None

    def add(self, offset: int, data: memoryview) -> None:
        """Add bytes at an offset in the tensor."""
        piece = torch.frombuffer(data, dtype=torch.uint8)
        if self._buffer is not None:
            self._buffer[offset : offset + len(data)] = piece
            return
        first = offset // self._dtype.itemsize
        self._put(self.view.view(-1)[first : first + len(data) // self._dtype.itemsize], piece.view(self._dtype))

    def finish(self, before_piece: Callable[[], None] = lambda: None) -> None:
        """Complete the tensor, calling `before_piece` before each piece of work; ModelLoadError for NaN or infinity."""
        if self._buffer is not None:
            whole = self._buffer.view(self._dtype).view(self.entry.shape)
            rows = max(1, PIECE_BYTES * len(whole) // max(1, self.entry.num_bytes)) if whole.dim() else 1
            for start in range(0, len(whole), rows) if whole.dim() else ():
                before_piece()
                self._put(self.view[start : start + rows], whole[start : start + rows])
            self._buffer = None
        if self._is_suspect:
            check_finite(self.view, self.entry)

    def _put(self, view: Tensor, piece: Tensor) -> None:
        view.copy_(piece)
        # NaN and infinity survive a sum, which is much cheaper than a check of each value.
        self._is_suspect = self._is_suspect or not bool(torch.isfinite(view.sum()))


def load_tensors(
    matched: Mapping[str, TensorEntry], views: Mapping[str, Tensor], advance: Callable[[int], None]
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


def check_finite(view: Tensor, entry: TensorEntry) -> None:
    """Raise ModelLoadError if a loaded tensor holds NaN or infinity."""
    bad = int((~torch.isfinite(view)).sum())
    if bad:
        dtype = str(view.dtype).removeprefix("torch.")
        converted = f" once converted from {entry.dtype} to {dtype}" if TORCH_TYPES.get(entry.dtype) != dtype else ""
        raise ModelLoadError(
            f"{entry.name} in {entry.file} has {bad} of {view.numel()} values that are NaN or infinite{converted}; "
            "download it again" + (", or choose another dtype" if converted else "")
        )
