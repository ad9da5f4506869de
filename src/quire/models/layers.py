"""The building blocks of all architectures: linear layers, norms, embeddings, rotary positions, activations.

A layer knows its own tensors and their names in a checkpoint.
All of them work on a flattened batch: `[num_tokens, features]`, no padding, no batch dimension.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from quire.kernels.elementwise import Elementwise, elementwise, threads_for
from quire.kernels.recorder import new_output
from quire.models.model_config import RopeConfig, UnsupportedModelError
from quire.models.parallel.group import ALONE, ParallelGroup
from quire.models.parallel.split import Share, TensorShare
from quire.models.weights.interface import PackedWeight
from quire.models.weights.packed_weight import pack_weight
from quire.models.weights.panel_weight import PanelWeight
from quire.models.weights.quantized_weight import QuantizedWeight, quantize_weight, quantized_bytes

_DeviceLike = torch.device | str

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "silu": F.silu,
    "swish": F.silu,
    "relu": F.relu,
    "gelu": F.gelu,
    "gelu_new": functools.partial(F.gelu, approximate="tanh"),
    "gelu_fast": functools.partial(F.gelu, approximate="tanh"),
    "gelu_pytorch_tanh": functools.partial(F.gelu, approximate="tanh"),
}


def check_activation(name: str) -> str:
    """The name, if there is such an activation; UnsupportedModelError otherwise."""
    if name not in ACTIVATIONS:
        raise UnsupportedModelError(f"activation {name!r} is not supported; supported: {', '.join(ACTIVATIONS)}")
    return name


class LinearAdapter(Protocol):
    """What an adapter adds to a linear layer's output. `models/adapter.py` has the one for a whole batch."""

    def add_to(self, y: Tensor, x: Tensor) -> Tensor:
        """y and the adapter's part of it, in y's dtype; y itself may be written to.

        Args:
            y: [num_tokens, out_features], what the weights make of x.
            x: [num_tokens, in_features]
        """
        ...


class Projection(NamedTuple):
    """A linear layer of a checkpoint, or what a rank has of it: itself a layer here, or one of several in it."""

    linear: Linear
    rows: slice  #: of the layer's output that are the projection's
    outputs: Share  #: which of the projection's outputs these rows are


class Linear(nn.Module):
    """y = x W^T + b, and what an adapter adds. The one place where a faster kernel can be put under every product.

    `pack()`, called once the weight is loaded, gives it the layout of the fastest kernel here, and frees the plain one.

    Args:
        in_features: an int is all of them. With a share, each rank's x has its own part, and y, of which every rank
            computes an addend, is summed over the group.
        out_features: with a share, each rank's y is its own part.
    """

    def __init__(
        self,
        in_features: int | Share,
        out_features: int | Share,
        *,
        bias: bool,
        dtype: torch.dtype,
        device: _DeviceLike,
        group: ParallelGroup = ALONE,
    ) -> None:
        super().__init__()
        self.inputs, self.outputs = Share.of(in_features), Share.of(out_features)
        self.in_features, self.out_features = self.inputs.size, self.outputs.size  # of this rank
        self.weight: nn.Parameter | None = _parameter((self.out_features, self.in_features), dtype, device)
        self.bias = _parameter((self.out_features,), dtype, device) if bias else None
        self.packed: PackedWeight | None = None
        self.quantization = "none"  # what pack() makes of the weight
        self.adapter: LinearAdapter | None = None  # beside the weights, which stay as they are
        self._group = group
        self._is_addend = not self.inputs.is_whole
        self._adds_bias = not self._is_addend or group.rank == 0  # once in the sum

    def forward(self, x: Tensor) -> Tensor:
        bias = self.bias if self._adds_bias else None
        if self.packed is not None:
            y = self.packed.product(x, bias)
        else:
            assert self.weight is not None
            y = F.linear(x, self.weight, bias)
        if self.adapter is not None:
            y = self.adapter.add_to(y, x)
        return self._group.all_reduce(y) if self._is_addend else y

    def silu(self, x: Tensor) -> Tensor:
        """silu(x W^T + b). An adapter's part comes before silu, so that with one it is a step of its own."""
        if self.packed is not None and self.adapter is None:
            return self.packed.product(x, self.bias, "silu")
        return F.silu(self(x))

    def gated(self, x: Tensor, up: Linear) -> Tensor:
        """silu(x W^T + b) * (x U^T + c), up having U and c: in one call where both are packed for that."""
        has_adapter = self.adapter is not None or up.adapter is not None
        if isinstance(self.packed, PanelWeight) and isinstance(up.packed, PanelWeight) and not has_adapter:
            return self.packed.gated_product(x, self.bias, up.packed, up.bias)
        if isinstance(self.packed, QuantizedWeight) and isinstance(up.packed, QuantizedWeight) and not has_adapter:
            return self.packed.gated_product(x, self.bias, up.packed, up.bias)
        return self.silu(x).mul_(up(x))

    def pack(self) -> None:
        """Replace the weight by a packed one: of fewer bits, or if this machine has kernels for it.

        The plain weight is freed or overwritten: no view of it is of use afterwards.
        """
        if self.weight is None:
            return
        if self.quantization != "none":
            self.packed, self.weight = quantize_weight(self.weight, self.quantization), None
        elif (packed := pack_weight(self.weight)) is not None:
            self.packed, self.weight = packed, None

    def plain_bytes(self) -> int:
        """Memory that the weight takes before `pack()`."""
        assert self.weight is not None
        return self.weight.numel() * self.weight.element_size()

    def packed_bytes(self) -> int:
        """Memory that the weight will take after `pack()`; what kernels add by rounding up is left out."""
        if self.quantization == "none":
            return self.plain_bytes()
        return quantized_bytes(self.out_features, self.in_features, self.quantization)

    def projections(self, name: str) -> Iterator[tuple[str, Projection]]:
        """What a checkpoint calls this layer, or each of the layers that are stacked in it, and where it is here.

        Unlike the tensors, it can be asked for at any time.
        """
        yield name, Projection(self, slice(0, self.out_features), self.outputs)

    def checkpoint_tensors(self, name: str) -> Iterator[tuple[str, Tensor]]:
        """The tensors that a checkpoint has for this layer: their names, and the views that hold them here."""
        assert self.weight is not None, "a packed layer can no longer be loaded into"
        yield f"{name}.weight", self.weight
        if self.bias is not None:
            yield f"{name}.bias", self.bias

    def checkpoint_shares(self, name: str) -> Iterator[tuple[str, TensorShare]]:
        """Which part of those tensors this rank has, for those that are not whole here."""
        for part, (_, _, outputs) in self.projections(name):
            if not outputs.is_whole:
                yield f"{part}.weight", self._weight_share(outputs.total, self.inputs.total, 0, outputs)
                if self.bias is not None:
                    yield f"{part}.bias", TensorShare((outputs.total,), 0, outputs.ranges)
            elif not self.inputs.is_whole:
                yield f"{part}.weight", self._weight_share(outputs.total, self.inputs.total, 1, self.inputs)

    def _weight_share(self, out_features: int, in_features: int, dim: int, share: Share) -> TensorShare:
        return TensorShare((out_features, in_features), dim, share.ranges)


class MergedLinear(Linear):
    """Projections of one input that a checkpoint stores one by one, stacked into a single larger product."""

    def __init__(
        self, in_features: int, parts: Mapping[str, int | Share], *, bias: bool, dtype: torch.dtype, device: _DeviceLike
    ) -> None:
        shares = {name: Share.of(part) for name, part in parts.items()}
        out_features = sum(share.size for share in shares.values())  # of this rank
        super().__init__(in_features, out_features, bias=bias, dtype=dtype, device=device)
        self.parts = shares

    def projections(self, name: str) -> Iterator[tuple[str, Projection]]:
        parent = name.rpartition(".")[0]
        start = 0
        for part, outputs in self.parts.items():
            yield f"{parent}.{part}", Projection(self, slice(start, start + outputs.size), outputs)
            start += outputs.size

    def checkpoint_tensors(self, name: str) -> Iterator[tuple[str, Tensor]]:
        for part, (_, rows, _) in self.projections(name):
            for kind, tensor in (("weight", self.weight), ("bias", self.bias)):
                if tensor is not None:
                    yield f"{part}.{kind}", tensor[rows]


class Conv1DLinear(Linear):
    """A linear layer whose checkpoint stores the weight transposed, `[in, out]`, as GPT-2's Conv1D does."""

    def checkpoint_tensors(self, name: str) -> Iterator[tuple[str, Tensor]]:
        assert self.weight is not None
        yield f"{name}.weight", self.weight.t()
        if self.bias is not None:
            yield f"{name}.bias", self.bias

    def _weight_share(self, out_features: int, in_features: int, dim: int, share: Share) -> TensorShare:
        return TensorShare((in_features, out_features), 1 - dim, share.ranges)


class Sum(NamedTuple):
    """x + y, left to the norm that reads it: a pass of its own would begin cold. y is a block's output, held nowhere
    else, and is overwritten."""

    x: Tensor
    y: Tensor


def take_rows(x: Tensor, rows: Tensor | None) -> Tensor:
    """Some rows of x, by their numbers: int64 [num_rows]. None: all, as they are."""
    return x if rows is None else x.index_select(0, rows)


def kernels_for(dtype: torch.dtype) -> Elementwise | None:
    """The kernels between products, of a dtype that has them."""
    return elementwise(str(dtype).removeprefix("torch."))


def is_plain(x: Tensor, other: Tensor) -> bool:
    """Whether kernels may work on x: it is in main memory, as long as nobody wants gradients, and the other's dtype."""
    return x.is_cpu and x.dtype is other.dtype and not x.requires_grad


class RMSNorm(nn.Module):
    """x / rms(x) * weight, in float32 inside. One pass by the kernel, where F.rms_norm is half a dozen operations."""

    def __init__(self, size: int, eps: float, *, dtype: torch.dtype, device: _DeviceLike) -> None:
        super().__init__()
        self.size, self.eps = (size,), eps
        self.weight = _parameter((size,), dtype, device)
        self._kernels = kernels_for(dtype)

    def forward(self, x: Tensor) -> Tensor:
        if self._kernels is None or not is_plain(x, self.weight):
            return F.rms_norm(x, self.size, self.weight, self.eps)
        x = x.contiguous()
        return self._norm(None, x, self._kernels)

    def of_sum(self, x: Tensor | Sum) -> tuple[Tensor, Tensor]:
        """The sum, which takes its last addend's place, and the norm of it: what stands between two blocks.

        Args:
            x: [num_tokens, size], or a sum of such.
        """
        if not isinstance(x, Sum):
            return x, self(x)
        x, y = x
        if self._kernels is None or not (is_plain(x, self.weight) and x.is_contiguous() and y.is_contiguous()):
            y = y.add_(x)
            return y, self(y)
        return y, self._norm(x.data_ptr(), y, self._kernels)

    def _norm(self, x: int | None, y: Tensor, kernels: Elementwise) -> Tensor:
        out = new_output(y.shape, y.dtype)
        size, num_elements = self.size[0], y.numel()
        threads = threads_for(num_elements, torch.get_num_threads())
        kernels.norm(
            x, y.data_ptr(), self.weight.data_ptr(), out.data_ptr(), num_elements // size, size, self.eps, threads
        )
        return out


class LayerNorm(nn.Module):
    """(x - mean) / std * weight + bias."""

    def __init__(self, size: int, eps: float, *, affine: bool = True, dtype: torch.dtype, device: _DeviceLike) -> None:
        super().__init__()
        self.size, self.eps = (size,), eps
        self.weight = _parameter((size,), dtype, device) if affine else None
        self.bias = _parameter((size,), dtype, device) if affine else None

    def forward(self, x: Tensor) -> Tensor:
        return F.layer_norm(x, self.size, self.weight, self.bias, self.eps)


class Embedding(nn.Module):
    """A table of vectors, looked up by id. It may be a tied head's packed weight, which is then all there is of it.

    Args:
        num_rows: an int is all of them. With a share, each rank gives zeros for ids that are not among its own: the
            sum over the group is what the whole table gives.
    """

    def __init__(self, num_rows: int | Share, size: int, *, dtype: torch.dtype, device: _DeviceLike) -> None:
        super().__init__()
        self.rows, self.size = Share.of(num_rows), size
        self._is_whole = self.rows.is_whole
        self.weight: nn.Parameter | None = _parameter((self.rows.size, size), dtype, device)
        self.packed: PanelWeight | None = None

    def forward(self, ids: Tensor) -> Tensor:
        if self._is_whole:
            return self._look_up(ids)
        ((start, end),) = self.rows.ranges
        is_elsewhere = (ids < start) | (ids >= end)
        vectors = self._look_up((ids - start).masked_fill_(is_elsewhere, 0))
        return vectors.masked_fill_(is_elsewhere[:, None], 0)

    def checkpoint_shares(self, name: str) -> Iterator[tuple[str, TensorShare]]:
        """As `Linear.checkpoint_shares`."""
        if not self._is_whole:
            yield f"{name}.weight", TensorShare((self.rows.total, self.size), 0, self.rows.ranges)

    def _look_up(self, ids: Tensor) -> Tensor:
        if self.packed is not None:
            return self.packed.rows(ids)
        assert self.weight is not None
        return F.embedding(ids, self.weight)

    def share_with(self, head: Linear) -> None:
        """Pack a tied head, and read rows from what it has then; only where they cannot be read is the table kept."""
        head.weight = self.weight
        head.pack()
        if isinstance(head.packed, PanelWeight):
            self.packed, self.weight = head.packed, None


class RotaryEmbedding:
    """Cosines and sines of a step's positions, computed once a step and used by every layer.

    There is no table of all positions: computing a step's rows costs what looking them up does (measured: 16 and 29
    against 15 and 21 µs for 1 and 32 tokens), and a table for 128 Ki positions would take tens of MiB.
    """

    def __init__(self, config: RopeConfig) -> None:
        inv_freq, self.scale = inverse_frequencies(config)
        self.frequencies = torch.cat((-inv_freq, inv_freq))  # [dim], float32

    def __call__(self, positions: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """cos and sin for `rotate`, each [num_tokens, 1, dim]; sin's first half is negated."""
        if self.frequencies.device != positions.device:
            self.frequencies = self.frequencies.to(positions.device)
        angles = positions[:, None, None].float() * self.frequencies
        cos, sin = angles.cos(), angles.sin()
        if self.scale != 1.0:
            cos, sin = cos * self.scale, sin * self.scale
        return cos.to(dtype), sin.to(dtype)


def rotate(x: Tensor, rotation: tuple[Tensor, Tensor]) -> Tensor:
    """Turn each head's pairs (i, i + dim / 2) by its token's angle. x: [num_tokens, heads, dim]."""
    cos, sin = rotation
    return torch.addcmul(x * cos, x.roll(x.shape[-1] // 2, dims=-1), sin)


def rotate_heads(
    qkv: Tensor,
    rotation: tuple[Tensor, Tensor],
    num_query_heads: int,
    num_key_heads: int,
    norms: tuple[RMSNorm, RMSNorm] | None,
    kernels: Elementwise | None,
) -> tuple[Tensor, Tensor, Tensor]:
    """q and k with `rotate`, normed first where there are norms, and v.

    Args:
        qkv: [num_tokens, heads, dim], queries first, then keys and as many values. Nobody else holds it: the kernel
            works in place.
        norms: of queries, and of keys.

    Returns:
        Each [num_tokens, its heads, dim].
    """
    cos, sin = rotation
    sizes = [num_query_heads, num_key_heads, num_key_heads]
    if kernels is None or not (is_plain(qkv, cos) and qkv.is_contiguous()):
        q, k, v = torch.split_with_sizes(qkv, sizes, 1)
        if norms is not None:
            qk = torch.cat((norms[0](q), norms[1](k)), dim=1)
        else:
            qk = qkv[:, : num_query_heads + num_key_heads]
        q, k = torch.split_with_sizes(rotate(qk, rotation), sizes[:2], 1)
        return q, k, v
    num_tokens, num_heads, dim = qkv.shape
    kernels.rotate(
        qkv.data_ptr(),
        num_tokens,
        num_heads * dim,
        num_query_heads,
        num_key_heads,
        dim,
        cos.data_ptr(),
        sin.data_ptr(),
        None if norms is None else norms[0].weight.data_ptr(),
        None if norms is None else norms[1].weight.data_ptr(),
        0.0 if norms is None else norms[0].eps,
        threads_for(num_tokens * num_heads * dim, torch.get_num_threads()),
    )
    q, k, v = torch.split_with_sizes(qkv, sizes, 1)  # in a step, half the time of three slices
    return q, k, v


def inverse_frequencies(config: RopeConfig) -> tuple[Tensor, float]:
    """Radians a position for each pair of dimensions ([dim / 2], float32), and a factor on cos and sin.

    llama3: as in Meta's reference for Llama 3.1, which slows down only what turns less than once in the original
    context. yarn: arXiv 2309.00071, section 3.2 (NTK by parts).
    """
    exponents = torch.arange(0, config.dim, 2, dtype=torch.float32, device="cpu") / config.dim
    inv_freq = 1.0 / (config.theta**exponents)
    if config.rope_type == "linear":
        return inv_freq / config["factor"], 1.0
    if config.rope_type == "llama3":
        original, low, high = (
            config[k] for k in ("original_max_position_embeddings", "low_freq_factor", "high_freq_factor")
        )
        turns = original * inv_freq / (2 * math.pi)  # in the original context
        keep = ((turns - low) / (high - low)).clamp(0, 1)  # 1: fast, as it was; 0: slow, divided by factor
        return inv_freq * keep + inv_freq / config["factor"] * (1 - keep), 1.0
    if config.rope_type == "yarn":
        low, high = (_dimension_that_turns(config, config[k]) for k in ("beta_fast", "beta_slow"))
        if config["truncate"]:
            low, high = math.floor(low), math.ceil(high)
        low, high = max(low, 0), min(high, config.dim - 1)
        ramp = torch.arange(config.dim // 2, dtype=torch.float32, device="cpu")
        slow = ((ramp - low) / ((high - low) or 0.001)).clamp(0, 1)
        return inv_freq / config["factor"] * slow + inv_freq * (1 - slow), config["attention_factor"]
    return inv_freq, 1.0


def _dimension_that_turns(config: RopeConfig, times: float) -> float:
    """The pair of dimensions that turns this many times within the original context."""
    original = config["original_max_position_embeddings"]
    return config.dim * math.log(original / (times * 2 * math.pi)) / (2 * math.log(config.theta))


def _parameter(shape: tuple[int, ...], dtype: torch.dtype, device: _DeviceLike) -> nn.Parameter:
    return nn.Parameter(torch.empty(shape, dtype=dtype, device=device), requires_grad=False)
