"""Pack a linear layer's weight for our kernels."""

from __future__ import annotations

from quire.models.linear.interface import PackedWeight
from quire.models.linear.panel_weight import PanelWeight, panel_kernels
from quire.ops.arrays import Array, is_numpy


def pack_weight(weight: Array) -> PackedWeight | None:
    """Pack a weight, [out_features, in_features], which may be overwritten. Returns None without such kernels."""
    is_here = is_numpy(weight) or weight.device.type == "cpu"
    if not is_here or 0 in weight.shape or (library := panel_kernels(weight.dtype)) is None:
        return None
    return PanelWeight(weight, library)
