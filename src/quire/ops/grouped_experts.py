"""The outputs of a mixture's experts by grouped Triton kernels, for plain weights on a GPU."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from quire.kernels.triton import experts as kernels
from quire.ops.arrays import name_of

_FEW = 16  # pairs of an expert, on average; with more, tiles are larger

Layers = Sequence[tuple[Tensor, Tensor | None]]  #: of each expert: weight [out, in], bias


class GroupedExperts:
    """Gated MLPs. `activation` is silu, gelu_tanh or clamped_swiglu, which takes `limit` and `alpha`."""

    def __init__(
        self, gate: Layers, up: Layers, down: Layers, activation: str, limit: float = 0.0, alpha: float = 0.0
    ) -> None:
        self._gate, self._up, self._down = map(_table, (gate, up, down))
        self._gating = {"ACTIVATION": activation, "LIMIT": limit, "ALPHA": alpha}
        self._hidden, self._inner = down[0][0].shape
        self._count = len(down)
        self._numbers = torch.arange(triton.next_power_of_2(len(down)), device=down[0][0].device)

    def __call__(
        self, x: Tensor, experts: Tensor, factors: Tensor, shared: Tensor | None, shared_gate: Tensor | None
    ) -> Tensor:
        """Return the sum of the outputs of each row's `experts`, int64 [num_rows, chosen], times float32 `factors`, and
        of `shared`, [num_rows, hidden], times the sigmoid of `shared_gate`, [num_rows, 1]. Launches depend on shapes
        only, and nothing waits for the device."""
        num_rows, chosen = experts.shape
        num_pairs, x = num_rows * chosen, x.contiguous()
        inner, parts = x.new_empty(num_pairs, self._inner), factors.new_empty(num_pairs, self._hidden)
        out = torch.empty_like(x)
        if not num_rows:
            return out
        by_expert, order = experts.reshape(-1).sort(stable=True)
        ends = torch.searchsorted(by_expert, self._numbers, right=True, out_int32=True)
        sizes = self._sizes(x.dtype, is_few=num_pairs <= _FEW * self._count)
        num_tiles = min(self._count, num_pairs) + num_pairs // sizes["ROWS"]
        kernels.gate_up[num_tiles, triton.cdiv(self._inner, sizes["COLUMNS"])](
            x, order, ends, *self._gate, *self._up, inner, CHOSEN=chosen, **self._gating, **sizes
        )
        kernels.down[num_tiles, triton.cdiv(self._hidden, sizes["COLUMNS"])](
            inner, order, ends, *self._down, factors.contiguous(), parts, **sizes
        )
        columns = min(1024, triton.next_power_of_2(self._hidden))
        kernels.add_up[num_rows, triton.cdiv(self._hidden, columns)](
            parts, *(None if each is None else each.contiguous() for each in (shared, shared_gate)), out,
            CHOSEN=chosen, HIDDEN=self._hidden, COLUMNS=columns,
        )  # fmt: skip
        return out

    def _sizes(self, dtype: torch.dtype, *, is_few: bool) -> dict[str, Any]:
        """Return the constants of both products."""
        is_narrow, name = dtype.itemsize == 2, name_of(dtype)
        if triton.knobs.runtime.interpret and name == "bfloat16":  # the interpreter cannot multiply it
            name = "float32"
        return {
            "EXPERTS": len(self._numbers), "HIDDEN": self._hidden, "INNER": self._inner, "OPERANDS": getattr(tl, name),
            "ROWS": 16 if is_few else 64 if is_narrow else 32, "COLUMNS": 32 if is_few else 64,
            "DEPTH": 32 if not is_narrow else 128 if is_few else 64, "num_warps": 4, "num_stages": 3,
        }  # fmt: skip


def _table(layers: Layers) -> tuple[Tensor, Tensor, Tensor | None]:
    """Return the first weight, where the others are from it, and the biases, [num_experts, out]."""
    first, unit = layers[0][0], kernels.UNIT.value * layers[0][0].itemsize
    places = [weight.data_ptr() - first.data_ptr() for weight, _ in layers]
    assert not any(place % unit for place in places), "torch aligns tensors"
    biases = [bias for _, bias in layers if bias is not None]
    offsets = torch.tensor([place // unit for place in places], device=first.device)
    return first, offsets, torch.stack(biases) if biases else None
