"""Decide how many draft tokens a step verifies, by cost.

A sequence that decodes has one token to compute. With k draft tokens behind it, a step computes k + 1, samples at each
of these positions as it would without drafts, and confirms the drafts that equal what it samples. So no output changes.
If a draft token is right with probability p once those before it are, the i-th is confirmed with p^i. A step takes the
likeliest drafts, as many as give the most expected tokens per second.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from quire.core.decisions.costs import Costs, StepShape
from quire.core.kv_cache_manager import KVCacheManager
from quire.core.request import Sequence
from quire.core.request_queue import RequestQueue
from quire.core.scheduling.step_builder import StepBuilder
from quire.core.speculation.acceptance import Acceptance, AcceptanceRate, own_rate
from quire.core.speculation.draft_slots import append_drafts
from quire.core.speculation.drafts import Draft, DraftSource, Lookup
from quire.outputs import StepOutput

_LEAST_GAIN = 1.05  #: of expected tokens per second, for drafts to be worth it
_LEAST_CHANCE = 0.05  #: of a draft token to be confirmed, to be considered

Sources = tuple[DraftSource, ...]


@dataclass(slots=True)
class _Stream:
    """A sequence that decodes."""

    sources: Sources
    own: AcceptanceRate = field(default_factory=own_rate)
    is_stopped: bool = False


@dataclass(slots=True)
class _Proposal:
    """A draft in the step in flight, of which the step verifies the first `num_verified` tokens."""

    at: int  #: the sequence's place in the step
    seq: Sequence
    stream: _Stream
    draft: Draft
    num_verified: int = 0


@dataclass(slots=True)
class SpeculationCounts:
    """Since the start."""

    drafts: int = 0
    draft_tokens: int = 0
    accepted: Counter[str] = field(default_factory=Counter)  #: tokens, by position in their draft, from 0 on


class Speculator:
    """Adds draft tokens to steps, at most `most` to a sequence, and learns from their results. Without `costs` it adds
    all that there are. `make_sources` replaces the sources of a sequence, the first of which has the word."""

    def __init__(
        self,
        most: int,
        kv: KVCacheManager,
        queue: RequestQueue,
        costs: Costs | None,
        make_sources: Callable[[Sequence], Sources] | None = None,
    ) -> None:
        self.most = 0 if kv.num_state_records else most  # a recurrent state cannot go back to an earlier token
        self.counts = SpeculationCounts()
        self._kv = kv
        self._queue = queue
        self.costs = costs
        self.make_sources = make_sources or _default_sources
        self._acceptance = Acceptance()
        self._streams: dict[int, _Stream] = {}  #: by sequence
        self._forced: dict[int, list[int]] = {}  #: by sequence, the only continuation that its grammar allows
        self._in_flight: list[_Proposal] = []

    def add_drafts(self, step: StepBuilder, left: int) -> None:
        """Add at most `left` draft tokens to the decoding sequences of a step that is otherwise planned. They take only
        blocks that nothing else needs."""
        if self.most == 0 or left < 1 or not step.num_seqs:
            return
        shape = step.shape.total()
        if not self._may_pay(shape, left):
            return
        step.want_forced()
        chances: list[tuple[float, _Proposal]] = []  #: of each draft token to be confirmed
        for at, seq_id in step.decodes():
            seq = self._queue.sequences.get(seq_id)
            if seq is not None and (most := self._most_drafts(seq)) > 0 and (found := self._propose(at, seq, most)):
                rate = self._acceptance.rate(found.draft.kind, found.draft.prior, found.stream.own)
                each = (rate**number for number in range(1, len(found.draft.token_ids) + 1))
                chances += [(chance, found) for chance in each if chance >= _LEAST_CHANCE]
        chances.sort(key=lambda chance: -chance[0])
        for _, found in chances[: self._best_number(chances[:left], shape)]:
            found.num_verified += 1
        for found in self._in_flight:
            if found.num_verified:
                self._add(found, step)

    def _propose(self, at: int, seq: Sequence, most: int) -> _Proposal | None:
        stream = self._streams.get(seq.seq_id)
        if stream is None:
            stream = self._streams[seq.seq_id] = _Stream(self.make_sources(seq))
        if stream.is_stopped:
            return None
        if forced := self._forced.get(seq.seq_id):
            draft: Draft | None = Draft(forced[:most], "grammar", prior=0.95)
        else:
            draft = next((draft for source in stream.sources if (draft := source.propose(seq, most))), None)
        if draft is None:
            return None
        self._in_flight.append(_Proposal(at, seq, stream, draft))
        return self._in_flight[-1]

    def _most_drafts(self, seq: Sequence) -> int:
        """Return how many draft tokens a sequence of the step may have; one more token is sampled after them."""
        is_decoding = seq.num_computed_tokens == len(seq.token_ids) and seq.num_output_tokens > 0
        if not is_decoding or seq.request.beam is not None or seq.loading is not None:
            return 0
        return min(self.most, seq.num_tokens_at_end - len(seq.token_ids) - 1)

    def _may_pay(self, shape: StepShape, left: int) -> bool:
        """Whether drafts would pay if all of them were right."""
        if self.costs is None:
            return True
        num_streams = min(shape.num_seqs, shape.num_tokens)
        least_s = self.costs.step(shape) * _LEAST_GAIN / num_streams  #: per token
        most = min(left, self.most * num_streams)
        return any(
            self.costs.step(shape.plus_drafts(0, extra)) < least_s * (num_streams + extra)
            for extra in (most, *(1 << bit for bit in range(most.bit_length())))
        )

    def _best_number(self, chances: list[tuple[float, _Proposal]], shape: StepShape) -> int:
        """Return with how many of the likeliest draft tokens a step gives the most expected tokens per second."""
        if self.costs is None:
            return len(chances)
        expected, best = float(min(shape.num_seqs, shape.num_tokens)), 0
        least_s = self.costs.step(shape) / (expected * _LEAST_GAIN)
        for number, (chance, found) in enumerate(chances, start=1):
            expected += chance
            shape = shape.plus_drafts(found.seq.num_computed_tokens, 1)
            if (seconds := self.costs.step(shape) / expected) < least_s:
                least_s, best = seconds, number
        return best

    def _add(self, found: _Proposal, step: StepBuilder) -> None:
        room = max(0, self._kv.pool.num_available - step.num_reserved)
        new_blocks = append_drafts(self._kv, found.seq, found.num_verified, room)
        found.num_verified = found.seq.num_draft_tokens
        if found.num_verified:
            step.add_draft(found.at, found.seq, found.draft.token_ids[: found.num_verified], new_blocks)

    def end_step(self, result: StepOutput) -> list[Sequence]:
        """Learn from a step's result. Returns the sequences that had drafts to verify."""
        proposals, self._in_flight = self._in_flight, []
        self._forced = result.forced
        if not proposals:
            return []
        sampled = dict(zip(result.seq_ids, result.sampled, strict=True))
        for found in proposals:
            tokens, draft = sampled.get(found.seq.seq_id), found.draft
            if not tokens:
                continue
            num_right = len(tokens) - 1 if found.num_verified else int(tokens[0] == draft.token_ids[0])
            self._acceptance.observe(draft.kind, found.stream.own, num_right, max(1, found.num_verified))
            if found.num_verified:
                self._count(found, num_right)
        return [found.seq for found in proposals if found.num_verified]

    def _count(self, found: _Proposal, num_right: int) -> None:
        self.counts.drafts += 1
        self.counts.draft_tokens += found.num_verified
        self.counts.accepted.update(map(str, range(num_right)))
        if found.draft.source == "prediction":
            accepted, rejected = found.seq.request.num_predicted
            found.seq.request.num_predicted = accepted + num_right, rejected + found.num_verified - num_right

    def fail_step(self) -> None:
        self._in_flight = []

    def stop(self, seq: Sequence) -> None:
        """Draft no more for a sequence."""
        self._streams[seq.seq_id].is_stopped = True

    def remove(self, seq: Sequence) -> None:
        """Forget a sequence that has ended."""
        self._streams.pop(seq.seq_id, None)


def _default_sources(seq: Sequence) -> Sources:
    return (Lookup(seq.request.prediction),)
