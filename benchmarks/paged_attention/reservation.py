"""Baselines that reserve contiguous KV memory, under the real scheduler.

`Orca` admits at every step and reserves memory for a request's whole life; a static batch also runs to its end before
the next one begins (FasterTransformer behind a batching front end). As in the paper's own baselines, memory comes from
a buddy allocator, so each sequence holds a power of two. Samples and beams share nothing. Copies between them and
padding cost no time here, which favours the baselines.
"""

from __future__ import annotations

from dataclasses import replace

from quire.config import SchedulerConfig
from quire.core.admission import Admission
from quire.core.kv_cache_manager import KVCacheManager
from quire.core.request import Request, Sequence
from quire.core.request_queue import RequestQueue
from quire.core.scheduler import Scheduler
from quire.core.swap_manager import SwapManager

#: Names in the figures. "paged" is the production scheduler.
SYSTEMS = ("paged", "oracle", "pow2", "max", "static")


def next_power_of_two(value: int) -> int:
    return 1 << (value - 1).bit_length()


def tokens_to_reserve(system: str, num_prompt: int, num_output: int, max_model_len: int) -> int:
    """Slots that a sequence needs before rounding by the allocator. Raises ValueError for an unknown system."""
    if system == "oracle":
        return num_prompt + num_output
    if system == "pow2":  # the output's length is known up to a factor of two
        return min(max_model_len, num_prompt + next_power_of_two(num_output))
    if system in ("max", "static"):
        return max_model_len
    raise ValueError(f"system={system!r} is not known; there are {', '.join(SYSTEMS)}")


class BuddyAllocator:
    """Contiguous pieces of `size` units. Each piece is a power of two and aligned to it; free halves merge again."""

    def __init__(self, size: int) -> None:
        self._free: dict[int, set[int]] = {1 << power: set() for power in range(size.bit_length())}
        self._sizes: dict[int, int] = {}  #: start -> size of the held pieces
        start = 0
        for piece in sorted(self._free, reverse=True):
            if size & piece:
                self._free[piece].add(start)
                start += piece

    @property
    def num_held(self) -> int:
        return sum(self._sizes.values())

    def allocate(self, num_units: int) -> int | None:
        """The start of a piece of at least `num_units`; None if none is free."""
        size = next_power_of_two(num_units)
        found = min((piece for piece in self._free if piece >= size and self._free[piece]), default=None)
        if found is None:
            return None
        start = min(self._free[found])
        self._free[found].remove(start)
        while found > size:  # keep the lower half
            found //= 2
            self._free[found].add(start + found)
        self._sizes[start] = size
        return start

    def release(self, start: int) -> None:
        size = self._sizes.pop(start)
        while (buddy := start ^ size) in self._free.get(size, ()):
            self._free[size].remove(buddy)
            start, size = min(start, buddy), 2 * size
        self._free[size].add(start)


class ReservingKVCacheManager(KVCacheManager):
    """A request holds one piece of memory per sequence from admission to its end. Block tables point into it."""

    def __init__(self, config: SchedulerConfig, system: str) -> None:
        super().__init__(config.num_blocks, config.block_size, enable_prefix_caching=False)
        self.memory = BuddyAllocator(config.num_blocks)
        self._system, self._max_model_len = system, config.max_model_len
        self._pieces: dict[str, list[int]] = {}

    @property
    def num_reserved_tokens(self) -> int:
        return self.memory.num_held * self.block_size

    def reserve(self, request: Request) -> bool:
        """Reserve memory for a request, once. False, with nothing changed, without room."""
        if request.request_id in self._pieces:
            return True
        num_prompt = len(request.prompt_token_ids)
        num_tokens = tokens_to_reserve(self._system, num_prompt, request.max_tokens, self._max_model_len)
        pieces: list[int] = []
        for _ in range(request.width):
            if (piece := self.memory.allocate(self.blocks_for(num_tokens))) is None:
                for each in pieces:
                    self.memory.release(each)
                return False
            pieces.append(piece)
        self._pieces[request.request_id] = pieces
        return True

    def free(self, seq: Sequence) -> int:
        """Release a sequence's blocks, and with the request's last one its memory."""
        num_freed = super().free(seq)
        if seq.finish_reason is not None and seq.request.unfinished == [seq]:
            for piece in self._pieces.pop(seq.request.request_id, ()):
                self.memory.release(piece)
        return num_freed


class ReservingAdmission(Admission):
    """Admits a request once its memory is reserved; with `is_static` only into a batch that forms in this step."""

    def __init__(self, scheduler: Scheduler, kv: ReservingKVCacheManager, *, is_static: bool) -> None:
        super().__init__(scheduler.config, kv, scheduler.swap, None)
        self._scheduler, self._reserving, self._is_static = scheduler, kv, is_static
        self._formed_in = 0  #: step of the latest batch

    def can_run(self, request: Request, queue: RequestQueue, num_reserved: int, *, is_passing: bool = False) -> bool:
        if self._is_static:
            if not queue.running:
                self._formed_in = self._scheduler.num_steps
            if self._formed_in != self._scheduler.num_steps:
                return False
        request.is_settled = True
        return self._find_seats(request, queue, is_passing=is_passing) and self._reserving.reserve(request)


def make_scheduler(system: str, config: SchedulerConfig) -> Scheduler:
    """The production scheduler, with the block manager and admission of a system."""
    if system == "paged":
        return Scheduler(config)
    kv = ReservingKVCacheManager(config, system)
    scheduler = Scheduler(replace(config, enable_prefix_caching=False), swap=SwapManager(kv))
    scheduler.planner = replace(
        scheduler.planner, admission=ReservingAdmission(scheduler, kv, is_static=system == "static")
    )
    return scheduler
