"""Seeded random weights: the same for a tensor's name and seed, whatever the order, the dtype or the device."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from quire.models.parallel.split import TensorShare

RECIPE = 1  # to be raised when the same seed gives other weights: digests of random weights name it
CHUNK = 1_048_573  # normals drawn for one tensor: a prime, so that repeats never line up with rows


def fill_random(
    views: Mapping[str, Tensor],
    *,
    std: float,
    seed: int,
    advance: Callable[[int], None] = lambda num_bytes: None,
    shares: Mapping[str, TensorShare] | None = None,
) -> None:
    """Fill tensors by name: norms with ones, biases with zeros, all else normal with standard deviation `std`.

    A large tensor repeats its own CHUNK normals: drawing billions would take minutes, and nothing that is measured
    on random weights can tell.

    Args:
        shares: of the tensors that are parts here: they get what the whole ones would have there.
    """
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
    """Fill `out` with the endless repetition of `normals`, from an index on."""
    first = start % len(normals)
    head = min(len(out), len(normals) - first)
    out[:head].copy_(normals[first : first + head])
    if head == len(out):
        return
    out = out[head:]
    whole = len(out) // len(normals) * len(normals)
    out[:whole].view(-1, len(normals)).copy_(normals)  # one broadcast copy: many small ones wait for threads
    out[whole:].copy_(normals[: len(out) - whole])
