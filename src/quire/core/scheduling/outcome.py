"""What a step brought: tokens are appended, prompts fork into their samples, beams go on, and what is over ends."""

from __future__ import annotations

from dataclasses import dataclass

from quire.core.kv_cache_manager import KVCacheManager
from quire.core.request import Request, RequestStatus, Sequence
from quire.core.scheduling.lifecycle import Lifecycle
from quire.core.scheduling.step_builder import StepBuilder
from quire.core.swap_manager import SwapManager
from quire.outputs import StepOutput, TokenLogprobs


@dataclass(slots=True)
class SequenceUpdate:
    """New tokens of one sequence, for whoever turns them into text and answers; none where a beam search has ended."""

    sequence: Sequence
    token_ids: list[int]
    logprobs: list[TokenLogprobs] | None = None


class Outcome:
    """Args:
    life: of the requests.
    kv: block tables and pool.
    swap: the tiers.
    step: tells the runner of tokens that it did not draw.
    """

    def __init__(self, life: Lifecycle, kv: KVCacheManager, swap: SwapManager, step: StepBuilder) -> None:
        self._life = life
        self._kv = kv
        self._swap = swap
        self._step = step

    def take_in(self, result: StepOutput, *, only_ended: bool = False) -> list[SequenceUpdate]:
        """Append a step's tokens, and end what they end.

        Args:
            only_ended: the caller has no use for sequences that go on; some may be returned.

        Returns:
            The sequences that got tokens, with these.
        """
        updates: list[SequenceUpdate] = []
        sequences = self._life.sequences
        logprobs = result.logprobs
        self._life.counts.sampled_tokens += len(result.seq_ids)
        for seq_id, sampled in zip(result.seq_ids, result.sampled, strict=True):
            seq = sequences.get(seq_id)
            if seq is None or seq.finish_reason is not None or not seq.is_in_runner:
                continue  # ended while the step was under way
            if not logprobs and len(sampled) == 1:  # nearly every token: as `_append`, without the call
                token_ids, token_id = seq.token_ids, sampled[0]
                token_ids.append(token_id)
                if token_id in seq.stop_token_ids or len(token_ids) >= seq.num_tokens_at_end:
                    updates.append(SequenceUpdate(seq, [token_id]))
                    self._end_if_over(seq, token_id)
                elif not only_ended:
                    updates.append(SequenceUpdate(seq, [token_id]))
                continue
            request, entries = seq.request, logprobs.get(seq_id)
            if request.beam is not None:
                assert entries is not None
                seq.candidates = list(zip(entries[0].top_ids, entries[0].top_logprobs, strict=True))
                if all(beam.candidates is not None for beam in request.unfinished):
                    self._advance_beams(request, updates)
            elif len(sampled) == 1:
                self._append(seq, sampled[0], entries, updates)
            else:
                self._fork(seq, sampled, entries, updates)
        return updates

    def _append(
        self, seq: Sequence, token_id: int, entries: list[TokenLogprobs] | None, updates: list[SequenceUpdate]
    ) -> None:
        seq.token_ids.append(token_id)
        if entries is not None:
            seq.cumulative_logprob += entries[0].logprob
        updates.append(SequenceUpdate(seq, [token_id], entries))
        self._end_if_over(seq, token_id)

    def _end_if_over(self, seq: Sequence, token_id: int) -> None:
        """A sequence's latest token may be one to stop at, or the last that it may have."""
        request, num_output_tokens = seq.request, seq.num_output_tokens
        params = request.sampling_params
        may_end = num_output_tokens >= params.min_tokens or params.structured_outputs is not None
        if token_id in request.stop_token_ids and may_end:
            is_models_own = token_id in request.eos_token_ids
            self._life.finish_sequence(seq, RequestStatus.FINISHED_STOPPED, None if is_models_own else token_id)
        elif num_output_tokens >= request.max_tokens:
            self._life.finish_sequence(seq, RequestStatus.FINISHED_LENGTH)

    def _fork(
        self, seq: Sequence, tokens: list[int], entries: list[TokenLogprobs] | None, updates: list[SequenceUpdate]
    ) -> None:
        """The prompt is computed: n sequences go on from it, each with its own first token."""
        request = seq.request
        self._life.counts.sampled_tokens += len(tokens) - 1
        for index in range(1, len(tokens)):
            child = self._life.new_sequence(request, index, list(seq.token_ids))
            self._kv.fork(seq, child)
            request.sequences.append(child)
            request.unfinished.append(child)
        for i, (sibling, token_id) in enumerate(zip(list(request.sequences), tokens, strict=True)):
            self._append(sibling, token_id, None if entries is None else [entries[i]], updates)

    def _advance_beams(self, request: Request, updates: list[SequenceUpdate]) -> None:
        search, beams = request.beams, request.unfinished
        assert search is not None
        going_on = search.advance(
            [(beam.output_token_ids, beam.cumulative_logprob, beam.candidates or []) for beam in beams]
        )
        if search.is_done:
            updates.append(SequenceUpdate(beams[0], []))
            stopped = any(h.stopped for h in search.finished)
            reason = RequestStatus.FINISHED_STOPPED if stopped else RequestStatus.FINISHED_LENGTH
            for beam in list(beams):
                self._life.finish_sequence(beam, reason)
            return
        next_unfinished: list[Sequence] = []
        continued: set[int] = set()
        for candidate in going_on:  # forks first: they need the parents' tables as they are
            if candidate.beam in continued:
                parent = beams[candidate.beam]
                child = self._life.new_sequence(request, parent.index, list(parent.token_ids))
                self._kv.fork(parent, child)
            else:
                continued.add(candidate.beam)
                child = beams[candidate.beam]
            child.cumulative_logprob = candidate.sum_logprob
            next_unfinished.append(child)
        for at, beam in enumerate(beams):
            if at not in continued:
                self._life.drop(beam)
                self._swap.abandon(beam)
                del self._life.sequences[beam.seq_id]
        for index, (beam, candidate) in enumerate(zip(next_unfinished, going_on, strict=True)):
            self._step.tell_token(beam, candidate.token_id)
            beam.token_ids.append(candidate.token_id)
            beam.candidates = None
            beam.index = index
        request.sequences = next_unfinished
        request.unfinished = list(next_unfinished)
