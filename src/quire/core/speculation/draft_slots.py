"""KV slots of draft tokens, behind the computed tokens of a sequence. They do not count as computed, and no lookup
finds their blocks, until the tokens are confirmed."""

from __future__ import annotations

from quire.core.kv_cache_manager import KVCacheManager
from quire.core.request import Sequence


def append_drafts(kv: KVCacheManager, seq: Sequence, num_tokens: int, room: int) -> list[int]:
    """Append slots for up to `num_tokens` drafts, in the last block and in at most `room` new ones, which are returned.
    Sets `num_draft_tokens`."""
    size, table = kv.block_size, seq.block_table
    missing = -(-(seq.num_computed_tokens + num_tokens) // size) - len(table)
    new_blocks = kv.pool.allocate_all(max(0, min(missing, room)))
    kv.extend_table(seq, new_blocks)
    if kv.num_state_records:
        seq.states_at += range(len(table) - len(new_blocks), len(table))
    seq.num_draft_tokens = min(num_tokens, len(table) * size - seq.num_computed_tokens)
    return new_blocks


def confirm_draft(kv: KVCacheManager, seq: Sequence) -> None:
    """Count `seq`'s last token, which was a draft, as computed."""
    seq.num_draft_tokens -= 1
    kv.count_computed(seq, 1)


def drop_drafts(kv: KVCacheManager, seq: Sequence) -> None:
    """Give back the slots of drafts that are not confirmed."""
    seq.num_draft_tokens = 0
    num_blocks = -(-seq.num_computed_tokens // kv.block_size)
    if num_blocks < len(seq.block_table):
        kv.cut_table(seq, num_blocks)
