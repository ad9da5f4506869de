"""Build the `SchedulerOutput` of one step: new sequences whole, known ones as deltas, since the runner keeps tables."""

from __future__ import annotations

from collections.abc import Iterator

from quire.core.decisions.costs import StepShapeSum
from quire.core.request import Sequence
from quire.outputs import BlockTransfer, NewSequence, SchedulerOutput


class StepBuilder:
    """Builds one `SchedulerOutput` after the other. `num_reserved` blocks are for known tokens of this step's
    sequences: younger requests would take them, and lose them again."""

    def __init__(self, block_size: int) -> None:
        self.num_reserved = 0
        self.shape = StepShapeSum()
        self._block_size = block_size
        self._out = SchedulerOutput(0)
        self._removed: list[int] = []  #: sequences for the runner to remove
        self._new_tokens: dict[int, list[int]] = {}  #: tokens of known sequences that the runner did not sample

    def begin(self, step_id: int) -> None:
        self._out = SchedulerOutput(step_id)
        self.num_reserved = 0
        self.shape = StepShapeSum()

    def select_stage(self, stage: int) -> None:
        self._out.stage = stage
        self.num_reserved = 0

    @property
    def step_id(self) -> int:
        return self._out.step_id

    @property
    def stage(self) -> int:
        return self._out.stage

    @property
    def num_seqs(self) -> int:
        return len(self._out.seq_ids)

    def add(self, seq: Sequence, num_new: int, appended: tuple[list[int], BlockTransfer | None]) -> None:
        """Compute the next tokens in slots from `KVCacheManager.append_slots`, which has counted them already."""
        out, seq_id = self._out, seq.seq_id
        new_blocks, copy = appended
        self.shape.add(seq.num_computed_tokens - num_new, num_new)
        out.seq_ids.append(seq_id)
        out.num_scheduled_tokens.append(num_new)
        out.total_tokens += num_new
        if copy is not None:
            out.transfers.append(copy)
        if not seq.is_in_runner:
            seq.is_in_runner = True
            out.new_sequences.append(self._describe(seq, num_new))
            return
        if seq_id in self._new_tokens:
            out.new_tokens[seq_id] = self._new_tokens.pop(seq_id)
        if new_blocks:
            out.new_blocks[seq_id] = new_blocks
        if copy is not None:
            position = (seq.num_computed_tokens - num_new) // self._block_size
            out.replaced_blocks.append((seq_id, position, seq.block_table[position]))

    def add_decodes(self, seq_ids: list[int], num_context: int, new_blocks: dict[int, list[int]]) -> None:
        """Compute one token each of sequences that the runner knows (`KVCacheManager.append_decodes`)."""
        self._out.seq_ids += seq_ids
        self._out.num_scheduled_tokens += [1] * len(seq_ids)
        self._out.total_tokens += len(seq_ids)
        self._out.new_blocks |= new_blocks
        self.shape.num_tokens += len(seq_ids)
        self.shape.num_seqs += len(seq_ids)
        self.shape.context_decode += num_context

    def decodes(self) -> Iterator[tuple[int, int]]:
        """Yield the places and ids of the sequences with one token."""
        for at, num_tokens in enumerate(self._out.num_scheduled_tokens):
            if num_tokens == 1:
                yield at, self._out.seq_ids[at]

    def want_forced(self) -> None:
        """Ask the runner for the tokens that grammars force."""
        self._out.wants_forced = True

    def add_draft(self, at: int, seq: Sequence, token_ids: list[int], new_blocks: list[int]) -> None:
        """Verify draft tokens of the sequence at a place in the step (`append_drafts`)."""
        out, seq_id = self._out, seq.seq_id
        out.drafts[seq_id] = token_ids
        out.num_scheduled_tokens[at] += len(token_ids)
        out.total_tokens += len(token_ids)
        self.shape.add_drafts(seq.num_computed_tokens, len(token_ids))
        if new_blocks:
            out.new_blocks[seq_id] = out.new_blocks.get(seq_id, []) + new_blocks

    def reserve(self, num_blocks: int) -> None:
        self.num_reserved += num_blocks

    def set_token(self, seq: Sequence, token_id: int) -> None:
        """Send the runner a sequence's next token, which it did not sample."""
        if seq.is_in_runner:
            self._new_tokens[seq.seq_id] = [token_id]

    def remove(self, seq: Sequence) -> None:
        """Remove a sequence from the runner; harmless where it does not know it."""
        if seq.is_in_runner:
            seq.is_in_runner = False
            self._new_tokens.pop(seq.seq_id, None)
            self._removed.append(seq.seq_id)

    def finish(self, transfers: list[BlockTransfer], cancelled: list[int]) -> SchedulerOutput:
        """Return the step, with saves and loads to begin and op_ids to cancel."""
        out = self._out
        out.removed_seq_ids, self._removed = self._removed, []
        out.transfers.extend(transfers)
        out.cancelled = cancelled
        return out

    def restore(self, failed: SchedulerOutput) -> None:
        """Remove the sequences that a failed step was to remove. Removing twice is harmless."""
        self._removed = failed.removed_seq_ids + self._removed

    def _describe(self, seq: Sequence, num_new: int) -> NewSequence:
        request = seq.request
        table = seq.block_table
        if seq.loading is not None:  # blocks that are loading must not be cleared or read
            table = table[: seq.loading.start // self._block_size]
        is_fresh = seq.num_output_tokens == 0
        return NewSequence(
            seq_id=seq.seq_id,
            index=seq.index,
            token_ids=list(seq.token_ids),
            num_prompt_tokens=seq.num_prompt_tokens,
            num_computed_tokens=seq.num_computed_tokens - num_new,
            block_table=list(table),
            sampling_params=request.sampling_params,
            seed=request.seed,
            stop_token_ids=tuple(request.stop_token_ids),
            num_samples=request.sampling_params.n if is_fresh and request.beam is None else 1,
            num_candidates=request.beams.num_candidates if request.beams is not None else 0,
            adapter=0 if request.adapter is None else request.adapter.number,
        )
