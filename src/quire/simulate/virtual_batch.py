"""The sequences that a virtual runner knows, how far each has come, and what a step adds to that.

Most of a batch are streams: each computes the one token that it got with the step before. As long as they are the first
ones of every step, they are counted together, and the others one by one.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from quire.core.decisions.costs import StepShape
from quire.outputs import SchedulerOutput, StepOutput, TokenLogprobs

TOKEN = 0  #: every token that is made up


@dataclass(slots=True)
class _Row:
    """A sequence that the runner knows."""

    num_computed: int
    num_tokens: int
    num_prompt_tokens: int
    num_samples: int
    num_candidates: int
    joined_at: int | None = None  #: a stream: the clock's step up to which these counts are right

    @property
    def is_plain(self) -> bool:
        """Computing its last token brings one more."""
        return self.num_candidates == 0 and (self.num_samples == 1 or self.num_tokens > self.num_prompt_tokens)


class VirtualBatch:
    """Attributes:
    streams: ids of those of the last step, from its first on, that are now to compute the one token that they got. The
        same list for as long as they are the same.
    context: what these have computed together.
    """

    def __init__(self) -> None:
        self.streams: list[int] = []
        self.context = 0
        self._rows: dict[int, _Row] = {}
        self._clock = 0  #: steps in which streams went on
        self._num_others = 0  #: sequences of the last step that are no streams

    @property
    def steady_ids(self) -> list[int]:
        """The sequences of the last step, where all of them are streams."""
        return [] if self._num_others else self.streams

    def repeat(self, num_steps: int) -> None:
        """So many steps have brought every stream, and nobody else, its next token."""
        self._clock += num_steps
        self.context += num_steps * len(self.streams)

    def advance(self, out: SchedulerOutput, result: StepOutput) -> StepShape:
        """Count a step's tokens as computed and make up the next ones. Returns the step's shape."""
        if out.removed_seq_ids:
            self._leave(out.removed_seq_ids)
            for seq_id in out.removed_seq_ids:
                self._rows.pop(seq_id, None)
        for new in out.new_sequences:
            counts = (new.num_computed_tokens, len(new.token_ids), new.num_prompt_tokens)
            self._rows[new.seq_id] = _Row(*counts, new.num_samples, new.num_candidates)
        if out.new_tokens:
            self._leave(out.new_tokens)
            for seq_id, tokens in out.new_tokens.items():
                self._rows[seq_id].num_tokens += len(tokens)
        num_streams = len(self.streams)
        if out.seq_ids[:num_streams] != self.streams or out.num_scheduled_tokens[:num_streams] != [1] * num_streams:
            self._leave(self._out_of_place(out))
            num_streams = len(self.streams)
        context = self.context
        self.repeat(1)
        result.seq_ids = list(self.streams)
        result.sampled = [[TOKEN]] * num_streams
        attended = 0.0
        self._num_others = len(out.seq_ids) - num_streams
        if self._num_others:
            more, attended = self._compute_others(out, num_streams, result)
            context += more
        return StepShape(out.total_tokens, len(out.seq_ids), attended, context)

    def _compute_others(self, out: SchedulerOutput, first: int, result: StepOutput) -> tuple[int, float]:
        """Those that are no streams, from this place of the step on; some may be from now on.

        Returns:
            The tokens that those with one new token look back on, and the pairs of query and key of the rest.
        """
        rows, ids, sampled = self._rows, result.seq_ids, result.sampled
        context, attended = 0, 0.0
        joining: list[int] = []
        for at in range(first, len(out.seq_ids)):
            seq_id, num_new = out.seq_ids[at], out.num_scheduled_tokens[at]
            row = rows[seq_id]
            start = row.num_computed
            if num_new == 1:
                context += start
            else:
                attended += num_new * (start + num_new / 2)
            row.num_computed = end = start + num_new
            assert end <= row.num_tokens, "more tokens are computed than there are"
            if end < row.num_tokens:
                continue
            if row.num_candidates == 0 and row.num_samples == 1:
                row.num_tokens += 1
                ids.append(seq_id)
                sampled.append([TOKEN])
            else:
                self._sample(seq_id, row, result)
            if row.is_plain and row.num_tokens == end + 1 and len(joining) == at - first:
                row.joined_at = self._clock
                self.context += end
                joining.append(seq_id)
        if joining:
            self.streams = self.streams + joining
            self._num_others -= len(joining)
        return context, attended

    def _sample(self, seq_id: int, row: _Row, result: StepOutput) -> None:
        result.seq_ids.append(seq_id)
        if row.num_candidates:  # a beam: which token it goes on with is decided elsewhere
            spread = [-0.01 * (rank + 1) for rank in range(row.num_candidates)]
            result.sampled.append([])
            result.logprobs[seq_id] = [TokenLogprobs(list(range(row.num_candidates)), spread, 0, spread[0], 1)]
            return
        is_first = row.num_tokens == row.num_prompt_tokens
        result.sampled.append([TOKEN] * (row.num_samples if is_first else 1))
        row.num_tokens += 1

    def _out_of_place(self, out: SchedulerOutput) -> list[int]:
        """The streams from the first on that is not where it was, or has not one token."""
        step = zip(self.streams, out.seq_ids, out.num_scheduled_tokens, strict=False)
        at = 0
        for seq_id, scheduled_id, num_new in step:
            if seq_id != scheduled_id or num_new != 1:
                break
            at += 1
        return self.streams[at:]

    def _leave(self, seq_ids: Iterable[int]) -> None:
        """These are no streams from now on, if they were."""
        left = set()
        for seq_id in seq_ids:
            row = self._rows.get(seq_id)
            if row is not None and row.joined_at is not None:
                num_since = self._clock - row.joined_at
                row.num_computed += num_since
                row.num_tokens += num_since
                row.joined_at = None
                self.context -= row.num_computed
                left.add(seq_id)
        if left:
            self.streams = [seq_id for seq_id in self.streams if seq_id not in left]
