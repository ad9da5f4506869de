"""Caches of random bytes, compact transfers, and waits for links."""

from __future__ import annotations

import itertools
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from quire.attention.interface import KVLayout
from quire.ops.arrays import as_tensor
from quire.outputs import BlockTransfer, TransferReport
from quire.runner.kv_cache import KVCache
from quire.tiers.disk_space import DiskSpace
from quire.tiers.pacing import PieceSize
from quire.tiers.streams import CpuStream
from quire.tiers.swap_space import HostSpace, SwapSpace
from quire.tiers.transfer_worker import TransferWorker

DEVICES = [
    "cpu",
    "cpu:0",  # a tensor in main memory, with `TensorStream`
    pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")),
]
NAMESPACE = bytes(range(32))
LAYOUT = KVLayout.uniform(num_layers=2, num_kv_heads=3, block_size=4, head_dim=5)

_op_ids = itertools.count(1_000_000)  # for tests that do not depend on it


class TensorStream(CpuStream):
    """In place of `CudaStream`, for tensors in main memory."""

    def __init__(self, device: torch.device) -> None:
        super().__init__(time.monotonic)

    def new_staging(self, num_blocks: int, block_bytes: int) -> Any:
        return torch.empty((num_blocks, block_bytes), dtype=torch.uint8)


def make_cache(
    num_blocks: int, layout: KVLayout = LAYOUT, dtype: torch.dtype = torch.float32, device: str = "cpu", seed: int = 0
) -> KVCache:
    """Make a cache with all bit patterns, including NaNs."""
    cache = KVCache(num_blocks, layout, dtype, device)
    generator = torch.Generator().manual_seed(seed)
    noise = torch.randint(0, 256, (num_blocks, layout.block_bytes(dtype.itemsize)), generator=generator)
    as_bytes(cache).copy_(noise.to(torch.uint8))
    return cache


def as_bytes(cache: KVCache) -> torch.Tensor:
    """View the cache's memory as [num_blocks, block_bytes]."""
    return as_tensor(cache.blocks).view(len(cache.blocks), -1).view(torch.uint8)


def make_space(kind: str, directory: Path, num_slots: int, block_bytes: int, pinned: bool = False) -> SwapSpace:
    if kind == "host":
        return HostSpace(num_slots, block_bytes, pinned)
    return DiskSpace(directory, num_slots, block_bytes, NAMESPACE)


def key(content: int) -> bytes:
    return content.to_bytes(32, "little")


def save(block: int, slot: int, content: int | None = None, op_id: int | None = None) -> BlockTransfer:
    op_id = next(_op_ids) if op_id is None else op_id
    return BlockTransfer(op_id, "save", block, slot, key(block if content is None else content))


def load(slot: int, block: int, content: int, op_id: int | None = None) -> BlockTransfer:
    return BlockTransfer(next(_op_ids) if op_id is None else op_id, "load", slot, block, key(content))


def drain(link: TransferWorker) -> list[TransferReport]:
    """Return all reports once nothing is outstanding."""
    reports = []
    while link.num_outstanding:
        reports += link.poll(wait=True)
    return reports


def move(link: TransferWorker, *transfers: BlockTransfer) -> list[TransferReport]:
    """Run these transfers alone and return their reports, exactly one per transfer."""
    link.submit(transfers)
    reports = drain(link)
    told = sorted(op_id for report in reports for op_id in report.op_ids)
    assert told == sorted(transfer.op_id for transfer in transfers)
    return reports


def joined(reports: Sequence[TransferReport]) -> list[TransferReport]:
    """Merge consecutive reports of one kind; no op_id occurs twice."""
    told = [op_id for report in reports for op_id in report.op_ids]
    assert len(told) == len(set(told))
    rows = [(kind, list(row)) for kind, row in itertools.groupby(reports, key=lambda report: report.kind)]
    return [
        TransferReport(
            kind,
            op_ids=[op_id for report in row for op_id in report.op_ids],
            num_bytes=sum(report.num_bytes for report in row),
            copy_s=sum(report.copy_s for report in row),
            failed=[op_id for report in row for op_id in report.failed],
        )
        for kind, row in rows
    ]


def fix_piece_size(monkeypatch: pytest.MonkeyPatch, num_blocks: int) -> None:
    """Give every piece this many blocks, regardless of time; for tests of events within a piece."""
    monkeypatch.setattr(PieceSize, "num_blocks", property(lambda self: num_blocks))
