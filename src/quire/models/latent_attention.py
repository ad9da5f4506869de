"""Multi-head latent attention (DeepSeek-V2, arXiv:2405.04434) in its absorbed form: KV is one latent per token, which
all heads read. The weights from latents to keys are applied to queries, those to values to outputs."""

from __future__ import annotations

import copy
import ctypes
from collections.abc import Iterator, Sequence
from typing import Any, Self

import numpy as np

from quire.kernels.recorder import call_kernel, new_output
from quire.kernels.structure import address, dense, structure
from quire.models.base import Attend
from quire.models.encodings import BLOCKS, FLOATS, HEAD_PARTS
from quire.models.layers import RMSNorm, select_rows
from quire.models.linear.layer import Linear
from quire.models.linear.panel_weight import SERIAL_PRODUCTS, pack_panels, panel_kernels
from quire.models.linear.stored_weight import StoredWeight, decode_rows
from quire.models.linear.truncation import check_bits
from quire.models.model_config import LatentConfig, ModelConfig
from quire.models.parallel import ModelSplit
from quire.models.parallel.split import Share, TensorShare
from quire.models.rotary import Rotation
from quire.ops import functions as ops
from quire.ops.arrays import Array, DType, as_numpy, empty, numpy_dtype, takes_tensors
from quire.ops.module import Module
from quire.system.pages import new_empty
from quire.system.threads import num_threads

_EPS = 1e-6  # of the norms of latents, whatever the config's

_Heads = structure(
    "QuireHeads", "pointer weights x out", "int64 num_rows num_heads num_copied", "int32 num_threads"
)  # csrc/linear.h


class HeadWeights:
    """A weight per head, [num_heads, out_features, in_features] of float32 or bfloat16, packed in panels."""

    def __init__(self, weight: np.ndarray, library: ctypes.CDLL, *, is_compact: bool = False) -> None:
        own = new_empty(weight.shape, weight.dtype)  # dense, so that panels are packed in place
        own[...] = weight
        self.heads = [pack_panels(each, library, is_compact=is_compact) for each in own]
        self.shape, self.dtype = weight.shape, weight.dtype
        self._multiply = getattr(library, f"quire_heads_{weight.dtype.name}")
        self._multiply.restype = None
        self.num_bytes = sum(head.num_bytes for head in self.heads)
        self._make_calls()

    def _make_calls(self) -> None:
        calls = [head.call(None) for head in self.heads]
        self._calls = (type(calls[0]) * len(calls))(*calls)

    def truncated(self, mantissa_bits: int) -> Self:
        """See `TruncatableWeight`."""
        view = copy.copy(self)
        view.heads = [head.truncated(mantissa_bits) for head in self.heads]
        view._make_calls()
        return view

    @takes_tensors
    def product(self, x: np.ndarray, num_copied: int) -> np.ndarray:
        """Compute x W^T per head, [num_rows, num_heads, out_features + num_copied], from x, [num_rows, num_heads,
        in_features + num_copied], whose last features are copied behind it."""
        x, (num_heads, out_features, in_features) = dense(x), self.shape
        out = new_output((len(x), num_heads, out_features + num_copied), x.dtype)
        is_small = x.size // (in_features + num_copied) * in_features * out_features <= SERIAL_PRODUCTS
        pointers = (ctypes.addressof(self._calls), address(x), address(out))
        threads = 1 if is_small else num_threads()
        call_kernel(self._multiply, _Heads(*pointers, len(x), num_heads, num_copied, threads))
        return out


class _Packed(tuple[HeadWeights, HeadWeights]):
    @property
    def num_bytes(self) -> int:
        return sum(each.num_bytes for each in self)

    def truncated(self, mantissa_bits: int) -> _Packed:
        """See `TruncatableWeight`."""
        return _Packed(each.truncated(mantissa_bits) for each in self)

    def add_bits(self, first_row: int, words: np.ndarray) -> None:
        """See `TruncatableWeight`: rows of all heads' keys and values in turn."""
        (_, rank, nope_dim), (num_heads, value_dim, _) = (each.shape for each in self)
        size = nope_dim + value_dim
        check_bits(first_row, words, (num_heads * size, rank), self[0].dtype)
        for head in range(first_row // size, -(-(first_row + len(words)) // size)):
            own = np.zeros((size, rank), words.dtype)
            first, last = max(first_row, head * size), min(first_row + len(words), (head + 1) * size)
            own[first - head * size : last - head * size] = words[first - first_row : last - first_row]
            self[0].heads[head].add_bits(0, own[:nope_dim].T)
            self[1].heads[head].add_bits(0, own[nope_dim:])


class HeadRows(StoredWeight):
    """The weight of a `LatentProjection` as GGUF files store it: k_b, [heads, rank, nope_dim], and v_b, [heads,
    value_dim, rank], in encodings of their own."""

    has_kernel = False

    def __init__(self, latent: LatentConfig, outputs: Share, encodings: Sequence[str]) -> None:
        self._size, self._encodings, self.encoding = latent.nope_dim + latent.value_dim, encodings, "heads' blocks"
        self.out_features, self.in_features, self._outputs = outputs.size, latent.rank, outputs
        self._whole: dict[str, tuple[int, ...]] = {}  # shapes
        sizes = ((latent.rank, latent.nope_dim), (latent.value_dim, latent.rank))
        for name, (rows, columns), encoding in zip(HEAD_PARTS, sizes, encodings, strict=True):
            dtype = numpy_dtype(FLOATS.get(encoding, "uint8"))
            values, num_bytes = BLOCKS.get(encoding, (1, 1))
            self._whole[name] = (outputs.total // self._size, rows, columns // values * num_bytes)
            setattr(self, name, empty((outputs.size // self._size, *self._whole[name][1:]), dtype, "meta"))

    def shares(self) -> Iterator[tuple[str, TensorShare]]:
        for name, shape in () if self._outputs.is_whole else self._whole.items():
            heads = ((start // self._size, end // self._size) for start, end in self._outputs.ranges)
            yield name, TensorShare(shape, 0, tuple(heads))

    def decode(self, rows: slice) -> np.ndarray:
        first, last = rows.start // self._size, -(-rows.stop // self._size)
        arrays = (vars(self)[name][first:last] for name in HEAD_PARTS)
        keys, values = (decode_rows(*pair) for pair in zip(self._encodings, arrays, strict=True))
        both = np.concatenate((keys.swapaxes(1, 2), values), 1).reshape(-1, self.in_features)
        return both[rows.start - first * self._size : rows.stop - first * self._size]


class LatentProjection(Linear):
    """The weight from latents to all heads' keys and values, [heads * (nope_dim + value_dim), rank], applied per head
    to queries and outputs. It stays in the model's dtype."""

    is_quantizable = takes_adapter = False
    packed: Any = None  #: weights of queries and of outputs, with kernels

    def __init__(self, latent: LatentConfig, heads: Share, *, dtype: DType, device: str) -> None:
        self._num_heads, self._nope_dim, self.latent = heads.size, latent.nope_dim, latent
        outputs = heads.of_size(latent.nope_dim + latent.value_dim)
        super().__init__(latent.rank, outputs, bias=False, dtype=dtype, device=device)

    def pack(self, device: str = "cpu") -> None:
        if (parts := self.stored) is not None:
            self.stored, self.weight = None, parts.decode(self.dtype, device)
        library = panel_kernels(self.dtype) if device == "cpu" else None
        if library is not None:
            both = self._parts(as_numpy(self.weight))
            self.packed = _Packed(HeadWeights(each, library, is_compact=self.is_compact) for each in both)
            self.weight = None

    def packed_bytes(self) -> int:
        return self.out_features * self.in_features * int(self.dtype.itemsize)

    def queries(self, q: Array, rope_dim: int) -> Array:
        """Turn queries of keys, [num_tokens, heads, nope_dim + rope_dim], into [num_tokens, heads, rank + rope_dim]."""
        return self._multiply(0, q, rope_dim)

    def values(self, latents: Array) -> Array:
        """Turn sums of latents, [num_tokens, heads, rank], into those of values, [num_tokens, heads, value_dim]."""
        return self._multiply(1, latents, 0)

    def _multiply(self, part: int, x: Any, num_copied: int) -> Array:
        if isinstance(self.packed, _Packed):
            return self.packed[part].product(x, num_copied)
        import torch

        end, weight = x.shape[-1] - num_copied, self.weight if self.packed is None else self.packed.rows(slice(None))
        return torch.cat((torch.einsum("thi,hoi->tho", x[..., :end], self._parts(weight)[part]), x[..., end:]), -1)

    def _parts(self, weight: Array) -> tuple[Array, Array]:
        """Return the weights of queries and of outputs: [heads, rank, nope_dim] and [heads, value_dim, rank]."""
        heads = weight.reshape(self._num_heads, -1, self.in_features)
        return heads[:, : self._nope_dim].swapaxes(1, 2), heads[:, self._nope_dim :]


class LatentAttention(Module):
    """Attention in place of a decoder layer's. Queries may come from a latent of their own."""

    def __init__(self, config: ModelConfig, split: ModelSplit, index: int, **factory: Any) -> None:
        latent, hidden, bias = config.latent, config.hidden_size, config.qkv_bias
        assert latent is not None
        assert config.rope is not None
        self.index, self.latent, self.is_interleaved = index, latent, config.rope.is_interleaved
        self.query_shape = (split.num_heads, latent.nope_dim + latent.rope_dim)
        q, values = (split.heads.of_size(size) for size in (self.query_shape[1], latent.value_dim))
        if latent.query_rank:
            self.q_a_proj = Linear(hidden, latent.query_rank, bias=bias, **factory)
            self.q_a_layernorm = RMSNorm(latent.query_rank, _EPS, **factory)
            self.q_b_proj = Linear(latent.query_rank, q, bias=False, **factory)
        else:
            self.q_proj = Linear(hidden, q, bias=False, **factory)
        self.kv_a_proj_with_mqa = Linear(hidden, latent.rank + latent.rope_dim, bias=bias, **factory)
        self.kv_a_layernorm = RMSNorm(latent.rank, _EPS, **factory)
        self.kv_b_proj = LatentProjection(latent, split.heads, **factory)
        self.o_proj = Linear(values, hidden, bias=config.attention_out_bias, group=split.group, **factory)

    def __call__(self, x: Array, rotation: Rotation, attend: Attend, rows: Array | None) -> Array:
        latent, norm = self.latent, self.kv_a_layernorm
        q = self.q_b_proj(self.q_a_layernorm(self.q_a_proj(x))) if latent.query_rank else self.q_proj(x)
        q, k = q.reshape(len(x), *self.query_shape), self.kv_a_proj_with_mqa(x)
        q = ops.norm_latents(q, k, norm.weight, *rotation, norm.eps, self.is_interleaved)
        out = attend(self.index, self.kv_b_proj.queries(q, latent.rope_dim), k[:, None], None)
        values = self.kv_b_proj.values(select_rows(out, rows))
        return self.o_proj(values.reshape(len(values), self.query_shape[0] * latent.value_dim))
