"""Sequences over a paged cache and plain attention over each one alone, the reference of every backend."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch

from quire.attention.interface import AttentionBackend, AttentionBatch, KVLayout
from quire.attention.torch_attention import TorchAttention

NUM_LAYERS = 2
MakeBackend = Callable[[torch.Tensor, KVLayout, int], AttentionBackend]


def naive(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """Attend in float64. q: [queries, heads, dim], a sequence's last ones; k, v: [length, kv_heads, dim], complete."""
    q, k, v = (x.double() for x in (q, k, v))
    groups = q.shape[1] // k.shape[1]
    out = torch.empty_like(q)
    for i in range(len(q)):
        seen = len(k) - len(q) + i + 1
        for head in range(q.shape[1]):
            weights = (k[:seen, head // groups] @ q[i, head] * q.shape[-1] ** -0.5).softmax(0)
            out[i, head] = weights @ v[:seen, head // groups]
    return out


class World:
    """Sequences with random K and V, partly cached, in blocks scattered over the pool."""

    def __init__(
        self, lens: list[tuple[int, int]], *, block_size: int, num_kv_heads: int, groups: int, head_dim: int, seed: int,
        dtype: torch.dtype = torch.float32, device: str = "cpu", num_shared_blocks: int = 0,
        make: MakeBackend = TorchAttention, past_end: float = 0.0, is_strided: bool = False,
    ) -> None:  # fmt: skip
        self.make, self.is_strided = make, is_strided
        self.lens = lens  # (context, queries)
        self.generator = torch.Generator().manual_seed(seed)
        self.layout = KVLayout(NUM_LAYERS, num_kv_heads, block_size, head_dim)
        self.num_heads = num_kv_heads * groups
        self.dtype, self.device = dtype, device
        needed = [-(-(context + queries) // block_size) for context, queries in lens]
        order = torch.randperm(sum(needed) + 3, generator=self.generator).tolist()
        # As in the engine: slots past a sequence's end are finite, and free blocks hold anything.
        self.cache = torch.full(self.layout.shape(len(order)), torch.nan, dtype=dtype, device=device)
        self.tables = np.full((len(lens), max(needed) + 2), order.pop(), dtype=np.int32)
        shared: list[int] = []
        for i, count in enumerate(needed):
            own = [order.pop() for _ in range(count)]
            num_shared = min(num_shared_blocks, lens[i][0] // block_size)
            shared.extend(own[len(shared) : num_shared])
            own[:num_shared] = shared[:num_shared]
            self.tables[i, :count] = own
            self.cache[own] = past_end
        self.shared = [min(num_shared_blocks, context // block_size) * block_size for context, _ in lens]
        self.common = self._rows(num_shared_blocks * block_size)

    def _random(self, *shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=self.generator).to(self.dtype).to(self.device)

    def _rows(self, count: int) -> torch.Tensor:
        return self._random(NUM_LAYERS, 2, count, self.layout.num_kv_heads, self.layout.head_dim)

    def check(self, tolerance: float, *, with_padding: bool = False) -> None:
        size = self.layout.block_size
        contents = []  # of each sequence, all layers
        for i, (context, queries) in enumerate(self.lens):
            kv = self._rows(context + queries)
            kv[:, :, : self.shared[i]] = self.common[:, :, : self.shared[i]]
            contents.append(kv)
            for at in range(context):
                self.cache[self.tables[i, at // size], :, :, :, at % size] = kv[:, :, at]
        query_lens = np.array([queries for _, queries in self.lens])
        starts = np.concatenate([[0], np.cumsum(query_lens)])
        slots = np.concatenate(
            [
                self.tables[i, np.arange(context, context + queries) // size].astype(np.int64) * size
                + np.arange(context, context + queries) % size
                for i, (context, queries) in enumerate(self.lens)
            ]
        )
        if with_padding:  # the first token of the batch's last sequence, whose K and V are not stored
            slots[starts[-2]] = -1
            before = self.cache.clone()
        attention = self.make(self.cache, self.layout, self.num_heads)
        attention.plan(AttentionBatch(starts, np.array([sum(pair) for pair in self.lens]), self.tables, slots))
        for layer in range(NUM_LAYERS):
            q = self._random(int(starts[-1]), self.num_heads, self.layout.head_dim)
            new = [kv[layer, :, context:] for kv, (context, _) in zip(contents, self.lens, strict=True)]
            k = torch.cat([kv[0] for kv in new])
            v = torch.cat([kv[1] for kv in new])
            if self.is_strided:  # slices of one product's output, as in models
                heads = (q.shape[1], k.shape[1], v.shape[1])
                q, k, v = torch.cat((q, k, v), dim=1).split(heads, dim=1)
            out = attention.attend(layer, q, k, v)
            assert out.shape == q.shape
            assert out.dtype == q.dtype
            for i in range(len(self.lens) - with_padding):
                own = slice(int(starts[i]), int(starts[i + 1]))
                expected = naive(q[own], contents[i][layer, 0], contents[i][layer, 1])
                torch.testing.assert_close(out[own].double(), expected, rtol=tolerance, atol=tolerance)
            written = self.cache[:, layer].transpose(2, 3).reshape(-1, 2, size, *new[0].shape[2:])
            for i, (context, queries) in enumerate(self.lens):
                for at in range(context, context + queries - 0):
                    token = int(starts[i]) + at - context
                    if slots[token] >= 0:
                        found = written[self.tables[i, at // size], :, at % size]
                        assert torch.equal(found, contents[i][layer, :, at]), "K or V is not where it belongs"
        if with_padding:
            last = self.tables[-1, self.lens[-1][0] // size], self.lens[-1][0] % size
            now = self.cache[last[0], :, :, :, last[1]]
            assert torch.equal(now, before[last[0], :, :, :, last[1]]), "padding was written"


def check_reading_what_another_writes(make: MakeBackend) -> None:
    """Within a layer all writes precede all reads: a sequence may read another's writes of the same step."""
    layout = KVLayout(1, 1, 4, 8)
    cache = torch.zeros(layout.shape(4))
    attention = make(cache, layout, 2)
    generator = torch.Generator().manual_seed(3)
    q, k, v = (torch.randn(6, heads, 8, generator=generator) for heads in (2, 1, 1))
    # The second sequence has block 0, which the first one fills in this step, and one token of its own.
    tables = np.array([[0, 1], [0, 2]], dtype=np.int32)
    for order in ([0, 1], [1, 0]):
        cache.zero_()
        if order == [0, 1]:
            rows, starts = [0, 1, 2, 3, 4, 5], np.array([0, 5, 6])
            slots = np.array([0, 1, 2, 3, 4, 8])
        else:
            rows, starts = [5, 0, 1, 2, 3, 4], np.array([0, 1, 6])
            slots = np.array([8, 0, 1, 2, 3, 4])
        attention.plan(AttentionBatch(starts, np.array([5, 5]), tables[order], slots))
        out = attention.attend(0, q[rows], k[rows], v[rows])
        inverse = np.argsort(rows)
        torch.testing.assert_close(out[inverse[:5]].double(), naive(q[:5], k[:5], v[:5]), rtol=1e-5, atol=1e-5)
        seen = [0, 1, 2, 3, 5]
        torch.testing.assert_close(out[inverse[5:]].double(), naive(q[5:], k[seen], v[seen]), rtol=1e-5, atol=1e-5)
