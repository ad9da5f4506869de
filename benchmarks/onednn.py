"""Products of oneDNN through torch, a yardstick for ours."""

from __future__ import annotations

import functools

import torch
import torch.nn.functional as F
from torch import Tensor


class OneDnnWeight:
    """A weight in oneDNN's blocked layout."""

    def __init__(self, weight: Tensor) -> None:
        self._packed = torch.ops.mkldnn._reorder_linear_weight(weight, 32)
        self.num_bytes = self._packed.numel() * self._packed.element_size()

    def product(self, x: Tensor, bias: Tensor | None, activation: str = "none", addend: Tensor | None = None) -> Tensor:
        return torch.ops.mkldnn._linear_pointwise(x, self._packed, bias, "none", [], "")


@functools.cache
def has_onednn(dtype: torch.dtype) -> bool:
    """Test whether this torch build and CPU have oneDNN's packed kernels for a dtype."""
    if dtype not in (torch.bfloat16, torch.float32) or not torch.backends.mkldnn.is_available():
        return False
    try:
        if dtype == torch.bfloat16 and not torch.ops.mkldnn._is_mkldnn_bf16_supported():
            return False
        x, weight = torch.randn(3, 32, dtype=dtype, device="cpu"), torch.randn(48, 32, dtype=dtype, device="cpu")
        return torch.allclose(OneDnnWeight(weight).product(x, None), F.linear(x, weight), rtol=0.02, atol=0.1)
    except (AttributeError, RuntimeError, NotImplementedError):
        return False
