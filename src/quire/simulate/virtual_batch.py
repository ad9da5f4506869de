"""Sequences known to a virtual runner, and the shape and made-up tokens of each step."""

from __future__ import annotations

from dataclasses import dataclass

from quire.core.decisions.costs import StepShape
from quire.outputs import SchedulerOutput, StepOutput, TokenLogprobs

TOKEN = 0  #: the token that every answer repeats


@dataclass(slots=True)
class _KnownSequence:
    num_computed: int
    num_tokens: int
    num_prompt_tokens: int
    num_samples: int
    num_candidates: int  #: beam candidates; 0 without beam search


class VirtualBatch:
    """The sequences that a runner was told of."""

    def __init__(self) -> None:
        self._sequences: dict[int, _KnownSequence] = {}

    def advance(self, out: SchedulerOutput, result: StepOutput) -> StepShape:
        """Count a step's tokens as computed and add new tokens to the result. Returns the step's shape."""
        sequences = self._sequences
        for seq_id in out.removed_seq_ids:
            sequences.pop(seq_id, None)
        for new in out.new_sequences:
            counts = (new.num_computed_tokens, len(new.token_ids), new.num_prompt_tokens)
            sequences[new.seq_id] = _KnownSequence(*counts, new.num_samples, new.num_candidates)
        for seq_id, tokens in out.new_tokens.items():
            sequences[seq_id].num_tokens += len(tokens)
        context, attended = 0, 0.0
        ids, sampled = result.seq_ids, result.sampled
        for seq_id, num_new in zip(out.seq_ids, out.num_scheduled_tokens, strict=True):
            seq = sequences[seq_id]
            start = seq.num_computed
            if num_new == 1:
                context += start
            else:
                attended += num_new * (start + num_new / 2)
            seq.num_computed = end = start + num_new
            assert end <= seq.num_tokens, "more tokens are computed than there are"
            if end < seq.num_tokens:
                continue
            if seq.num_candidates:
                self._add_candidates(seq_id, seq, result)
                continue
            is_first = end == seq.num_prompt_tokens
            ids.append(seq_id)
            sampled.append([TOKEN] * (seq.num_samples if is_first else 1))
            seq.num_tokens += 1
        return StepShape(out.total_tokens, len(out.seq_ids), attended, context)

    @staticmethod
    def _add_candidates(seq_id: int, seq: _KnownSequence, result: StepOutput) -> None:
        spread = [-0.01 * (rank + 1) for rank in range(seq.num_candidates)]
        result.seq_ids.append(seq_id)
        result.sampled.append([])
        result.logprobs[seq_id] = [TokenLogprobs(list(range(seq.num_candidates)), spread, 0, spread[0], 1)]
