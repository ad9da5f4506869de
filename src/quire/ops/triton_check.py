"""Compare the elementwise Triton kernels with torch on this device, before requests depend on them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch

from quire.ops import on_torch, on_triton
from quire.ops.arrays import name_of

TOLERANCE = {"float32": 1e-5, "float16": 4e-3, "bfloat16": 4e-2}  # of the largest value


def check_operations(dtype: torch.dtype, device: torch.device) -> None:
    """ValueError if a kernel fails or differs."""
    generator = torch.Generator().manual_seed(0)

    def draw(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=generator).to(device, dtype)

    x, weight, qkv = draw(5, 512), draw(512), draw(5, 8, 64)
    cosines, sines = (draw(5, 1, 32) for _ in range(2))
    angles = torch.cat((cosines, cosines), -1), torch.cat((-sines, sines), -1)
    calls: dict[str, tuple[Any, ...]] = {
        "rms_norm": (x, weight, 1e-5),
        "gate": (x,),
        "gated_product": (x, weight.expand(5, -1)),
        "rotate_heads": (qkv, *angles, None, 4, 2, weight[:64], weight[64:128], 1e-5, 0.0, False),
    }
    for name, (first, *more) in calls.items():
        expected, found = (partial(getattr(each, name), first.clone(), *more) for each in (on_torch, on_triton))
        compare(name, expected, found)


def compare(
    name: str,
    expected: Callable[[], torch.Tensor],
    found: Callable[[], torch.Tensor],
    advice: str = "set QUIRE_KERNELS=none to compute with torch",
    tolerance: Mapping[str, float] = TOLERANCE,
    largest: float | None = None,
) -> None:
    """ValueError, with advice, if a kernel's result cannot be computed, or differs by more than a share of the largest
    value, by default that of `expected`."""
    try:
        right, own = expected(), found()
        difference = float((own.float() - right.float()).abs().max() / (largest or right.abs().max()))
        problem = (
            "" if difference <= tolerance[name_of(right.dtype)] else f"differs by {difference:.2g} of the largest value"
        )
    except Exception as error:
        raise ValueError(f"the Triton kernel for {name} fails here: {error}; {advice}") from error
    if problem:
        raise ValueError(f"the Triton kernel for {name} {problem}; {advice}")
