"""The swap tier: saves, loads, waits and cancellations."""

from __future__ import annotations

from core.test_kv_cache_manager import compute, make_manager, make_sequence
from quire.core.request import Sequence
from quire.core.swap_manager import BlockSpan, SwapManager
from quire.outputs import TransferReport


def make_swap(num_slots: int) -> SwapManager:
    return SwapManager(make_manager(), num_slots)


def give_up(swap: SwapManager, seq: Sequence) -> None:
    """Give up a request's blocks as a preemption does."""
    swap.stop_waiting(seq)
    swap.kv.free(seq)


def test_a_save_takes_no_slot_of_what_the_tier_has_of_the_same_sequence() -> None:
    swap = make_swap(10)
    victim, other = make_sequence(list(range(32))), make_sequence(list(range(50, 66)))  # eight full blocks and four
    for seq, num_blocks in ((victim, 6), (other, 4)):
        compute(swap.kv, seq)
        swap.swap_out([seq], seq.num_registered - num_blocks, set(seq.block_table))
        swap.release(seq)
    saves = [transfer.op_id for transfer in swap.transfers.pop_new()]
    swap.end_transfers([TransferReport("save", saves, 10, 0.01)])
    assert swap.tier.num_available == 10, "none of them is held"
    assert len(swap.swap_out([victim], 0, set(victim.block_table))) == 2
    assert victim.swapped_keys[:6] == victim.block_keys[2:], "the six that were there"
    assert set(victim.swapped_keys) == set(victim.block_keys)
    swap.check_integrity([victim, other])
    assert swap.swap_out([victim], 0, set(victim.block_table)) == []
    assert len(victim.swapped_keys) == 8, "again is harmless"


class TestGivingTransfersUp:
    """Eight full blocks, the first two still in the pool when the sequence resumes."""

    def away(self, *, is_saved: bool = True) -> tuple[SwapManager, Sequence]:
        swap = make_swap(20)
        seq = make_sequence(list(range(33)))
        compute(swap.kv, seq)
        self.saves = swap.swap_out([seq], 0, set(seq.block_table))
        self.first = seq.block_table[:2]
        swap.transfers.pop_new()
        for block in self.first:
            swap.kv.pool.acquire(block)
        give_up(swap, seq)
        if is_saved:
            swap.end_transfers([TransferReport("save", self.saves, 8, 0.01)])
        return swap, seq

    def back(self) -> tuple[SwapManager, Sequence, list[int]]:
        swap, seq = self.away()
        swap.kv.adopt_prefix(seq, self.first)
        kept = swap.find_loadable(seq, 2)
        assert kept == BlockSpan(2, 8)
        loads = swap.swap_in(seq, kept)
        swap.transfers.pop_new()
        swap.release(seq)
        for block in self.first:
            swap.kv.pool.release(block)
        return swap, seq, loads

    def test_loads_are_given_up_from_the_first_that_is_not_there(self) -> None:
        swap, seq, loads = self.back()
        swap.end_transfers([TransferReport("load", loads[:2], 2, 0.01)])
        rest = swap.unloaded(seq)
        assert rest == BlockSpan(4, 8)
        assert swap.cancel_loads(seq, rest) == 4
        assert sorted(swap.transfers.pop_cancelled()) == loads[2:]
        assert swap.transfers.pop_cancelled() == []
        assert swap.unloaded(seq) is None, "nothing is to be given up twice"
        assert swap.cancel_loads(seq, rest) == 0
        swap.check_integrity([seq])
        swap.end_transfers(
            [
                TransferReport("load", [loads[2]], 1, 0.01),  # it had begun
                TransferReport("load", loads[3:], 0, 0.0, is_cancelled=True),
            ]
        )
        swap.check_integrity([seq])
        assert swap.pop_loaded(seq)
        assert (len(seq.block_table), seq.num_computed_tokens) == (5, 20)
        assert all(key in swap.tier for key in seq.block_keys), "what was saved is still there"
        assert len(swap.transfers) == 0
        give_up(swap, seq)
        assert swap.kv.pool.num_used == 0

    def test_a_load_that_another_waits_for_goes_on(self) -> None:
        swap, seq, loads = self.back()
        other = make_sequence(list(range(33)))
        swap.kv.adopt_prefix(other, swap.kv.find_prefix(other, 8))
        other.swapped_keys = [key for key in seq.block_keys if swap.tier.hold(key)]
        kept = swap.find_loadable(other, 2)
        assert kept == BlockSpan(2, 8)
        assert swap.swap_in(other, kept) == [], "they are on their way"
        swap.release(other)
        assert swap.cancel_loads(seq, BlockSpan(2, 8)) == 0
        give_up(swap, seq)
        assert swap.cancel_loads(other, BlockSpan(2, 8)) == 6
        assert sorted(swap.transfers.pop_cancelled()) == loads
        swap.check_integrity([other])

    def test_what_nobody_waits_for_any_more_is_not_loaded(self) -> None:
        swap, seq, loads = self.back()
        give_up(swap, seq)
        assert sorted(swap.transfers.pop_cancelled()) == loads
        swap.end_transfers([TransferReport("load", loads, 0, 0.0, is_cancelled=True)])
        assert swap.kv.pool.num_used == 0
        swap.check_integrity([])

    def test_who_wants_a_block_after_its_load_was_given_up_has_it_loaded_anew(self) -> None:
        swap, seq, loads = self.back()
        swap.cancel_loads(seq, BlockSpan(2, 8))
        give_up(swap, seq)
        seq.swapped_keys = [key for key in seq.block_keys if swap.tier.hold(key)]
        kept = swap.find_loadable(seq, 0)
        assert kept == BlockSpan(0, 8)
        again = swap.swap_in(seq, kept)
        assert len(again) == 8
        swap.release(seq)
        swap.end_transfers([TransferReport("load", loads, 0, 0.0, is_cancelled=True)])
        swap.check_integrity([seq])
        assert seq.loading is not None
        assert seq.loading.op_ids == set(again)
        swap.end_transfers([TransferReport("load", again, 8, 0.01)])
        assert swap.pop_loaded(seq)
        assert seq.num_computed_tokens == 32
        swap.check_integrity([seq])

    def test_saves_are_given_up_and_what_was_saved_before_is_kept(self) -> None:
        swap, seq = self.away(is_saved=False)
        swap.end_transfers([TransferReport("save", self.saves[:3], 3, 0.01)])
        rest = swap.unsaved(seq)
        assert rest == BlockSpan(3, 8)
        assert swap.cancel_saves(seq, rest) == 5
        assert swap.transfers.pop_cancelled() == self.saves[3:]
        assert swap.unsaved(seq) is None
        assert swap.find_loadable(seq, 0) == BlockSpan(0, 3), "the rest is not to be waited for"
        swap.end_transfers(
            [
                TransferReport("save", [self.saves[3]], 1, 0.01),  # it had begun
                TransferReport("save", self.saves[4:], 0, 0.0, is_cancelled=True),
            ]
        )
        assert swap.find_loadable(seq, 0) == BlockSpan(0, 4)
        swap.release(seq)
        assert swap.tier.num_available == 20
        swap.tier.check_integrity()

    def test_what_ended_before_it_was_saved_is_not_saved(self) -> None:
        swap, seq = self.away(is_saved=False)
        swap.abandon(seq)
        assert swap.transfers.pop_cancelled() == self.saves
        swap.end_transfers([TransferReport("save", self.saves, 0, 0.0, is_cancelled=True)])
        assert swap.tier.num_available == 20
        swap.tier.check_integrity()

    def test_what_somebody_else_keeps_is_saved_all_the_same(self) -> None:
        swap, seq = self.away(is_saved=False)
        assert swap.tier.hold(seq.block_keys[0])
        assert swap.cancel_saves(seq, BlockSpan(0, 2)) == 1
        swap.abandon(seq)
        assert swap.transfers.pop_cancelled() == self.saves[1:]

    def test_a_load_after_a_save_that_was_given_up_brings_nothing(self) -> None:
        swap, seq = self.away(is_saved=False)
        kept = swap.find_loadable(seq, 0)
        assert kept is not None
        loads = swap.swap_in(seq, kept)
        swap.cancel_saves(seq, BlockSpan(4, 8))
        swap.release(seq)
        swap.end_transfers(
            [
                TransferReport("save", self.saves[:4], 4, 0.01),
                TransferReport("save", self.saves[4:], 0, 0.0, is_cancelled=True),
                TransferReport("load", loads, 8, 0.01),
            ]
        )
        assert swap.pop_loaded(seq)
        assert seq.num_computed_tokens == 16
        assert len(seq.block_table) == 4


def test_what_was_deleted_while_it_was_saved_to_disk_is_not_there() -> None:
    swap = make_swap(0)
    seq = make_sequence(list(range(8)))
    compute(swap.kv, seq)
    for block, key in zip(seq.block_table, seq.block_keys, strict=True):
        swap.save_to_disk(block, key, b"", 0.0)
    swap.delete({seq.block_keys[0]})
    saves = [transfer.op_id for transfer in swap.transfers.pop_new()]
    assert swap.end_transfers([TransferReport("save", saves, 2, 0.01, tier="disk")]) == seq.block_keys
    assert swap.on_disk == {seq.block_keys[1]}
