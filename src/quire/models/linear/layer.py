"""Linear layers: plain, packed or quantized weights, an adapter beside them, and this rank's part of both."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, Protocol, cast

import numpy as np

from quire.models.linear.interface import PackedWeight
from quire.models.linear.kernel_weight import KernelWeight
from quire.models.linear.panel_weight import COMPACT_SHARE, PanelWeight, pack_weight
from quire.models.linear.quantized_weight import quantize_weight, quantized_bytes
from quire.models.linear.stored_weight import StoredParts
from quire.models.linear.truncation import PlainWeight
from quire.models.parallel.group import ALONE, ParallelGroup
from quire.models.parallel.split import Share, TensorShare
from quire.ops import functions as ops
from quire.ops.arrays import Array, DType, empty, name_of
from quire.ops.module import Module


class LinearAdapter(Protocol):
    """The part of a LoRA adapter in one linear layer; see `models/adapter.py`."""

    def add_to(self, y: Array, x: Array) -> Array:
        """Return y plus the adapter's output for x, in y's dtype; may write to y."""
        ...

    def output(self, x: Array) -> Array:
        """Return the adapter's output for x, float32 [num_rows, out_features]."""
        ...


class Projection(NamedTuple):
    """One linear layer of a checkpoint, inside a `Linear` that may stack several."""

    linear: Linear
    rows: slice  #: its rows in the layer's output
    outputs: Share  #: this rank's part of its outputs


class WeightLayer(Module):
    """A weight [out_features, in_features] with one or several projections of a checkpoint, or this rank's part."""

    bias: Array | None = None
    packed: PackedWeight | None = None
    has_precisions = True  #: whether it may be truncated
    uses_triton = False  #: for packed weights, on a GPU

    def __init__(self, in_features: int | Share, out_features: int | Share, dtype: DType, device: str) -> None:
        self.inputs, self.outputs = Share.of(in_features), Share.of(out_features)
        self.in_features, self.out_features = self.inputs.size, self.outputs.size  # on this rank
        self.dtype = dtype
        self.weight: Array | None = empty((self.out_features, self.in_features), dtype, device)
        self.stored: StoredParts | None = None  #: a part for each projection, in place of the weight
        self.views: dict[bool, PackedWeight | None] = {}  #: `packed` by whether mantissas are truncated, if they may be

    def store_as(self, parts: StoredParts) -> None:
        """Load into these arrays, a part for each projection, in place of the plain weight."""
        self.stored, self.weight, self.has_precisions = parts, None, False

    def truncate(self, bits: int) -> None:
        """Compute with the top `bits` of mantissas, until the model uses another view."""
        if self.has_precisions:
            whole: Any = PlainWeight(self.weight) if self.packed is None else self.packed
            self.views = {False: self.packed, True: whole.truncated(bits)}
            self.packed = self.views[True]

    def add_bits(self, first_row: int, words: np.ndarray) -> None:
        """See `TruncatableWeight`."""
        whole: Any = self.views[False]
        (PlainWeight(self.weight) if whole is None else whole).add_bits(first_row, words)

    def plain_bytes(self) -> int:
        """Return the weight's memory before `pack()`."""
        if self.stored is not None:
            return self.stored.num_bytes
        assert self.weight is not None
        return int(self.weight.nbytes)

    def packed_bytes(self) -> int:
        """Return the weight's memory after `pack()`, without the padding of kernels."""
        if self.stored is None:
            return self.plain_bytes()
        return self.stored.packed_bytes(self.dtype, uses_triton=self.uses_triton)

    def pack_parts(self, parts: StoredParts, device: str) -> PackedWeight | None:
        """Return a weight that computes with encoded rows; None without kernels for them."""
        return parts.pack_on(device, self.dtype) if self.uses_triton else parts.pack(self.dtype)

    def parts(self, name: str) -> Iterator[tuple[str, slice, Share]]:
        """Yield the projections' names, their rows, and this rank's part of their outputs."""
        yield name, slice(0, self.out_features), self.outputs

    def checkpoint_tensors(self, name: str) -> Iterator[tuple[str, Array]]:
        """Yield the checkpoint's tensors of this layer: names, and the views that hold them."""
        for index, (part, rows, _) in enumerate(self.parts(name)):
            if self.stored is not None:
                yield from ((f"{part}.{kind}", array) for kind, array in self.stored[index].named_parameters())
            else:
                assert self.weight is not None, "a packed layer cannot be loaded into"
                yield f"{part}.weight", self.weight[rows]
            if self.bias is not None:
                yield f"{part}.bias", self.bias[rows]

    def checkpoint_shares(self, name: str) -> Iterator[tuple[str, TensorShare]]:
        """Yield this rank's part of each of those tensors, except whole ones."""
        for index, (part, _, outputs) in enumerate(self.parts(name)):
            if self.stored is not None:
                yield from ((f"{part}.{kind}", share) for kind, share in self.stored[index].shares())
            elif not outputs.is_whole:
                yield f"{part}.weight", self._weight_share(outputs.total, self.inputs.total, 0, outputs)
            elif not self.inputs.is_whole:
                yield f"{part}.weight", self._weight_share(outputs.total, self.inputs.total, 1, self.inputs)
            if self.bias is not None and not outputs.is_whole:
                yield f"{part}.bias", TensorShare((outputs.total,), 0, outputs.ranges)

    def _weight_share(self, out_features: int, in_features: int, dim: int, share: Share) -> TensorShare:
        return TensorShare((out_features, in_features), dim, share.ranges)


class Linear(WeightLayer):
    """y = x W^T + b, plus an adapter's output. With a share of `in_features`, y is summed over the group."""

    is_quantizable = True
    takes_adapter = True

    def __init__(
        self,
        in_features: int | Share,
        out_features: int | Share,
        *,
        bias: bool,
        dtype: DType,
        device: str,
        group: ParallelGroup = ALONE,
    ) -> None:
        super().__init__(in_features, out_features, dtype, device)
        self.bias = empty((self.out_features,), dtype, device) if bias else None
        self.quantization = "none"  # applied by pack()
        self.is_compact = False  # as well, to weights of bfloat16 that are not quantized or stored in blocks
        self.adapter: LinearAdapter | None = None  # the weights stay unchanged
        self._group = group
        self._is_addend = not self.inputs.is_whole
        self._adds_bias = not self._is_addend or group.rank == 0  # once per sum

    def __call__(self, x: Array) -> Array:
        y = self.addend(x)
        return self._group.all_reduce(y) if self._is_addend else y

    @property
    def own_bias(self) -> Array | None:
        """The bias in this rank's part of the sum over the group."""
        return self.bias if self._adds_bias else None

    def addend(self, x: Array) -> Array:
        """Compute this rank's part of the sum over the group."""
        bias = self.own_bias
        if self.packed is not None:
            y = self.packed.product(x, bias)
        else:
            assert self.weight is not None
            y = ops.linear(x, self.weight, bias)
        if self.adapter is not None:
            y = self.adapter.add_to(y, x)
        return y

    def gated(self, x: Array, up: Linear) -> Array:
        """Compute silu(x W^T + b) * (x U^T + c) with U and c of `up`, in one call if both are packed alike. Adapters'
        outputs are added before silu. Rows without an adapter have the same bits beside rows with one."""
        packed, other = self.packed, cast(Any, up.packed)
        if not isinstance(packed, KernelWeight):
            kind = getattr(packed, "kind", None)  # of a weight that Triton decodes
            has_adapter = self.adapter is not None or up.adapter is not None
            if kind is None or kind != getattr(other, "kind", None) or has_adapter:
                return ops.gated_product(self(x), up(x))
            return cast(Any, packed).gated_product(x, self.bias, other, up.bias)
        own = self._adapter_output(x)
        if type(packed) is type(other) or (isinstance(packed, PanelWeight) and isinstance(other, PanelWeight)):
            return packed.gated_product(x, self.bias, other, up.bias, addend=own, up_addend=up._adapter_output(x))
        return ops.multiply(packed.product(x, self.bias, "silu", own), up(x))

    def _adapter_output(self, x: Array) -> Array | None:
        return None if self.adapter is None else self.adapter.output(x)

    def pack(self, device: str = "cpu") -> None:
        """Quantize the weight or give it the fastest kernel's layout; views of the plain one become invalid. A stored
        weight stays encoded where a kernel takes it, else it is decoded onto the device."""
        if (parts := self.stored) is not None:
            self.stored = None
            self.packed = self.pack_parts(parts, device) if self.quantization == "none" else None
            self.weight = parts.decode(self.dtype, device) if self.packed is None else None
            del parts
        if self.weight is None:
            return
        if self.quantization != "none":
            self.packed, self.weight = quantize_weight(self.weight, self.quantization), None
        elif (packed := self._packed_floats()) is not None:
            self.packed, self.weight = packed, None

    def _packed_floats(self) -> PackedWeight | None:
        if not self.uses_triton:
            return pack_weight(self.weight, is_compact=self.is_compact)
        if not self.is_compact or name_of(self.dtype) != "bfloat16":
            return None
        from quire.models.linear.triton_weight import compact  # imports torch

        return compact(cast(Any, self.weight))

    def packed_bytes(self) -> int:
        if self.quantization == "none":
            share = COMPACT_SHARE if self.is_compact and self.stored is None else 1
            return int(share * super().packed_bytes())
        return quantized_bytes(self.out_features, self.in_features, self.quantization)

    def projections(self, name: str) -> Iterator[tuple[str, Projection]]:
        """Yield the checkpoint's layers in this one, by name. Works before and after `pack()`."""
        yield from ((part, Projection(self, rows, outputs)) for part, rows, outputs in self.parts(name))


class MergedLinear(Linear):
    """Several projections of one input, stored separately in a checkpoint, in one product."""

    def __init__(
        self,
        in_features: int,
        parts: Mapping[str, int | Share],
        *,
        bias: bool,
        dtype: DType,
        device: str,
    ) -> None:
        shares = {name: Share.of(part) for name, part in parts.items()}
        out_features = sum(share.size for share in shares.values())  # on this rank
        super().__init__(in_features, out_features, bias=bias, dtype=dtype, device=device)
        self._shares = shares

    def pack_parts(self, parts: StoredParts, device: str) -> PackedWeight | None:
        """Return a weight that computes with encoded rows; None without kernels for them."""
        return parts.pack_on(device, self.dtype) if self.uses_triton else parts.pack(self.dtype)

    def parts(self, name: str) -> Iterator[tuple[str, slice, Share]]:
        start = 0
        for part, outputs in self._shares.items():
            yield f"{name.rpartition('.')[0]}.{part}", slice(start, start + outputs.size), outputs
            start += outputs.size


class Conv1DLinear(Linear):
    """A linear layer whose checkpoint holds the weight as [in, out], like GPT-2's Conv1D."""

    def checkpoint_tensors(self, name: str) -> Iterator[tuple[str, Array]]:
        assert self.weight is not None
        yield f"{name}.weight", self.weight.T
        if self.bias is not None:
            yield f"{name}.bias", self.bias

    def _weight_share(self, out_features: int, in_features: int, dim: int, share: Share) -> TensorShare:
        return TensorShare((in_features, out_features), 1 - dim, share.ranges)
