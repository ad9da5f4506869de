"""Caches full of random bytes, transfers written short, and links waited for."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from quire.attention.interface import KVLayout
from quire.outputs import BlockTransfer, TransferReport
from quire.runner.kv_cache import KVCache
from quire.tiers.disk_space import DiskSpace
from quire.tiers.host_space import HostSpace
from quire.tiers.link import Link
from quire.tiers.swap_space import SwapSpace

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA"))]
NAMESPACE = bytes(range(32))
LAYOUT = KVLayout(num_layers=2, num_kv_heads=3, block_size=4, head_dim=5)


def make_cache(
    num_blocks: int, layout: KVLayout = LAYOUT, dtype: torch.dtype = torch.float32, device: str = "cpu", seed: int = 0
) -> KVCache:
    """Every bit pattern, numbers or not."""
    cache = KVCache(num_blocks, layout, dtype, torch.device(device))
    generator = torch.Generator().manual_seed(seed)
    noise = torch.randint(0, 256, (num_blocks, layout.block_bytes(dtype.itemsize)), generator=generator)
    as_bytes(cache).copy_(noise.to(torch.uint8))
    return cache


def as_bytes(cache: KVCache) -> torch.Tensor:
    """[num_blocks, block_bytes], the cache's own memory."""
    return cache.tensor.view(len(cache.tensor), -1).view(torch.uint8)


def make_space(kind: str, directory: Path, num_slots: int, block_bytes: int, pinned: bool = False) -> SwapSpace:
    if kind == "host":
        return HostSpace(num_slots, block_bytes, pinned)
    return DiskSpace(directory, num_slots, block_bytes, NAMESPACE)


def key(content: int) -> bytes:
    return content.to_bytes(32, "little")


def save(block: int, slot: int, content: int | None = None, op_id: int = 0) -> BlockTransfer:
    return BlockTransfer(op_id, "save", block, slot, key(block if content is None else content))


def load(slot: int, block: int, content: int, op_id: int = 0) -> BlockTransfer:
    return BlockTransfer(op_id, "load", slot, block, key(content))


def drain(link: Link) -> list[TransferReport]:
    """All reports, once nothing is outstanding."""
    reports = []
    while link.num_outstanding:
        reports += link.poll(wait=True)
    return reports


def move(link: Link, *transfers: BlockTransfer) -> list[TransferReport]:
    link.submit(transfers)
    return drain(link)
