"""Sequences over a paged cache and plain attention over each one alone, the reference of every backend."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch

from quire.attention.interface import AttentionBackend, AttentionBatch, KVLayout, LayerAttention
from quire.attention.torch_attention import TorchAttention

MakeBackend = Callable[[torch.Tensor, KVLayout], AttentionBackend]


def naive(
    layer: LayerAttention, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, sinks: torch.Tensor | None = None
) -> torch.Tensor:
    """Attend in float64. q: [queries, heads, dim], a sequence's last ones; k, v: [length, kv_heads, dim], complete."""
    q, k, v = (x.double() for x in (q, k, v))
    groups = layer.num_heads // layer.num_kv_heads
    out = torch.empty(len(q), layer.num_heads, layer.value_dim, dtype=torch.float64, device=q.device)
    for i in range(len(q)):
        end = len(k) - len(q) + i + 1
        seen = slice(max(0, end - (layer.window or end)), end)
        queries = q[i].view(layer.num_kv_heads, groups, -1)
        scores = torch.einsum("hgd,nhd->hgn", queries, k[seen]) * layer.scale
        if layer.softcap:
            scores = layer.softcap * torch.tanh(scores / layer.softcap)
        if sinks is not None:
            scores = torch.cat((scores, sinks.double().view(layer.num_kv_heads, groups, 1)), dim=2)
        probabilities = scores.softmax(2)[..., : end - seen.start]
        out[i] = torch.einsum("hgn,nhd->hgd", probabilities, v[seen]).reshape(out[i].shape)
    return out


class World:
    """Sequences with random K and V, partly cached, in blocks scattered over the pool. The first layer has the options;
    the second is plain, and the third reads the first one's KV."""

    def __init__(
        self, lens: list[tuple[int, int]], *, block_size: int, num_kv_heads: int, groups: int, head_dim: int, seed: int,
        dtype: torch.dtype = torch.float32, device: str = "cpu", num_shared_blocks: int = 0,
        make: MakeBackend = TorchAttention, past_end: float = 0.0, is_strided: bool = False, has_sinks: bool = False,
        **options: Any,
    ) -> None:  # fmt: skip
        self.make, self.is_strided, self.has_sinks = make, is_strided, has_sinks
        self.lens = lens  # (context, queries)
        self.generator = torch.Generator().manual_seed(seed)
        first = LayerAttention(num_kv_heads * groups, num_kv_heads, head_dim, **options)
        plain = LayerAttention(num_kv_heads * groups, num_kv_heads, head_dim)
        self.layout = KVLayout([first, plain, replace(first, reads_layer=0)], block_size)
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
        self.num_shared = [min(num_shared_blocks, context // block_size) * block_size for context, _ in lens]
        self.contents = [self._contents(index, num_shared_blocks * block_size) for index in range(2)]

    def _random(self, *shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=self.generator).to(self.dtype).to(self.device)

    def _contents(self, index: int, num_common: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """Return K and V of each sequence, [length, num_kv_heads, dim]."""
        layer = self.layout.layers[index]
        sizes = (layer.head_dim, layer.value_dim)
        common = [self._random(num_common, layer.num_kv_heads, size) for size in sizes]
        contents = []
        for (context, queries), num_shared in zip(self.lens, self.num_shared, strict=True):
            k, v = (self._random(context + queries, layer.num_kv_heads, size) for size in sizes)
            k[:num_shared], v[:num_shared] = common[0][:num_shared], common[1][:num_shared]
            contents.append((k, k[..., : layer.value_dim] if layer.has_latent else v))
        return contents

    def _slots(self, i: int, start: int, end: int) -> tuple[np.ndarray, np.ndarray]:
        blocks, offsets = np.divmod(np.arange(start, end), self.layout.block_size)
        return self.tables[i, blocks].astype(np.int64), offsets

    def check(self, tolerance: float, *, with_padding: bool = False) -> None:
        size = self.layout.block_size
        for index, contents in enumerate(self.contents):
            for i, (context, _) in enumerate(self.lens):
                blocks, offsets = self._slots(i, 0, context)
                for part, given in zip(self.layout.parts(self.cache, index), contents[i], strict=True):
                    part[blocks, :, offsets] = given[:context]
        starts = np.concatenate([[0], np.cumsum([queries for _, queries in self.lens])])
        places = [self._slots(i, context, context + queries) for i, (context, queries) in enumerate(self.lens)]
        slots = np.concatenate([blocks * size + offsets for blocks, offsets in places])
        if with_padding:  # the first token of the batch's last sequence, whose K and V are not stored
            slots[starts[-2]] = -1
            before = self.cache.clone()
        attention = self.make(self.cache, self.layout)
        attention.plan(AttentionBatch(starts, np.array([sum(pair) for pair in self.lens]), self.tables, slots))
        for index in range(len(self.layout.layers)):
            self._check_layer(attention, index, starts, tolerance, len(self.lens) - with_padding)
        for index, contents in enumerate(self.contents):
            for i, (context, _) in enumerate(self.lens[: len(self.lens) - with_padding]):
                for part, given in zip(self.layout.parts(self.cache, index), contents[i], strict=True):
                    assert torch.equal(part[places[i][0], :, places[i][1]], given[context:]), "K or V is elsewhere"
        if with_padding:
            block, offset = places[-1][0][0], places[-1][1][0]
            for index in range(2):
                pairs = zip(self.layout.parts(self.cache, index), self.layout.parts(before, index), strict=True)
                assert all(torch.equal(now[block, :, offset], then[block, :, offset]) for now, then in pairs)

    def _check_layer(
        self, attention: AttentionBackend, index: int, starts: np.ndarray, tolerance: float, num_checked: int
    ) -> None:
        layer = self.layout.layers[index]
        contents = self.contents[layer.reads_layer or 0 if index == 2 else index]
        q = self._random(int(starts[-1]), layer.num_heads, layer.head_dim)
        sinks = self._random(layer.num_heads) if self.has_sinks and index != 1 else None
        new = [(k[context:], v[context:]) for (k, v), (context, _) in zip(contents, self.lens, strict=True)]
        k, v = (torch.cat(each) for each in zip(*new, strict=True))
        if self.is_strided and layer.head_dim == layer.value_dim:  # slices of one product's output, as in models
            heads = (q.shape[1], k.shape[1], v.shape[1])
            q, k, v = torch.cat((q, k, v), dim=1).split(heads, dim=1)
        given = (None if index == 2 else k, None if index == 2 or layer.has_latent else v)
        out = attention.attend(index, q, *given, sinks)
        assert out.shape == (len(q), layer.num_heads, layer.value_dim)
        assert out.dtype == q.dtype
        for i in range(num_checked):
            own = slice(int(starts[i]), int(starts[i + 1]))
            expected = naive(layer, q[own], *contents[i], sinks)
            torch.testing.assert_close(out[own].double(), expected, rtol=tolerance, atol=tolerance)


def check_reading_what_another_writes(make: MakeBackend) -> None:
    """Within a layer all writes precede all reads: a sequence may read another's writes of the same step."""
    layout = KVLayout.uniform(1, 1, 4, 8, groups=2)
    cache = torch.zeros(layout.shape(4))
    attention = make(cache, layout)
    close = partial(torch.testing.assert_close, rtol=1e-5, atol=1e-5)
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
        close(out[inverse[:5]].double(), naive(layout.layers[0], q[:5], k[:5], v[:5]))
        seen = [0, 1, 2, 3, 5]
        close(out[inverse[5:]].double(), naive(layout.layers[0], q[5:], k[seen], v[seen]))
