"""Decide whether a waiting request can run beside the running ones.

A request is admitted only where all its known tokens fit beside the known tokens of the running ones. While a running
request has been preempted `MAX_PREEMPTIONS` times, all of them have to fit at full length.

A few seats beyond `max_num_seqs` are for tenants that run no more than fit there, while other tenants are active: one
tenant's long or wide requests never take all seats.
"""

from __future__ import annotations

from collections.abc import Sequence as Seq

from quire.config import SchedulerConfig, num_spare_seats
from quire.core.decisions.recovery_policy import MAX_PREEMPTIONS
from quire.core.disk_tier import DiskTier
from quire.core.kv_cache_manager import KVCacheManager
from quire.core.request import Request, Sequence
from quire.core.request_queue import RequestQueue
from quire.core.swap_manager import SwapManager


class Admission:
    """Checks seats, pool room and document claims."""

    def __init__(self, config: SchedulerConfig, kv: KVCacheManager, swap: SwapManager, disk: DiskTier | None) -> None:
        self._config = config
        self.num_kept_free = config.watermark_blocks
        self._kv, self._swap, self._disk = kv, swap, disk

    def can_run(self, request: Request, queue: RequestQueue, num_reserved: int, *, is_passing: bool = False) -> bool:
        """Whether a waiting request can run now. One `is_passing` others leaves their seats alone, if it can."""
        if not request.is_settled:  # it may begin with blocks that everyone shares
            request.is_settled = True
            self._kv.share_public_prefix(request, self._swap.can_load)
        if not self._find_seats(request, queue, is_passing=is_passing):
            return False
        # Alone, its sequences run in turns if need be.
        return not queue.running or self.has_room(request, queue.running, num_reserved)

    def _find_seats(self, request: Request, queue: RequestQueue, *, is_passing: bool) -> bool:
        width, num_spare = request.width, num_spare_seats(self._config.max_num_seqs)
        is_free = queue.num_running_seqs - queue.num_spare_seqs + width <= self._config.max_num_seqs
        is_wanted = (is_passing or not is_free) and len(queue.turns.num_open) > 1
        num_used = max(queue.num_spare_seqs, queue.seats[request.tenant])
        request.is_spare = is_wanted and num_used + width <= num_spare
        return is_free or request.is_spare

    def must_wait_for_document(self, request: Request) -> bool:
        """Whether another process may be computing a document of the request. Asks for a claim on it."""
        return self._disk is not None and self._disk.must_wait(request)

    def room(self, num_reserved: int) -> int:
        """Return how many blocks new requests may use beside those that running sequences still need."""
        return self._kv.pool.num_available - num_reserved - self.num_kept_free

    def count_needed(self, request: Request) -> int:
        """Count the blocks for all known tokens of a waiting request, wherever their KV is."""
        first, *siblings = request.unfinished
        need = self._kv.blocks_for(len(first.token_ids)) + request.width - 1
        for sibling in siblings:  # resumed: they share the prompt alone
            need += self._kv.blocks_for(sibling.num_output_tokens)
        return need

    def has_room(self, request: Request, running: Seq[Request], num_reserved: int) -> bool:
        """Whether the pool has room for all known tokens of a waiting request beside the running ones."""
        room, need = self.room(num_reserved), self.count_needed(request)
        if need + (self._kv.num_state_records > 0) > room:  # a prefix and the rest may take one more by rounding
            first, kv = request.unfinished[0], self._kv
            found = kv.find_prefix(first)
            num_missing = kv.count_missing(first, len(found)) - self.count_coming(first, len(found))
            need += num_missing + kv.count_idle(found) - kv.blocks_for(len(first.token_ids))
        return need <= room and self._keeps_running(request, running)

    def count_coming(self, seq: Sequence, num_found: int) -> int:
        """Count the blocks after a cached prefix of `num_found` blocks that are being loaded already."""
        if seq.must_compute or not self._swap.transfers:
            return 0
        num_full = (len(seq.token_ids) - 1) // self._config.block_size
        return self._swap.count_loading(self._kv.keys_of(seq, num_full)[num_found:])

    def _keeps_running(self, request: Request, running: Seq[Request]) -> bool:
        """Whether requests that may not be preempted again still fit at full length."""
        together = [*running, request]
        is_after = bool(running) and running[0].order < request.order and running[0].tenant != request.tenant
        if not has_exhausted(together[is_after:]):  # the oldest is never preempted: it delays no other tenant
            return True
        left = self._kv.pool.num_blocks - sum(self._most_blocks(each) for each in together)
        if left < 0:
            return False
        held = {block for each in running for seq in each.unfinished for block in seq.block_table}
        return self._kv.pool.num_used - len(held) <= left  # pinned, or loaded ahead

    def _most_blocks(self, request: Request) -> int:
        """Return the most blocks that a request may use: two sequences that share a block may both allocate a copy."""
        longest = len(request.prompt_token_ids) + request.max_tokens
        return request.width * self._kv.blocks_for(longest) + request.width // 2


def has_exhausted(requests: Seq[Request]) -> bool:
    """Whether a request has been preempted `MAX_PREEMPTIONS` times for want of blocks."""
    for request in requests:  # noqa: SIM110 - asked in every step with waiting requests: a third of the time of `any`
        if request.num_preemptions - request.num_yields >= MAX_PREEMPTIONS:
            return True
    return False
