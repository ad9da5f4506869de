"""The runner's sequences as rows of arrays, and the flat batch of a step, built from the scheduler's changes by a few
array operations. Numpy only."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from quire.attention.interface import AttentionBatch
from quire.outputs import NewSequence, SchedulerOutput


@dataclass(slots=True)
class Batch:
    """One step's tokens, flattened: sequence i owns ``query_start_loc[i]:query_start_loc[i + 1]``."""

    rows: np.ndarray  #: int64 [num_seqs], rows of the `InputBatch`
    token_ids: np.ndarray  #: int64 [num_tokens]
    positions: np.ndarray  #: int64 [num_tokens]
    attention: AttentionBatch
    sampled: np.ndarray  #: int64, indices of sequences whose last known token is computed in this step
    num_drafts: np.ndarray | None = None  #: int64, draft tokens of each of these sequences; None if none has any

    def logit_rows(self) -> np.ndarray:
        """Return the tokens whose logits are needed: of each sampled sequence its last known token and its drafts."""
        last = self.attention.query_start_loc[self.sampled + 1] - 1
        if self.num_drafts is None:
            return last
        ends = np.cumsum(self.num_drafts + 1)
        return np.arange(ends[-1]) + np.repeat(last + 1 - ends, self.num_drafts + 1)


@dataclass(slots=True)
class BlockWork:
    """Work on the cache before the step computes: clear, and copy what blocks held before."""

    fresh: list[int] = field(default_factory=list)
    copy_src: list[int] = field(default_factory=list)
    copy_dst: list[int] = field(default_factory=list)
    rejected: list[int] = field(default_factory=list)  #: slots of wrong draft tokens, to clear as well


class InputBatch:
    """Persistent rows, one per sequence."""

    def __init__(self, max_num_seqs: int, max_model_len: int, block_size: int) -> None:
        self.block_size = block_size
        self.first_draft_block: int | None = None  #: see `AttentionBatch`; None for models without recurrent states
        self.row_of: dict[int, int] = {}
        self._free_rows = list(range(max_num_seqs - 1, -1, -1))
        self.info: list[NewSequence | None] = [None] * max_num_seqs
        # Unused rows take address space but no memory.
        self.token_ids = np.zeros((max_num_seqs, max_model_len), dtype=np.int32)
        self.num_tokens = np.zeros(max_num_seqs, dtype=np.int64)
        self.num_computed = np.zeros(max_num_seqs, dtype=np.int64)
        self.block_tables = np.zeros((max_num_seqs, -(-max_model_len // block_size)), dtype=np.int32)
        self.num_blocks = np.zeros(max_num_seqs, dtype=np.int64)
        self.adapters = np.zeros(max_num_seqs, dtype=np.int64)
        self._drafting: dict[int, int] = {}  #: row -> draft tokens of the last step that are not verified yet
        self._draft_states: dict[int, int] = {}  #: row -> block with the state after its first draft
        self._rejected: list[int] = []  #: slots to clear
        self._state_moves: list[tuple[int, int]] = []  #: pairs of blocks

    def apply(self, out: SchedulerOutput) -> BlockWork:
        """Apply the changes since the last step."""
        for seq_id, tokens in out.new_tokens.items():
            self.append_tokens(self.row_of[seq_id], tokens)
        for seq_id in out.removed_seq_ids:
            row = self.row_of.pop(seq_id, None)
            if row is not None:
                self.info[row] = None
                self.adapters[row] = 0
                self._free_rows.append(row)
                self._drafting.pop(row, None)
                self._draft_states.pop(row, None)
        for row in [*self._drafting]:  # nothing was sampled
            self.end_drafts(row, 0)
        work = BlockWork(rejected=self._rejected)
        self._rejected = []
        for new in out.new_sequences:
            self._add(new)
            work.fresh.extend(new.block_table[-(-new.num_computed_tokens // self.block_size) :])
        for seq_id, tokens in out.drafts.items():
            row = self.row_of[seq_id]
            self._drafting[row] = len(tokens)
            self.token_ids[row, self.num_tokens[row] : self.num_tokens[row] + len(tokens)] = tokens
        for seq_id, blocks in out.new_blocks.items():
            row = self.row_of[seq_id]
            at = self.num_blocks[row]
            self.block_tables[row, at : at + len(blocks)] = blocks
            self.num_blocks[row] = at + len(blocks)
            work.fresh.extend(blocks)
        for seq_id, position, block in out.replaced_blocks:
            self.block_tables[self.row_of[seq_id], position] = block
        for transfer in out.transfers:
            if transfer.kind == "copy":
                work.copy_src.append(transfer.src)
                work.copy_dst.append(transfer.dst)
        return work

    def _add(self, new: NewSequence) -> None:
        row = self._free_rows.pop()
        self.row_of[new.seq_id] = row
        self.info[row] = new
        self.token_ids[row, : len(new.token_ids)] = new.token_ids
        self.num_tokens[row] = len(new.token_ids)
        self.num_computed[row] = new.num_computed_tokens
        self.block_tables[row, : len(new.block_table)] = new.block_table
        self.num_blocks[row] = len(new.block_table)
        self.adapters[row] = new.adapter

    def append_token(self, row: int, token_id: int) -> None:
        at = self.num_tokens[row]
        if at < self.token_ids.shape[1]:  # the very last token of a full context is never fed back
            self.token_ids[row, at] = token_id
        self.num_tokens[row] = at + 1

    def append_tokens(self, row: int, tokens: list[int]) -> None:
        """Append sampled tokens: those before the last were drafts, and are computed."""
        for token in tokens:
            self.append_token(row, token)
        if row in self._drafting:
            self.end_drafts(row, len(tokens) - 1)

    def end_drafts(self, row: int, num_right: int) -> None:
        """Keep the blocks of a row's computed tokens, of which the last `num_right` were drafts."""
        size, first = self.block_size, int(self.num_computed[row]) + num_right
        num_slots = self._drafting.pop(row) - num_right
        if (state := self._draft_states.pop(row, None)) is not None and num_right:
            begin = first - num_right
            for end in {*range(begin // size * size + size, first, size), first}:  # of each block
                after = state + end - begin - 1
                self._state_moves.append((after, int(self.block_tables[row, (end - 1) // size])))
        self.num_computed[row] = first
        self.num_blocks[row] = -(-first // size)
        kept = range(first, min(first + num_slots, int(self.num_blocks[row]) * size))
        self._rejected += [int(self.block_tables[row, at // size]) * size + at % size for at in kept]

    def pop_state_moves(self) -> list[tuple[int, int]]:
        """Return the blocks to copy recurrent states from and to: those after drafts that were right."""
        moves, self._state_moves = self._state_moves, []
        return moves

    def by_adapter(self, out: SchedulerOutput) -> SchedulerOutput:
        """Return a step with the sequences of each adapter side by side, else in their order."""
        if not self.adapters.any():
            return out
        numbers = self.adapters[[self.row_of[seq_id] for seq_id in out.seq_ids]]
        order = numbers.argsort(kind="stable").tolist()
        counts = out.num_scheduled_tokens
        return replace(out, seq_ids=[out.seq_ids[i] for i in order], num_scheduled_tokens=[counts[i] for i in order])

    def build(self, out: SchedulerOutput) -> Batch:
        """Flatten the step's tokens and count them as computed."""
        num_seqs = len(out.seq_ids)
        row_of = self.row_of
        rows = np.fromiter((row_of[seq_id] for seq_id in out.seq_ids), dtype=np.int64, count=num_seqs)
        batch = self.flatten(rows, self.num_computed[rows], np.array(out.num_scheduled_tokens, dtype=np.int64))
        seq_lens = batch.attention.seq_lens
        self.num_computed[rows] = seq_lens
        num_known = self.num_tokens[rows]
        batch.sampled = np.flatnonzero(seq_lens >= num_known)
        if out.drafts:
            batch.num_drafts = (seq_lens - num_known)[batch.sampled]
            self.num_computed[rows[batch.sampled]] -= batch.num_drafts
            if self.first_draft_block is not None:
                self._plan_states(batch, self.first_draft_block)
        return batch

    def _plan_states(self, batch: Batch, block: int) -> None:
        """Assign blocks to the recurrent states after drafts."""
        assert batch.num_drafts is not None
        counts = np.zeros(len(batch.rows), dtype=np.int64)
        counts[batch.sampled] = batch.num_drafts
        batch.attention = replace(batch.attention, num_drafts=counts, first_draft_block=block)
        for row, count in zip(batch.rows.tolist(), counts.tolist(), strict=True):
            if count:
                self._draft_states[row] = block
                block += count

    def flatten(self, rows: np.ndarray, start: np.ndarray, query_lens: np.ndarray) -> Batch:
        """Return a batch of `query_lens` tokens of each row, from the position `start` on. All are int64 [num_seqs]."""
        seq_lens = start + query_lens
        query_start_loc = np.zeros(len(rows) + 1, dtype=np.int64)
        query_lens.cumsum(out=query_start_loc[1:])
        num_tokens = int(query_start_loc[-1])
        if num_tokens == len(rows):  # one token each
            positions, token_rows = start, rows
        else:
            positions = np.arange(num_tokens) + np.repeat(start - query_start_loc[:-1], query_lens)
            token_rows = np.repeat(rows, query_lens)
        token_ids = self.token_ids[token_rows, positions].astype(np.int64)
        widest = int(-(-int(seq_lens.max(initial=0)) // self.block_size))
        slots = self.slots(token_rows, positions)
        attention = AttentionBatch(query_start_loc, seq_lens, self.block_tables[rows, :widest], slots)
        return Batch(rows, token_ids, positions, attention, rows[:0])

    def slots(self, rows: np.ndarray | int, positions: np.ndarray) -> np.ndarray:
        """Return the KV slots of positions in rows: int64."""
        blocks, offsets = np.divmod(positions, self.block_size)
        return self.block_tables[rows, blocks].astype(np.int64) * self.block_size + offsets
