"""Batches against a token-by-token oracle, over arbitrary steps."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from quire.outputs import BlockTransfer, NewSequence, SchedulerOutput
from quire.runner.batch import Batch, BlockWork, InputBatch
from quire.sampling_params import SamplingParams

BLOCK_SIZE = 4
MAX_NUM_SEQS = 5
MAX_MODEL_LEN = 24


@dataclass
class Known:
    """A runner's state of a sequence, as lists."""

    new: NewSequence
    tokens: list[int]
    table: list[int]
    num_computed: int


def new_sequence(seq_id: int, tokens: list[int], table: list[int], num_computed: int = 0) -> NewSequence:
    return NewSequence(seq_id, 0, tokens, len(tokens), num_computed, table, SamplingParams(), seed=0)


def check_batch(batch: Batch, out: SchedulerOutput, known: dict[int, Known], rows: InputBatch) -> None:
    """Compare the flat arrays token by token, and count the tokens as computed."""
    token_ids, positions, slots, lengths, starts, sampled = [], [], [], [], [0], []
    for i, (seq_id, count) in enumerate(zip(out.seq_ids, out.num_scheduled_tokens, strict=True)):
        seq = known[seq_id]
        for at in range(seq.num_computed, seq.num_computed + count):
            token_ids.append(seq.tokens[at])
            positions.append(at)
            slots.append(seq.table[at // BLOCK_SIZE] * BLOCK_SIZE + at % BLOCK_SIZE)
        seq.num_computed += count
        lengths.append(seq.num_computed)
        starts.append(starts[-1] + count)
        if seq.num_computed == len(seq.tokens):
            sampled.append(i)
        num_blocks = -(-seq.num_computed // BLOCK_SIZE)
        assert batch.attention.block_tables[i, :num_blocks].tolist() == seq.table[:num_blocks]
        assert rows.info[batch.rows[i]] is seq.new
    assert batch.token_ids.tolist() == token_ids
    assert batch.positions.tolist() == positions
    assert batch.attention.slot_mapping.tolist() == slots
    assert batch.attention.seq_lens.tolist() == lengths
    assert batch.attention.query_start_loc.tolist() == starts
    assert batch.attention.query_lens.tolist() == out.num_scheduled_tokens
    assert batch.sampled.tolist() == sampled
    assert len(set(batch.rows.tolist())) == len(out.seq_ids)
    assert batch.attention.block_tables.shape == (len(lengths), max((-(-n // BLOCK_SIZE) for n in lengths), default=0))
    for array in (batch.rows, batch.token_ids, batch.positions, batch.attention.slot_mapping, batch.attention.seq_lens):
        assert array.dtype == np.int64
    assert batch.attention.block_tables.dtype == np.int32


@settings(max_examples=50, deadline=None)
@given(st.data())
def test_batches_are_what_going_token_by_token_gives(data: st.DataObject) -> None:
    rows = InputBatch(MAX_NUM_SEQS, MAX_MODEL_LEN, BLOCK_SIZE)
    known: dict[int, Known] = {}
    next_block = iter(range(1_000_000))
    next_seq_id = iter(range(1_000_000))

    def choose(name: str, low: int, high: int) -> int:
        return data.draw(st.integers(low, high), label=name)

    for step in range(choose("steps", 1, 8)):
        out = SchedulerOutput(step)
        expected = BlockWork()
        for seq_id in list(known):
            if choose("removed", 0, 4) == 0:
                out.removed_seq_ids.append(seq_id)
                gone = known.pop(seq_id)
                if choose("comes back in the same step", 0, 3) == 0:
                    num_computed = choose("computed", 0, len(gone.tokens) - 1)
                    _send(out, expected, known, seq_id, gone.tokens, num_computed, next_block)
        if choose("removed though unknown", 0, 3) == 0:
            out.removed_seq_ids.append(-1)
        while len(known) < MAX_NUM_SEQS and choose("another", 0, 1):
            length = choose("length", 1, MAX_MODEL_LEN - 8)
            tokens = [choose("token", 0, 2**31 - 1) for _ in range(length)]
            _send(out, expected, known, next(next_seq_id), tokens, choose("computed", 0, length - 1), next_block)
        for seq_id, seq in known.items():
            is_new = any(new.seq_id == seq_id for new in out.new_sequences)
            if not is_new and len(seq.tokens) == seq.num_computed:
                seq.tokens.append(choose("token", 0, 99))  # chosen elsewhere: a beam's token
                out.new_tokens[seq_id] = [seq.tokens[-1]]
            missing = len(seq.tokens) - seq.num_computed
            count = choose("scheduled", 0, missing)
            if count == 0:
                continue
            needed = -(-(seq.num_computed + count) // BLOCK_SIZE) - len(seq.table)
            if not is_new and needed > 0:
                out.new_blocks[seq_id] = [next(next_block) for _ in range(needed)]
                seq.table.extend(out.new_blocks[seq_id])
            if not is_new and seq.num_computed % BLOCK_SIZE and choose("copied on write", 0, 2) == 0:
                position, own = seq.num_computed // BLOCK_SIZE, next(next_block)
                out.transfers.append(BlockTransfer(0, "copy", seq.table[position], own))
                out.replaced_blocks.append((seq_id, position, own))
                seq.table[position] = own
            out.seq_ids.append(seq_id)
            out.num_scheduled_tokens.append(count)
            out.total_tokens += count
        work = rows.apply(out)
        fresh = [*expected.fresh, *(block for blocks in out.new_blocks.values() for block in blocks)]
        assert sorted(work.fresh) == sorted(fresh)
        assert work.copy_src == [transfer.src for transfer in out.transfers]
        assert work.copy_dst == [transfer.dst for transfer in out.transfers]
        assert set(rows.row_of) == set(known)
        batch = rows.build(out)
        check_batch(batch, out, known, rows)
        for i in batch.sampled.tolist():
            if choose("drawn here", 0, 1) and len(known[out.seq_ids[i]].tokens) < MAX_MODEL_LEN:
                rows.append_token(int(batch.rows[i]), 7)
                known[out.seq_ids[i]].tokens.append(7)


def _send(
    out: SchedulerOutput,
    work: BlockWork,
    known: dict[int, Known],
    seq_id: int,
    tokens: list[int],
    num_computed: int,
    next_block: Iterator[int],
) -> None:
    table = [next(next_block) for _ in range(-(-len(tokens) // BLOCK_SIZE))]
    new = new_sequence(seq_id, list(tokens), list(table), num_computed)
    out.new_sequences.append(new)
    known[seq_id] = Known(new, list(tokens), table, num_computed)
    work.fresh.extend(table[-(-num_computed // BLOCK_SIZE) :])


def schedule(rows: InputBatch, seq_ids: list[int], counts: list[int], **changes: object) -> Batch:
    out = SchedulerOutput(0, seq_ids, counts, total_tokens=sum(counts), **changes)  # type: ignore[arg-type]
    rows.apply(out)
    return rows.build(out)


def test_a_row_that_is_used_again_shows_nothing_of_its_former_sequence() -> None:
    rows = InputBatch(1, MAX_MODEL_LEN, BLOCK_SIZE)
    schedule(rows, [1], [12], new_sequences=[new_sequence(1, list(range(50, 62)), [7, 8, 9])])
    batch = schedule(rows, [2], [5], new_sequences=[new_sequence(2, [1, 2, 3, 4, 5], [4, 6])], removed_seq_ids=[1])
    assert batch.token_ids.tolist() == [1, 2, 3, 4, 5]
    assert batch.attention.block_tables.tolist() == [[4, 6]]
    assert batch.attention.seq_lens.tolist() == [5]
    assert batch.sampled.tolist() == [0]


def test_a_batch_does_not_change_when_the_next_one_is_built() -> None:
    rows = InputBatch(2, MAX_MODEL_LEN, BLOCK_SIZE)
    new = [new_sequence(1, [1, 2, 3], [0]), new_sequence(2, [4, 5, 6], [1])]
    first = schedule(rows, [1, 2], [2, 2], new_sequences=new)
    kept = [array.copy() for array in (first.positions, first.token_ids, first.attention.seq_lens)]
    second = schedule(rows, [1, 2], [1, 1])
    assert second.positions.tolist() == [2, 2]
    for before, array in zip(kept, (first.positions, first.token_ids, first.attention.seq_lens), strict=True):
        assert before.tolist() == array.tolist()


def test_an_empty_step_makes_an_empty_batch() -> None:
    batch = schedule(InputBatch(2, MAX_MODEL_LEN, BLOCK_SIZE), [], [])
    assert batch.token_ids.shape == batch.positions.shape == batch.sampled.shape == (0,)
    assert batch.attention.query_start_loc.tolist() == [0]


def test_only_blocks_without_content_are_cleared() -> None:
    """A fork's last block is half full; copied slots are kept, newly assigned ones cleared."""
    rows = InputBatch(2, MAX_MODEL_LEN, BLOCK_SIZE)
    forked = new_sequence(1, list(range(7)), [3, 5], num_computed=6)
    assert rows.apply(SchedulerOutput(0, new_sequences=[forked])).fresh == []
    at_boundary = new_sequence(2, list(range(9)), [3, 5, 6], num_computed=8)
    assert rows.apply(SchedulerOutput(1, new_sequences=[at_boundary])).fresh == [6]


def test_the_last_token_of_a_full_context_is_never_fed_back() -> None:
    rows = InputBatch(1, 4, BLOCK_SIZE)
    schedule(rows, [1], [4], new_sequences=[new_sequence(1, [1, 2, 3, 4], [0])])
    rows.append_token(0, 5)
    assert rows.num_tokens[0] == 5
    assert rows.token_ids[0].tolist() == [1, 2, 3, 4]
