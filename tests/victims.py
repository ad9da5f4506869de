"""Victims of preemption, and deciders that plan for them without a scheduler."""

from __future__ import annotations

from collections.abc import Iterable

from quire.config import SchedulerConfig
from quire.core.decisions.costs import EMPTY_STEP, Costs, StepShape
from quire.core.decisions.load_or_compute import LoadOrCompute, Victim
from quire.core.decisions.step_budget import StepBudget
from quire.core.kv_cache_manager import KVCacheManager
from quire.core.request import Request
from quire.core.swap_manager import SwapManager
from quire.core.transfers import Transfers
from quire.sampling_params import SamplingParams

BLOCK = 16
BLOCK_BYTES = 1000


class QueuedTransfers(Transfers):
    """Transfers that wait on each link."""

    def __init__(self, queued: int) -> None:
        super().__init__()
        self.queued = queued

    def num_queued(self, tier: str, *, is_waited_for: bool = False) -> int:
        return self.queued


def decider_of(
    costs: Costs | None,
    *,
    beside: StepShape = EMPTY_STEP,
    block_size: int = BLOCK,
    block_bytes: int = BLOCK_BYTES,
    chunk: int = 512,
    queued: int = 0,
) -> LoadOrCompute:
    """A decider that expects no repeated preemption."""
    config = SchedulerConfig(
        num_blocks=1024, block_size=block_size, block_bytes=block_bytes, max_num_batched_tokens=chunk, max_model_len=64
    )
    swap = SwapManager(KVCacheManager(1024, block_size, True), 0)
    swap.transfers = QueuedTransfers(queued)
    decider = LoadOrCompute(config, swap, costs, StepBudget(config, costs))
    decider.begin_step(beside)
    preempt_again(decider, 0, of=10**6)
    return decider


def preempt_again(decider: LoadOrCompute, count: int, of: int = 64) -> None:
    """Report this share of the latest preemptions as repeated."""
    for at in range(min(of, 64)):
        decider.evictions.observe_preemption(is_repeated=at < count)


def victim_of(
    num_tokens: int = 160, *, name: str = "r", width: int = 1, num_shared: int = 0, saved: Iterable[int] = (),
    free_slots: int = 10_000,
) -> Victim:  # fmt: skip
    """A victim with `saved` blocks in the swap tier, and the first `num_shared` shared with others."""
    full = num_tokens // BLOCK
    kept = set(saved)
    unsaved = [at >= num_shared and at not in kept for at in range(full)]
    return Victim(Request(name, [1], SamplingParams(n=width)), num_tokens, min(num_shared, full), unsaved, free_slots)
