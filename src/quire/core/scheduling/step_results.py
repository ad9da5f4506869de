"""Apply the results of a step: append tokens, fork prompts into samples, advance beams, finish sequences."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from quire.core.request import Request, RequestStatus, Sequence
from quire.core.request_queue import RequestQueue
from quire.core.scheduling.counts import SchedulerCounts
from quire.core.scheduling.step_builder import StepBuilder
from quire.core.speculation.draft_slots import confirm_draft, drop_drafts
from quire.core.speculation.speculator import Speculator
from quire.core.swap_manager import SwapManager
from quire.outputs import StepOutput, TokenLogprobs


@dataclass(slots=True)
class SequenceUpdate:
    """New tokens of one sequence. None where a beam search has finished: its hypotheses have them."""

    sequence: Sequence
    token_ids: list[int]
    logprobs: list[TokenLogprobs] | None = None


_Entries = list[TokenLogprobs] | None
_Updates = list[SequenceUpdate]


@dataclass(frozen=True, slots=True)
class StepResults:
    """Applies results to sequences. `finish_sequence` gets a status and a stop reason (`Scheduler.finish_sequence`)."""

    queue: RequestQueue
    swap: SwapManager
    step: StepBuilder
    speculator: Speculator
    counts: SchedulerCounts
    finish_sequence: Callable[[Sequence, RequestStatus, int | str | None], None]
    #: Sequences whose drafts were right, with the tokens that `apply_next` still has to append.
    _confirmed: list[tuple[Sequence, list[int], _Entries]] = field(default_factory=list)

    def apply(self, result: StepOutput, *, only_ended: bool = False) -> list[SequenceUpdate]:
        updates: list[SequenceUpdate] = []
        sequences, logprobs = self.queue.sequences, result.logprobs
        self.counts.sampled_tokens += len(result.seq_ids)
        for seq_id, sampled in zip(result.seq_ids, result.sampled, strict=True):
            seq = sequences.get(seq_id)
            if seq is None or seq.finish_reason is not None or not seq.is_in_runner:
                continue  # ended while the step was computed
            entries = logprobs.get(seq_id)
            if entries is not None and seq.request.beam is not None:
                seq.candidates = list(zip(entries[0].top_ids, entries[0].top_logprobs, strict=True))
                if all(beam.candidates is not None for beam in seq.request.unfinished):
                    self._advance_beams(seq.request, updates)
            elif len(sampled) == 1:
                self._append(seq, sampled[0], entries, updates, only_ended)
            elif seq.num_draft_tokens:
                self._confirmed.append((seq, sampled, entries))
            else:
                self._fork(seq, sampled, entries, updates, only_ended)
        confirmed = {seq.seq_id for seq, _, _ in self._confirmed}
        for seq in self.speculator.end_step(result):
            if seq.seq_id not in confirmed:
                drop_drafts(self.swap.kv, seq)
        for seq, sampled, entries in self._confirmed:
            self._append(seq, sampled[0], entries and entries[:1], updates, only_ended)
        return updates

    def apply_next(self, *, only_ended: bool = False) -> list[SequenceUpdate]:
        """Append the next confirmed token of each sequence that goes on. Returns [] once there are no more."""
        updates: list[SequenceUpdate] = []
        kv, rest = self.swap.kv, []
        for seq, sampled, entries in self._confirmed:
            if seq.finish_reason is not None:
                continue
            confirm_draft(kv, seq)
            sampled, entries = sampled[1:], entries and entries[1:]
            if len(sampled) == 1:
                drop_drafts(kv, seq)
            else:
                rest.append((seq, sampled, entries))
            self.counts.sampled_tokens += 1
            self._append(seq, sampled[0], entries and entries[:1], updates, only_ended)
        self._confirmed[:] = rest
        return updates

    def _append(self, seq: Sequence, token_id: int, entries: _Entries, updates: _Updates, only_ended: bool) -> None:
        token_ids = seq.token_ids
        token_ids.append(token_id)
        if entries is not None:
            seq.cumulative_logprob += entries[0].logprob
        may_end = token_id in seq.stop_token_ids or len(token_ids) >= seq.num_tokens_at_end
        if may_end or not only_ended:
            updates.append(SequenceUpdate(seq, [token_id], entries))
        if may_end:
            self._finish_if_ended(seq, token_id)

    def _finish_if_ended(self, seq: Sequence, token_id: int) -> None:
        request, num_output_tokens = seq.request, seq.num_output_tokens
        params = request.sampling_params
        may_stop = num_output_tokens >= params.min_tokens or params.structured_outputs is not None
        if token_id in request.stop_token_ids and may_stop:
            is_models_own = token_id in request.eos_token_ids
            self.finish_sequence(seq, RequestStatus.FINISHED_STOPPED, None if is_models_own else token_id)
        elif num_output_tokens >= request.max_tokens:
            self.finish_sequence(seq, RequestStatus.FINISHED_LENGTH, None)

    def _fork(self, seq: Sequence, tokens: list[int], entries: _Entries, updates: _Updates, only_ended: bool) -> None:
        """Continue a computed prompt with n sequences, each with its own first token."""
        request = seq.request
        self.counts.sampled_tokens += len(tokens) - 1
        for index in range(1, len(tokens)):
            child = self.queue.new_sequence(request, index, list(seq.token_ids))
            self.swap.kv.fork(seq, child)
            request.sequences.append(child)
            request.unfinished.append(child)
        for i, (sibling, token_id) in enumerate(zip(list(request.sequences), tokens, strict=True)):
            self._append(sibling, token_id, None if entries is None else [entries[i]], updates, only_ended)

    def _advance_beams(self, request: Request, updates: list[SequenceUpdate]) -> None:
        search, beams = request.beams, request.unfinished
        assert search is not None
        continued_beams = search.advance(
            [(beam.output_token_ids, beam.cumulative_logprob, beam.candidates or []) for beam in beams]
        )
        if search.is_done:
            updates.append(SequenceUpdate(beams[0], []))
            stopped = any(h.stopped for h in search.finished)
            reason = RequestStatus.FINISHED_STOPPED if stopped else RequestStatus.FINISHED_LENGTH
            for beam in list(beams):
                self.finish_sequence(beam, reason, None)
            return
        next_unfinished: list[Sequence] = []
        continued: set[int] = set()
        for candidate in continued_beams:  # forks first: they need the parents' tables unchanged
            if candidate.beam in continued:
                parent = beams[candidate.beam]
                child = self.queue.new_sequence(request, parent.index, list(parent.token_ids))
                self.swap.kv.fork(parent, child)
            else:
                continued.add(candidate.beam)
                child = beams[candidate.beam]
            child.cumulative_logprob = candidate.sum_logprob
            next_unfinished.append(child)
        for at, beam in enumerate(beams):
            if at not in continued:
                self.swap.release_blocks(beam)
                self.swap.abandon(beam)
                self.step.remove(beam)
                self.queue.remove_sequence(beam)
        for index, (beam, candidate) in enumerate(zip(next_unfinished, continued_beams, strict=True)):
            self.step.set_token(beam, candidate.token_id)
            beam.token_ids.append(candidate.token_id)
            beam.candidates = None
            beam.index = index
        request.sequences = next_unfinished
        request.unfinished = list(next_unfinished)
