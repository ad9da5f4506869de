"""The outputs of a mixture's experts by grouped Triton kernels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import triton
from torch import Tensor

from quire.kernels.triton import experts as kernels
from quire.ops.encoded_weight import EncodedWeight, operands_of

_FEW = 16  # pairs of an expert, on average; with more, tiles are larger

Layers = Sequence[tuple[EncodedWeight, Tensor | None]]  #: of each expert, alike: weight, bias


class GroupedExperts:
    """Gated MLPs. `activation` is silu, gelu_tanh or clamped_swiglu, which takes `limit` and `alpha`."""

    def __init__(
        self, gate: Layers, up: Layers, down: Layers, activation: str, limit: float = 0.0, alpha: float = 0.0
    ) -> None:
        self._layers = gate, up, down  # whose memory kernels read
        self._gate, self._up, self._down = map(_table, self._layers)
        self._weights = [layer[0][0] for layer in self._layers]
        self._gating = {"ACTIVATION": activation, "LIMIT": limit, "ALPHA": alpha}
        self._hidden, self._inner = self._weights[2].width, self._weights[2].depth
        self._count = len(down)
        device = self._weights[0].numbers.device
        self._numbers = torch.arange(triton.next_power_of_2(len(down)), device=device)

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
        is_few, gate, up, down = num_pairs <= _FEW * self._count, *self._weights
        sizes = self._sizes(x.dtype, is_few=is_few)
        num_tiles = min(self._count, num_pairs) + num_pairs // sizes["ROWS"]
        kernels.gate_up[num_tiles, triton.cdiv(self._inner, sizes["COLUMNS"])](
            x, order, ends, self._gate, self._up, inner, gate.row_size, up.row_size, CHOSEN=chosen, **self._gating,
            FORM=gate.form, UP_FORM=up.form, STEP=_step(gate, x.dtype, is_few=is_few),
            UP_STEP=_step(up, x.dtype, is_few=is_few), **sizes,
        )  # fmt: skip
        kernels.down[num_tiles, triton.cdiv(self._hidden, sizes["COLUMNS"])](
            inner, order, ends, self._down, factors.contiguous(), parts, down.row_size,
            FORM=down.form, STEP=_step(down, x.dtype, is_few=is_few), **sizes,
        )  # fmt: skip
        columns = min(1024, triton.next_power_of_2(self._hidden))
        kernels.add_up[num_rows, triton.cdiv(self._hidden, columns)](
            parts, *(None if each is None else each.contiguous() for each in (shared, shared_gate)), out,
            CHOSEN=chosen, HIDDEN=self._hidden, COLUMNS=columns,
        )  # fmt: skip
        return out

    def _sizes(self, dtype: torch.dtype, *, is_few: bool) -> dict[str, Any]:
        """Return the constants of both products."""
        is_narrow = dtype.itemsize == 2
        return {
            "EXPERTS": len(self._numbers), "HIDDEN": self._hidden, "INNER": self._inner, "OPERANDS": operands_of(dtype),
            "ROWS": 16 if is_few else 64 if is_narrow else 32, "COLUMNS": 32 if is_few else 128 if is_narrow else 64,
            "num_warps": 4 if is_few or not is_narrow else 8, "num_stages": 3,
        }  # fmt: skip


def _step(weight: EncodedWeight, dtype: torch.dtype, *, is_few: bool) -> int:
    return weight.form.step(32 if dtype.itemsize == 4 else 128 if is_few else 64)


def _table(layers: Layers) -> tuple[tuple[Tensor | None, ...], Tensor, Tensor | None, int]:
    """Return the first weight's arrays, where the others' are from them, [arrays, num_experts], the biases,
    [num_experts, out], and the number of experts."""
    first = layers[0][0]
    places = [[_distance(*pair) for pair in zip(weight.arrays, first.arrays, strict=True)] for weight, _ in layers]
    offsets = torch.tensor(places, device=first.numbers.device).T.contiguous()
    biases = [bias for _, bias in layers if bias is not None]
    return first.arrays, offsets, torch.stack(biases) if biases else None, len(layers)


def _distance(array: Tensor | None, first: Tensor | None) -> int:
    if array is None or first is None:
        return 0
    place, unit = array.data_ptr() - first.data_ptr(), kernels.UNIT.value * first.itemsize
    assert not place % unit, "torch aligns tensors"
    return place // unit
