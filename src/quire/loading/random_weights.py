"""Random weights that depend on a tensor's name and the seed, not on order, dtype or device."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping

import torch
from torch import Tensor

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
    """Fill norms with ones, biases with zeros, and other tensors with normal random numbers.

    A large tensor repeats CHUNK numbers, since drawing billions would take minutes.

    Args:
        shares: this rank's parts of tensors, which get the numbers of the whole tensor.
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
    """Fill `out` with repetitions of `normals`, starting at an index."""
    first = start % len(normals)
    head = min(len(out), len(normals) - first)
    out[:head].copy_(normals[first : first + head])
    if head == len(out):
        return
    out = out[head:]
    whole = len(out) // len(normals) * len(normals)
    out[:whole].view(-1, len(normals)).copy_(normals)  # one broadcast copy is faster than many small ones
    out[whole:].copy_(normals[: len(out) - whole])
