"""Seeded random weights: the same for a tensor's name and seed, whatever the order, the dtype or the device."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping

import torch
from torch import Tensor

RECIPE = 1  # to be raised when the same seed gives other weights: digests of random weights name it
CHUNK = 1_048_573  # normals drawn for one tensor: a prime, so that repeats never line up with rows


def fill_random(
    views: Mapping[str, Tensor], *, std: float, seed: int, advance: Callable[[int], None] = lambda num_bytes: None
) -> None:
    """Fill tensors by name: norms with ones, biases with zeros, all else normal with standard deviation `std`.

    A large tensor repeats its own CHUNK normals: drawing billions would take minutes, and nothing that is measured
    on random weights can tell.
    """
    for name, view in views.items():
        if name.endswith(".bias"):
            view.zero_()
        elif view.dim() == 1:
            view.fill_(1.0)
        else:
            digest = hashlib.sha256(f"{seed}:{name}".encode()).digest()
            _fill_normal(view, std, int.from_bytes(digest[:8], "little") >> 1)
        advance(view.numel() * view.element_size())


def _fill_normal(view: Tensor, std: float, seed: int) -> None:
    generator = torch.Generator(device="cpu").manual_seed(seed)
    normals = torch.empty(min(CHUNK, view.numel()), dtype=torch.float32, device="cpu")
    normals = normals.normal_(0.0, std, generator=generator).to(device=view.device, dtype=view.dtype)
    if not view.is_contiguous():  # a transposed weight
        repeats = -(-view.numel() // len(normals))
        view.copy_(normals.repeat(repeats)[: view.numel()].view(view.shape))
        return
    flat = view.view(-1)
    whole = len(flat) // len(normals) * len(normals)
    flat[:whole].view(-1, len(normals)).copy_(normals)  # one broadcast copy: many small ones wait for threads
    flat[whole:].copy_(normals[: len(flat) - whole])
