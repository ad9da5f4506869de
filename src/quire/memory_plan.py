"""Plan the memory: the sizes of the KV pool and of the swap tier."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from quire.config import BlockWindow, EngineConfig, format_size
from quire.system import memory

logger = logging.getLogger("quire")

_SHARE_OF_FREE = 0.5  # of main memory, which other programs share
_SWAP_SPACE = 4 * 2**30  # default size of a swap tier
_STEP_MEMORY = 512 * 2**20  # reserve for activations, logits and the allocator, where no step was measured


def free_memory(device: str) -> int:
    """Return the free bytes of a device, within the limits of this process."""
    if device == "cuda":
        import torch

        return int(torch.cuda.mem_get_info()[0])
    return memory.free_memory()


def _limit(config: EngineConfig, device: str, free: int, weight_bytes: int = 0) -> int:
    """Return the bytes that an engine may take beside its weights: on a GPU no more than its share, unless an option
    sizes the pool."""
    if device != "cuda" or config.sizes_pool:
        return free
    import torch

    return min(free, max(0, int(config.gpu_memory_utilization * torch.cuda.mem_get_info()[1]) - weight_bytes))


def check_room(
    config: EngineConfig, name: str, device: str, *, dtype: str, weight_bytes: int, block_bytes: int
) -> None:
    """Refuse a model whose weights and smallest KV pool exceed the free memory, before anything is loaded.

    Raises:
        ValueError: with both figures and the remedies. `config.check_memory` switches the check off.
    """
    pool_bytes = config.kv_cache_memory or (config.num_kv_blocks or 1) * block_bytes
    free = free_memory(device)
    limit = _limit(config, device, free)
    if not config.check_memory or weight_bytes + pool_bytes <= limit:
        return
    ways = _ways_to_shrink(config, dtype)
    raise ValueError(
        f"{name} does not fit: its weights in {dtype} take {format_size(weight_bytes)} and its KV pool at least "
        f"{format_size(pool_bytes)}, and {_describe_room(device, free, limit)}; use {', '.join(ways)} or free memory "
        "(--no-check-memory loads it anyway)"
    )


def _describe_room(device: str, free: int, limit: int) -> str:
    if limit < free:
        return f"gpu_memory_utilization allows {format_size(limit)} on {device}"
    return f"{format_size(free)} are free on {device}"


def _ways_to_shrink(config: EngineConfig, dtype: str) -> list[str]:
    ways = ["dtype bfloat16"] if dtype == "float32" else []
    if config.quantization != "int4":
        ways.append(f"quantization {'int8 or int4' if config.quantization == 'none' else 'int4'}")
    if config.sizes_pool:
        ways.append("a smaller KV pool")
    return [*ways, "a smaller model"]


@contextmanager
def explained_if_full(config: EngineConfig, what: str, *ways: str) -> Iterator[None]:
    """Raise ValueError, with figures and remedies, if a GPU has no memory left while the engine does `what`."""
    try:
        yield
    except Exception as error:
        if not memory.is_gpu_full(error):
            raise
        memory.release_gpu_memory(error)
        figures = ". ".join(str(error).split(". ")[:3])  # those of torch, without its advice
        shrink = _ways_to_shrink(config, config.dtype)
        raise ValueError(
            f"the GPU has no memory left to {what} ({figures}); use {', '.join([*ways, *shrink])}, or end other "
            "programs on it"
        ) from None


@dataclass(frozen=True)
class PoolPlan:
    """The size of the KV pool and the longest sequence that it allows."""

    num_blocks: int
    block_size: int
    block_bytes: int
    max_model_len: int
    window: BlockWindow | None = None  #: `num_blocks` is then the memory, in whole blocks

    @property
    def num_ids(self) -> int:
        return self.num_blocks if self.window is None else self.window.num_ids(self.num_blocks)

    @property
    def record_bytes(self) -> int:
        """Bytes of what other tiers store at once: a block, or a record of one with states."""
        return self.block_bytes if self.window is None else self.block_bytes // self.window.num_records

    def longest(self, num_pinned: int) -> int:
        """Return the tokens of the longest sequence beside so many pinned blocks."""
        if self.window is not None and self.window.has_states:
            num_pinned = self.window.room(num_pinned)
        room = self.num_blocks - num_pinned
        return (room if self.window is None else self.window.longest(room)) * self.block_size


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
    step_bytes: int | None = None,
    window: BlockWindow | None = None,
) -> PoolPlan:
    """Decide the pool's size and log it.

    `num_kv_blocks` is used exactly, `kv_cache_memory` is filled. By default the pool takes a share of the free memory,
    on a GPU what weights and a step leave of `gpu_memory_utilization` (times `memory_share`, for engines that share the
    device), but no more than `max_num_seqs` sequences of full length can use.

    Args:
        bytes_to_come: free memory that weights still to be loaded will take.
        step_bytes: memory of a step beside weights and KV, if measured.
        window: memory that blocks behind the model's windows need.

    Raises:
        ValueError: `max_model_len` exceeds the model's, or the memory is too small.
    """
    if config.max_model_len is not None and config.max_model_len > model_max_len:
        raise ValueError(f"max_model_len={config.max_model_len} is more than the model's {model_max_len} positions")
    wanted_len = config.max_model_len or model_max_len
    free = max(0, free_memory(device) - bytes_to_come)
    num_pinned = num_pinned_tokens // config.block_size
    step_bytes = _STEP_MEMORY if step_bytes is None else step_bytes
    limit = _limit(config, device, free, weight_bytes)
    room = int(max(0, limit - step_bytes) * (1.0 if device == "cuda" else _SHARE_OF_FREE) * memory_share)
    longest = -(-wanted_len // config.block_size)
    if window is not None and longest <= window.num_whole and not window.has_states:
        window = None
    usable = config.max_num_seqs * (longest if window is None else window.room(longest)) + num_pinned
    num_blocks = _num_blocks(config, block_bytes, room, usable)
    plan = PoolPlan(num_blocks, config.block_size, block_bytes, wanted_len, window)
    capacity = plan.longest(num_pinned)
    if capacity < 2:
        raise ValueError(
            f"there is no room for a KV pool: {_describe_room(device, free, limit)} beside the weights, a step takes "
            f"{format_size(step_bytes)}, a block {format_size(block_bytes)}, {num_pinned} blocks pinned; free memory, "
            f"{'raise gpu_memory_utilization' if limit < free else 'set kv_cache_memory'}, or use a smaller model or "
            "dtype"
        )
    if num_blocks * block_bytes > free:  # only if its size was given
        raise ValueError(
            f"a KV pool of {format_size(num_blocks * block_bytes)} does not fit: {format_size(free)} are free on "
            f"{device}; lower num_kv_blocks or kv_cache_memory"
        )
    plan = replace(plan, max_model_len=min(wanted_len, capacity))
    _log_plan(plan, weight_bytes, free, is_capped=plan.max_model_len < wanted_len)
    return plan


def _num_blocks(config: EngineConfig, block_bytes: int, room: int, usable: int) -> int:
    if config.num_kv_blocks is not None:
        return config.num_kv_blocks
    if config.kv_cache_memory is None:
        return min(room // block_bytes, usable)
    num_blocks = config.kv_cache_memory // block_bytes
    if num_blocks < 1:
        raise ValueError(
            f"kv_cache_memory={format_size(config.kv_cache_memory)} holds no block: "
            f"one takes {format_size(block_bytes)}"
        )
    return num_blocks


def _log_plan(plan: PoolPlan, weight_bytes: int, free: int, *, is_capped: bool) -> None:
    pool_bytes, token_bytes = plan.num_blocks * plan.block_bytes, plan.block_bytes / plan.block_size
    behind = ""
    if (window := plan.window) is not None:
        thin = format_size(token_bytes * window.thin / window.WHOLE)
        behind = f", {thin} behind the window of {window.tokens}"
        if window.has_states:
            state = format_size(plan.block_bytes * (1 - window.thin / window.WHOLE))
            token_bytes, behind = token_bytes * window.thin / window.WHOLE, f" and {state} per state"
    logger.info(
        "memory: weights %s, KV pool %s (%d blocks of %d, or %d tokens at %s%s), %s left free; max_model_len %d%s",
        format_size(weight_bytes),
        format_size(pool_bytes),
        plan.num_blocks,
        plan.block_size,
        plan.num_blocks * plan.block_size,
        format_size(token_bytes),
        behind,
        format_size(max(0, free - pool_bytes)),
        plan.max_model_len,
        " (capped to the pool)" if is_capped else "",
    )


def plan_swap_slots(
    config: EngineConfig, plan: PoolPlan, *, device: str, memory_share: float = 1.0, bytes_to_come: int = 0
) -> int:
    """Return the number of blocks in the swap tier; 0 without one.

    `swap_space` is filled with blocks. By default it is 4 GiB, but no more than `max_num_seqs` sequences of full length
    can use, and no more than half of the free host memory (times `memory_share`).

    Raises:
        ValueError: `swap_space` holds no block, or exceeds the free memory.
    """
    if not config.has_swap_tier(device):
        return 0
    pool_bytes = plan.num_blocks * plan.block_bytes
    taken = pool_bytes + bytes_to_come if device == "cpu" else 0  # the pool takes its memory with use
    free = max(0, free_memory("cpu") - taken)
    if config.swap_space is None:
        room = _SWAP_SPACE
        if config.swap_dir is None:
            room = min(room, int(free * _SHARE_OF_FREE * memory_share))
        num_state_records = plan.block_bytes // plan.record_bytes - 1
        usable = config.max_num_seqs * (-(-plan.max_model_len // plan.block_size) + num_state_records)
        return min(room // plan.record_bytes, usable)
    if config.swap_space < plan.block_bytes:
        raise ValueError(
            f"swap_space={format_size(config.swap_space)} holds no block: one takes {format_size(plan.block_bytes)}"
        )
    if config.swap_dir is None and config.swap_space > free:
        raise ValueError(
            f"swap_space={format_size(config.swap_space)} does not fit: {format_size(free)} of host memory are free "
            "beside the KV pool; lower it, or give swap_dir"
        )
    return config.swap_space // plan.record_bytes
