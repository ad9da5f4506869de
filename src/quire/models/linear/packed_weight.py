"""Pack a linear layer's weight for the fastest kernel on this machine."""

from __future__ import annotations

import functools

import torch
import torch.nn.functional as F
from torch import Tensor

from quire.models.linear.interface import Activation, PackedWeight
from quire.models.linear.panel_weight import PanelWeight, panel_kernels


class OneDnnWeight:
    """See `PackedWeight`: oneDNN's blocked layout, without our own kernels. On 2 cores of a Zen 4 EPYC, 1.2 to 5 times
    faster than F.linear up to 32 rows, 1.1 to 1.5 times above; fused silu makes an MLP 3 to 13 % faster."""

    def __init__(self, weight: Tensor) -> None:
        self._packed = torch.ops.mkldnn._reorder_linear_weight(weight, 32)
        self.num_bytes = self._packed.numel() * self._packed.element_size()

    def product(self, x: Tensor, bias: Tensor | None, activation: Activation = "none") -> Tensor:
        last_step = "swish" if activation == "silu" else "none"
        return torch.ops.mkldnn._linear_pointwise(x, self._packed, bias, last_step, [], "")


def pack_weight(weight: Tensor) -> PackedWeight | None:
    """Pack a weight, [out_features, in_features], which may be overwritten. Returns None without such kernels."""
    if weight.device.type != "cpu" or not weight.numel() or not can_pack(weight.dtype):
        return None
    if (library := panel_kernels(weight.dtype)) is not None:
        return PanelWeight(weight.detach(), library)
    return OneDnnWeight(weight.detach())


def can_pack(dtype: torch.dtype) -> bool:
    """Return whether our kernels or oneDNN support packed weights of a dtype."""
    return panel_kernels(dtype) is not None or has_onednn(dtype)


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
