"""How many KV blocks there is room for, and what the rest of the memory is for."""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass
from pathlib import Path

from quire.config import EngineConfig, format_size

logger = logging.getLogger("quire")

_SHARE_OF_FREE = {"cpu": 0.5, "cuda": 0.9}  # a CPU's memory is everybody's; a GPU's is ours
_SWAP_SPACE = 4 * 2**30  # where there is a swap tier and nobody said how large
_ACTIVATIONS = 512 * 2**20  # left for activations, logits and the allocator


def free_memory(device: str) -> int:
    """Bytes that a new tensor may take on this device now, a container's limit counted in."""
    if device == "cuda":
        import torch

        return int(torch.cuda.mem_get_info()[0])
    available = _available_memory()
    for limit_file, usage_file in (
        ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"),
        ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.usage_in_bytes"),
    ):
        try:
            limit, usage = int(Path(limit_file).read_text()), int(Path(usage_file).read_text())
        except (OSError, ValueError):
            continue
        available = min(available, max(0, limit - usage))
    return available


def _available_memory() -> int:
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2


@dataclass(frozen=True)
class PoolPlan:
    """The size of the KV pool and the longest sequence that it allows."""

    num_blocks: int
    block_size: int
    block_bytes: int
    max_model_len: int


def plan_pool(
    config: EngineConfig,
    *,
    block_bytes: int,
    model_max_len: int,
    weight_bytes: int,
    device: str,
    num_pinned_tokens: int = 0,
    memory_share: float = 1.0,
    bytes_to_come: int = 0,
) -> PoolPlan:
    """Decide the pool's size, and log it.

    `num_kv_blocks` is taken exactly; `kv_cache_memory` is filled; else a share of what is free (times `memory_share`,
    where several engines share the device), and no more than `max_num_seqs` sequences of full length can use.

    Args:
        bytes_to_come: of memory that is free now and will not be: for weights that are still being loaded.

    Raises:
        ValueError: `max_model_len` is longer than the model allows, or not even one block fits.
    """
    if config.max_model_len is not None and config.max_model_len > model_max_len:
        raise ValueError(f"max_model_len={config.max_model_len} is more than the model's {model_max_len} positions")
    wanted_len = config.max_model_len or model_max_len
    free = max(0, free_memory(device) - bytes_to_come)
    num_pinned = num_pinned_tokens // config.block_size
    if config.num_kv_blocks is not None:
        num_blocks = config.num_kv_blocks
    elif config.kv_cache_memory is not None:
        num_blocks = config.kv_cache_memory // block_bytes
        if num_blocks < 1:
            raise ValueError(
                f"kv_cache_memory={format_size(config.kv_cache_memory)} holds no block: one takes "
                f"{format_size(block_bytes)}"
            )
    else:
        room = int(max(0, free - _ACTIVATIONS) * _SHARE_OF_FREE[device] * memory_share)
        usable = config.max_num_seqs * -(-wanted_len // config.block_size) + num_pinned
        num_blocks = min(room // block_bytes, usable)
    capacity = (num_blocks - num_pinned) * config.block_size
    if capacity < 2:
        raise ValueError(
            f"there is no room for a KV pool: {format_size(free)} free on {device}, {format_size(block_bytes)} a "
            f"block, {num_pinned} blocks pinned; free memory, set kv_cache_memory, or use a smaller model or dtype"
        )
    if num_blocks * block_bytes > free:  # only where its size was given
        raise ValueError(
            f"a KV pool of {format_size(num_blocks * block_bytes)} does not fit: {format_size(free)} are free on "
            f"{device}; lower num_kv_blocks or kv_cache_memory"
        )
    plan = PoolPlan(num_blocks, config.block_size, block_bytes, min(wanted_len, capacity))
    logger.info(
        "memory: weights %s, KV pool %s (%d blocks of %d, or %d tokens at %s), %s left free; max_model_len %d%s",
        format_size(weight_bytes),
        format_size(num_blocks * block_bytes),
        num_blocks,
        config.block_size,
        num_blocks * config.block_size,
        format_size(block_bytes / config.block_size),
        format_size(max(0, free - num_blocks * block_bytes)),
        plan.max_model_len,
        " (capped to the pool)" if plan.max_model_len < wanted_len else "",
    )
    return plan


def plan_swap_slots(
    config: EngineConfig, plan: PoolPlan, *, device: str, memory_share: float = 1.0, bytes_to_come: int = 0
) -> int:
    """How many blocks the swap tier holds; 0 where there is none.

    `swap_space` is filled with blocks. By default it is 4 GiB, but no more than `max_num_seqs` sequences of full length
    can use, and in host memory no more than half of what is free (times `memory_share`).

    Raises:
        ValueError: `swap_space` holds no block or is not to be had, or there is no tier for options that are about it.
    """
    if not config.has_swap_tier(device):
        return 0
    pool_bytes = plan.num_blocks * plan.block_bytes
    taken = pool_bytes + bytes_to_come if device == "cpu" else 0  # the pool takes its share with use
    free = max(0, free_memory("cpu") - taken)
    if config.swap_space is None:
        room = _SWAP_SPACE
        if config.swap_dir is None:
            room = min(room, int(free * _SHARE_OF_FREE["cpu"] * memory_share))
        usable = config.max_num_seqs * -(-plan.max_model_len // plan.block_size)
        return min(room // plan.block_bytes, usable)
    if config.swap_space < plan.block_bytes:
        raise ValueError(
            f"swap_space={format_size(config.swap_space)} holds no block: one takes {format_size(plan.block_bytes)}"
        )
    if config.swap_dir is None and config.swap_space > free:
        raise ValueError(
            f"swap_space={format_size(config.swap_space)} does not fit: {format_size(free)} of host memory are free "
            "beside the KV pool; lower it, or give swap_dir"
        )
    return config.swap_space // plan.block_bytes
