"""Whether the pool has room for a waiting request beside those that run.

A newcomer is let in only where all tokens that it knows fit beside what the running ones still need for theirs. Once
somebody has been preempted as often as anybody may be, everything that runs has to fit at full length.
"""

from __future__ import annotations

from collections.abc import Sequence as Seq

from quire.config import SchedulerConfig
from quire.core.decisions.recovery_interface import MAX_PREEMPTIONS
from quire.core.kv_cache_manager import KVCacheManager
from quire.core.request import Request, Sequence
from quire.core.swap_manager import SwapManager


class Admission:
    """Args:
    config: of the scheduler.
    kv: block tables and pool.
    swap: the tiers.
    """

    def __init__(self, config: SchedulerConfig, kv: KVCacheManager, swap: SwapManager) -> None:
        self._config = config
        self._kv = kv
        self._swap = swap

    def room(self, promised: int) -> int:
        """Blocks that newcomers may take.

        Args:
            promised: blocks that running sequences will need for tokens which they know already.
        """
        return self._kv.pool.num_available - promised - self._config.watermark_blocks

    def count_needed(self, request: Request) -> int:
        """Blocks for all tokens that a waiting request knows, wherever their KV is."""
        first, *siblings = request.unfinished
        need = self._kv.blocks_for(len(first.token_ids)) + request.width - 1
        for sibling in siblings:  # resumed: what follows the prompt is each one's own
            need += self._kv.blocks_for(sibling.num_output_tokens)
        return need

    def has_room(self, request: Request, running: Seq[Request], promised: int) -> bool:
        """Whether a waiting request can run with all the tokens that it knows, beside the running ones."""
        room, need = self.room(promised), self.count_needed(request)
        if need > room:
            first, pool = request.unfinished[0], self._kv.pool
            found = self._kv.find_prefix(first)
            need -= sum(1 for block in found if pool.ref_counts[block] > 0) + self.count_coming(first, len(found))
        return need <= room and self._leaves_in_peace(request, running)

    def count_coming(self, seq: Sequence, num_found: int) -> int:
        """Blocks that a sequence need not be given, since they are being loaded for others, or ahead of its turn.

        Args:
            num_found: blocks of its prefix that are there.
        """
        if seq.must_compute or not self._swap.num_under_way:
            return 0
        num_full = (len(seq.token_ids) - 1) // self._config.block_size
        return self._swap.count_coming(self._kv.keys_of(seq, num_full)[num_found:])

    def _leaves_in_peace(self, request: Request, running: Seq[Request]) -> bool:
        """Whether with this one too nobody will be preempted who may not be any more."""
        together = [*running, request]
        if not needs_peace(together):
            return True
        left = self._kv.pool.num_blocks - sum(self._most_blocks(each) for each in together)
        if left < 0:
            return False
        held = {block for each in running for seq in each.unfinished for block in seq.block_table}
        return self._kv.pool.num_used - len(held) <= left  # pinned, or loaded for nobody who runs

    def _most_blocks(self, request: Request) -> int:
        """What a request may ask for in the course of its life, even if its sequences share nothing.

        Two that share a block ask for one each when they part, though the second may keep the old one.
        """
        longest = len(request.prompt_token_ids) + request.max_tokens
        return request.width * self._kv.blocks_for(longest) + request.width // 2


def needs_peace(requests: Seq[Request]) -> bool:
    """Whether one of them has been preempted as often as it may be."""
    for request in requests:  # noqa: SIM110 - asked in every step that somebody waits: a third of the time of `any`
        if request.num_preemptions >= MAX_PREEMPTIONS:
            return True
    return False
