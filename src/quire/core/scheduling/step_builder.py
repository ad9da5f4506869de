"""The step that is being made: what it computes, and what the runner has to be told.

The runner keeps block tables between steps, so it is told of a sequence whole once, and of changes afterwards.
"""

from __future__ import annotations

from quire.core.decisions.costs import StepShapeSum
from quire.core.request import Sequence
from quire.outputs import BlockTransfer, NewSequence, SchedulerOutput


class StepBuilder:
    """Makes one `SchedulerOutput` after the other.

    Args:
        block_size: tokens a block holds.

    Attributes:
        promised: blocks that sequences of this step will need for tokens which they know already.
        shape: what the step computes, as far as its cost depends on it.
        stage: of the model, that it computes with.
    """

    def __init__(self, block_size: int) -> None:
        self.promised = 0
        self.shape = StepShapeSum()
        self._block_size = block_size
        self._out = SchedulerOutput(0)
        self.stage = 1
        self._removed: list[int] = []  #: the runner knows them and must forget them
        self._appended: dict[int, list[int]] = {}  #: tokens of known sequences that the runner did not draw itself

    def begin(self, step_id: int) -> None:
        self._out = SchedulerOutput(step_id)
        self.promised = 0
        self.shape = StepShapeSum()

    def pass_over(self, num_seqs: int, context: int) -> None:
        """Steps were made elsewhere; in the last one these sequences decoded."""
        self.promised = 0
        self.shape = StepShapeSum()
        self.shape.num_tokens = self.shape.num_seqs = num_seqs
        self.shape.context_decode = context

    @property
    def has_to_tell(self) -> bool:
        """Whether the runner has to be told of something that happened since the last step."""
        return bool(self._removed or self._appended)

    @property
    def num_seqs(self) -> int:
        return len(self._out.seq_ids)

    def add(self, seq: Sequence, num_new: int, placed: tuple[list[int], BlockTransfer | None]) -> None:
        """Compute a sequence's next tokens.

        Args:
            num_new: tokens, counted as computed already.
            placed: their room, from `KVCacheManager.append_slots`.
        """
        out, seq_id = self._out, seq.seq_id
        new_blocks, copy = placed
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
        if seq_id in self._appended:
            out.new_tokens[seq_id] = self._appended.pop(seq_id)
        if new_blocks:
            out.new_blocks[seq_id] = new_blocks
        if copy is not None:
            position = (seq.num_computed_tokens - num_new) // self._block_size
            out.replaced_blocks.append((seq_id, position, seq.block_table[position]))

    @property
    def new_blocks(self) -> dict[int, list[int]]:
        """By seq_id, the blocks that the runner has to be told of. May be added to, with `add_streams`."""
        return self._out.new_blocks

    def add_streams(self, seq_ids: list[int], context: int) -> None:
        """Compute a token each of sequences that the runner knows.

        Args:
            context: the tokens that they look back on together.
        """
        self._out.seq_ids += seq_ids
        self._out.num_scheduled_tokens += [1] * len(seq_ids)
        self._out.total_tokens += len(seq_ids)
        self.shape.num_tokens += len(seq_ids)
        self.shape.num_seqs += len(seq_ids)
        self.shape.context_decode += context

    def promise(self, num_blocks: int) -> None:
        """Keep blocks free for a sequence of this step: younger requests would take them, and lose them again."""
        self.promised += num_blocks

    def tell_token(self, seq: Sequence, token_id: int) -> None:
        """A token that the runner did not draw was appended to a sequence."""
        if seq.is_in_runner:
            self._appended[seq.seq_id] = [token_id]

    def forget(self, seq: Sequence) -> None:
        """Have the runner forget a sequence; harmless where it does not know it."""
        if seq.is_in_runner:
            seq.is_in_runner = False
            seq.request.stream = None
            self._appended.pop(seq.seq_id, None)
            self._removed.append(seq.seq_id)

    def finish(self, transfers: list[BlockTransfer], cancelled: list[int]) -> SchedulerOutput:
        """The step, with saves and loads to begin and others to cancel."""
        out = self._out
        out.removed_seq_ids, self._removed = self._removed, []
        out.transfers.extend(transfers)
        out.cancelled = cancelled
        out.stage = self.stage
        return out

    def take_back(self, out: SchedulerOutput) -> None:
        """A step did not happen. What the runner was to forget it is told again: forgetting twice is harmless."""
        self._removed = out.removed_seq_ids + self._removed

    def _describe(self, seq: Sequence, num_new: int) -> NewSequence:
        request = seq.request
        table = seq.block_table
        if seq.loading is not None:  # blocks on their way are not there to be cleared or read
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
        )
