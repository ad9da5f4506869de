"""Decide how many draft tokens a step verifies, by cost.

A sequence that decodes has one token to compute. With k draft tokens behind it, a step computes k + 1, samples at each
of these positions as it would without drafts, and confirms the drafts that equal what it samples. So no output changes.
If a draft token is right with probability p once those before it are, the i-th is confirmed with p^i. A step takes the
likeliest drafts, as many as give the most expected tokens per second. A draft model adds a pass for the first token of
all sequences that it drafts for, another for the second, and so on.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from quire.config import DraftFacts
from quire.core.decisions.costs import Costs, StepShape
from quire.core.kv_cache_manager import KVCacheManager
from quire.core.request import Sequence
from quire.core.request_queue import RequestQueue
from quire.core.scheduling.step_builder import StepBuilder
from quire.core.speculation.acceptance import Acceptance, AcceptanceRate, own_rate
from quire.core.speculation.draft_costs import DraftCosts
from quire.core.speculation.draft_slots import append_drafts
from quire.core.speculation.drafts import Draft, DraftSource, Lookup, model_draft
from quire.outputs import StepOutput

_LEAST_GAIN = 1.05  #: of expected tokens per second, for drafts to be worth it
_LEAST_CHANCE = 0.05  #: of a draft token to be confirmed, to be considered
_FREE = 0.1  #: rate of acceptance that a draft model must have more, since its passes take time
_KNOWN_ROWS = 16  #: of a step, whose time the cost model soon knows; more only where as many streams decoded together
_EXPLORED = 0.01  #: of the steps' time, to try a draft model again that did not pay

Sources = tuple[DraftSource, ...]


@dataclass(slots=True)
class _Stream:
    """A sequence that decodes."""

    sources: Sources
    is_stopped: bool = False
    num_read: int = 0  #: tokens that the draft model has read
    _texts: AcceptanceRate = field(default_factory=own_rate)
    _model: AcceptanceRate = field(default_factory=own_rate)

    def own(self, draft: Draft) -> AcceptanceRate:
        """Return the sequence's own rate, of the draft model or of all other sources."""
        return self._model if draft.is_from_model else self._texts


@dataclass(slots=True)
class _Proposal:
    """A draft in the step in flight, of which the step verifies the first `num_verified` tokens."""

    at: int  #: the sequence's place in the step
    seq: Sequence
    stream: _Stream
    draft: Draft
    rate: float  #: of acceptance
    num_verified: int = 0


@dataclass(slots=True)
class SpeculationCounts:
    """Since the start."""

    drafts: int = 0
    draft_tokens: int = 0
    accepted: Counter[str] = field(default_factory=Counter)  #: tokens, by position in their draft, from 0 on


class Speculator:
    """Adds draft tokens to steps, at most `most` to a sequence, and learns from their results. Without `costs` it adds
    all that there are. `make_sources` replaces the sources of a sequence, the first of which has the word.
    `draft_model` is the runner's."""

    def __init__(
        self,
        most: int,
        kv: KVCacheManager,
        queue: RequestQueue,
        costs: Costs | None,
        make_sources: Callable[[Sequence], Sources] | None = None,
        *,
        draft_model: DraftFacts | None = None,
    ) -> None:
        self.most = most
        self.counts = SpeculationCounts()
        self._kv = kv
        self._queue = queue
        self.costs = costs
        self.make_sources = make_sources or (lambda seq: (Lookup(seq.request.prediction),))
        self.acceptance = Acceptance()
        self.draft_costs = None if draft_model is None else DraftCosts(draft_model)
        self._most_streams = _KNOWN_ROWS  #: that one step decoded
        self._explore_s = 0.0  #: saved up to try the draft model
        self._streams: dict[int, _Stream] = {}  #: by sequence
        self._forced: dict[int, list[int]] = {}  #: by sequence, the only continuation that its grammar allows
        self._in_flight: list[_Proposal] = []

    def add_drafts(self, step: StepBuilder, left: int) -> None:
        """Add at most `left` draft tokens to the decoding sequences of a step that is otherwise planned. They take only
        blocks that nothing else needs."""
        if self._kv.num_state_records:
            left = min(left, self.most)  # the runner keeps the states after so many drafts
        if self.most == 0 or left < 1 or not step.num_seqs:
            return
        shape = step.shape.total()
        if shape.num_tokens == shape.num_seqs:
            self._most_streams = max(self._most_streams, shape.num_seqs)
        if not self._may_pay(shape, left):
            return
        step.want_forced()
        chances: list[tuple[float, int, _Proposal]] = []  #: of a draft token, with its number
        for at, seq_id in step.decodes():
            seq = self._queue.sequences.get(seq_id)
            if seq is not None and (most := self._most_drafts(seq)) > 0 and (found := self._propose(at, seq, most)):
                for number in range(1, len(found.draft.token_ids) + 1):
                    if (chance := found.rate**number) < _LEAST_CHANCE and self.costs is not None:
                        break
                    chances.append((chance, number, found))
        chances.sort(key=lambda each: -each[0])
        for _, _, found in chances[: self._best_number(chances[:left], shape)]:
            found.num_verified += 1
        if self.draft_costs is not None and self.costs is not None:
            self._explore(self.draft_costs, self.costs.step(shape))
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
            drafts: list[Draft | None] = [Draft(forced[:most], "grammar", prior=0.95)]
        else:
            drafts = [next((draft for source in stream.sources if (draft := source.propose(seq, most))), None)]
            if self.draft_costs is not None:
                drafts.append(model_draft(most))
        rated = [(self.acceptance.rate(each.kind, each.prior, stream.own(each)), each) for each in drafts if each]
        if not rated:
            return None
        rate, draft = max(rated, key=lambda each: each[0] - _FREE * each[1].is_from_model)
        self._in_flight.append(_Proposal(at, seq, stream, draft, rate))
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
        num_streams = shape.decoding.num_seqs
        step_s, decoding_s = self.costs.step(shape), self.costs.step(shape.decoding)
        least_s = decoding_s * _LEAST_GAIN / num_streams  #: per token
        most = min(left, self.most * num_streams)
        return any(
            decoding_s + self.costs.step(shape.plus_drafts(0, extra)) - step_s < least_s * (num_streams + extra)
            for extra in (most, *(1 << bit for bit in range(most.bit_length())))
        )

    def _best_number(self, chances: list[tuple[float, int, _Proposal]], shape: StepShape) -> int:
        """Return with how many of the likeliest draft tokens a step gives the most expected tokens per second. Prompts
        in the step take their time with drafts or without."""
        if self.costs is None:
            return len(chances)
        expected, best = float(shape.decoding.num_seqs), 0
        step_s, decoding_s = self.costs.step(shape), self.costs.step(shape.decoding)
        token_s, prompts_s = step_s / shape.num_tokens, step_s - decoding_s
        least_s, drafting_s, num_passes = decoding_s / (expected * _LEAST_GAIN), 0.0, 0
        for count, (chance, number, found) in enumerate(chances, start=1):
            expected += chance
            shape = shape.plus_drafts(found.seq.num_computed_tokens, 1)
            if self.draft_costs is not None and found.draft.is_from_model:
                if number == 1:  # the longer a text has become, the longer it may go on
                    drafting_s += self._read_s(found, self.draft_costs, step_s) / max(8, found.seq.num_output_tokens)
                if number > num_passes:
                    num_passes = number
                    drafting_s += self.draft_costs.one_pass(step_s)
            seconds = self.costs.step(shape)
            if shape.num_tokens > self._most_streams:  # guessed from prompts, whose rows cost less
                seconds = max(seconds, token_s * shape.num_tokens)
            if (per_token := (seconds - prompts_s + drafting_s) / expected) < least_s:
                least_s, best = per_token, count
        return best

    @staticmethod
    def _read_s(found: _Proposal, costs: DraftCosts, step_s: float) -> float:
        """Return the seconds in which the draft model reads what it has not read of a sequence."""
        return costs.read(len(found.seq.token_ids) - found.stream.num_read, step_s)

    def _explore(self, costs: DraftCosts, step_s: float) -> None:
        """Verify a token of the draft model now and then, even if it is not expected to pay: it may do so by now."""
        found = next((each for each in self._in_flight if each.draft.is_from_model), None)
        if found is None or any(each.num_verified and each.draft.is_from_model for each in self._in_flight):
            return
        self._explore_s += _EXPLORED * step_s
        if costs.one_pass(step_s) + self._read_s(found, costs, step_s) < self._explore_s:
            self._explore_s = 0.0
            found.num_verified = 1

    def _add(self, found: _Proposal, step: StepBuilder) -> None:
        room = max(0, self._kv.pool.num_available - step.num_reserved)
        new_blocks = append_drafts(self._kv, found.seq, found.num_verified, room)
        found.num_verified = found.seq.num_draft_tokens
        if found.num_verified:
            step.add_draft(found.at, found.seq, found.draft.token_ids[: found.num_verified], new_blocks)
            if found.draft.is_from_model:
                found.stream.num_read = len(found.seq.token_ids)

    def end_step(self, result: StepOutput) -> list[Sequence]:
        """Learn from a step's result. Returns the sequences that had drafts to verify."""
        proposals, self._in_flight = self._in_flight, []
        self._forced = result.forced
        if self.draft_costs is not None and result.drafting is not None:
            self.draft_costs.observe(result.drafting)
        if not proposals:
            return []
        sampled = dict(zip(result.seq_ids, result.sampled, strict=True))
        for found in proposals:
            tokens, draft = sampled.get(found.seq.seq_id), found.draft
            if not tokens or (draft.is_from_model and not found.num_verified):
                continue
            num_right = len(tokens) - 1 if found.num_verified else int(tokens[0] == draft.token_ids[0])
            self.acceptance.observe(draft.kind, found.stream.own(draft), num_right, max(1, found.num_verified))
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
