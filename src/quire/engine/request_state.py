"""The growing outputs of one request: text, log-probabilities, times."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from quire.core.beam_search import Hypothesis
from quire.core.request import Request, RequestStatus
from quire.core.scheduling.step_results import SequenceUpdate
from quire.outputs import CompletionOutput, Delta, Logprobs, RequestMetrics, RequestOutput, Resumption, TokenLogprobs
from quire.prompt import Prompt
from quire.text.detokenizer import IncrementalDetokenizer
from quire.text.tokenizer import Tokenizer


@dataclass(slots=True, eq=False)
class _Completion:
    detokenizer: IncrementalDetokenizer | None
    logprobs: Logprobs | None = None
    cumulative_logprob: float | None = None
    token_ids: list[int] = field(default_factory=list)
    finish_reason: str | None = None
    stop_reason: int | str | None = None
    last_token_time: float | None = None
    num_reported: int = 0  #: tokens that `pop_delta` has returned
    is_reported: bool = False  #: so has its end

    def pop_delta(self, index: int) -> Delta | None:
        if self.is_reported:
            return None
        self.is_reported = self.finish_reason is not None
        text = self.detokenizer.take_delta(self.is_reported) if self.detokenizer is not None else ""
        start, self.num_reported = self.num_reported, len(self.token_ids)
        if not (text or self.is_reported or self.num_reported > start):
            return None
        return Delta(
            index,
            text,
            self.token_ids[start:],
            self.logprobs[start:] if self.logprobs is not None else None,
            self.finish_reason,
            self.stop_reason,
        )


class RequestState:
    """A request with its outputs so far, from the scheduler's sequences. `is_staged` counts each stage's tokens."""

    def __init__(
        self,
        request: Request,
        prompt: Prompt,
        tokenizer: Tokenizer | None,
        arrival_time: float,
        *,
        is_staged: bool = False,
        grammar: object = None,
    ) -> None:
        self.request = request
        self.prompt = prompt
        self.tokenizer = tokenizer
        self.metrics = RequestMetrics(arrival_time)
        self._completions: dict[int, _Completion] = {}
        self._prompt_logprobs = self._logprobs()
        self._is_staged = is_staged
        self._grammar = grammar
        self._stages: list[tuple[int, int]] = []  #: (stage, tokens sampled with it), in order
        self.pooled: bytes | None = None  #: see `RequestOutput`

    @property
    def is_finished(self) -> bool:
        return self.request.status.is_finished

    def add(self, update: SequenceUpdate, now: float) -> str | None:
        """Add new tokens. Returns the stop string that they complete, if any."""
        seq, params = update.sequence, self.request.sampling_params
        if self._is_staged:
            self._count_stage(len(update.token_ids))
        if self.request.beam is not None:
            return None  # beams may change until the search ends; `finish` adds them
        completion = self._completions.get(seq.index)
        if completion is None:
            completion = self._new_completion(seq.index)
        if self.metrics.first_token_time is None:
            self.metrics.first_token_time = now
        self.metrics.last_token_time = now
        completion.last_token_time = now
        completion.token_ids.extend(update.token_ids)
        if completion.logprobs is not None and update.logprobs is not None:
            for entry in update.logprobs:
                completion.logprobs.append(entry)
            completion.cumulative_logprob = seq.cumulative_logprob
        if seq.finish_reason is not None:
            completion.finish_reason = seq.finish_reason.value
            completion.stop_reason = seq.stop_reason
        if completion.detokenizer is None:
            return None
        shown = update.token_ids
        if seq.finish_reason is RequestStatus.FINISHED_STOPPED and not params.include_stop_str_in_output:
            shown = shown[:-1]  # the stop token is not part of the text
        stop = None
        if shown:
            has_enough = len(completion.token_ids) >= params.min_tokens
            stop = completion.detokenizer.append(shown, check_stop=has_enough)
        if stop is not None:
            completion.finish_reason, completion.stop_reason = RequestStatus.FINISHED_STOPPED.value, stop
        return stop

    def restore(self, so_far: Resumption) -> None:
        """Continue outputs of another engine. Their deltas have been reported."""
        self.metrics.first_scheduled_time = so_far.first_scheduled_time
        self.metrics.first_token_time = so_far.first_token_time
        params = self.request.sampling_params
        if self._is_staged:
            self._stages.append((so_far.stage, so_far.num_tokens))
        for index, output in enumerate(so_far.outputs):
            completion = self._new_completion(index)
            completion.token_ids = list(output.token_ids)
            completion.finish_reason, completion.stop_reason = output.finish_reason, output.stop_reason
            if completion.logprobs is not None and output.logprobs is not None:
                completion.logprobs.extend(output.logprobs)
                completion.cumulative_logprob = output.cumulative_logprob
            if completion.detokenizer is not None:
                is_stop_token = output.finish_reason == "stop" and not isinstance(output.stop_reason, str)
                hides_last = is_stop_token and not params.include_stop_str_in_output
                for count, token in enumerate(output.token_ids[: -1 if hides_last else None], start=1):
                    completion.detokenizer.append([token], check_stop=count >= params.min_tokens)
            completion.pop_delta(index)

    def _count_stage(self, num_tokens: int) -> None:
        stage, stages = self.request.stage, self._stages
        if stages and stages[-1][0] == stage:
            stages[-1] = stage, stages[-1][1] + num_tokens
        elif num_tokens:
            stages.append((stage, num_tokens))

    def last_token_time(self, index: int) -> float | None:
        """Return the time of an output's last token; None before its first."""
        completion = self._completions.get(index)
        return completion.last_token_time if completion is not None else None

    def add_prompt_logprobs(self, entries: Iterable[tuple[int, TokenLogprobs]]) -> None:
        found = self._prompt_logprobs
        for position, entry in entries:
            if position >= len(found):  # a preemption repeats positions, with the same values
                while len(found) < position:
                    found.append(None)
                found.append(entry)

    def finish(self, now: float) -> None:
        """End the request: set the time and the finish reasons of open outputs."""
        self.metrics.finished_time = now
        self.metrics.num_preemptions = self.request.num_preemptions
        search = self.request.beams
        if search is not None and search.is_done:
            self._add_beams(search.finished)
        if not self._completions:  # ended before its first token
            self._new_completion(0)
        for completion in self._completions.values():
            if completion.finish_reason is None:
                completion.finish_reason = self.request.status.value
            if completion.detokenizer is not None:
                completion.detokenizer.finish()

    def _add_beams(self, found: Iterable[Hypothesis]) -> None:
        self.metrics.first_token_time = self.metrics.last_token_time = self.metrics.finished_time
        for index, hypothesis in enumerate(found):
            completion = self._completions[index] = _Completion(self._detokenizer())
            completion.token_ids = list(hypothesis.token_ids)
            completion.cumulative_logprob = hypothesis.sum_logprob
            completion.finish_reason = "stop" if hypothesis.stopped else "length"
            if self._is_staged:  # beams count for the stage in which the search ended
                self._count_stage(len(hypothesis.token_ids))
            if completion.detokenizer is not None:
                completion.detokenizer.append(completion.token_ids[:-1] if hypothesis.stopped else completion.token_ids)

    def _new_completion(self, index: int) -> _Completion:
        found = self._completions[index] = _Completion(self._detokenizer())
        if self.request.sampling_params.logprobs is not None:
            found.logprobs, found.cumulative_logprob = self._logprobs(), 0.0
        return found

    def _detokenizer(self) -> IncrementalDetokenizer | None:
        params = self.request.sampling_params
        if self.tokenizer is None or not params.detokenize:
            return None
        return IncrementalDetokenizer(
            self.tokenizer,
            skip_special_tokens=params.skip_special_tokens,
            stop=params.stop,
            include_stop_str_in_output=params.include_stop_str_in_output,
            prompt_token_ids=self.request.prompt_token_ids,
            lead=self.prompt.answer_lead,
            shown_specials=self.prompt.shown_specials,
        )

    def _logprobs(self) -> Logprobs:
        text = self.tokenizer.token_text if self.tokenizer is not None else None
        # Positions among requested tokens are no ranks.
        return Logprobs(text, is_ranked=not self.request.sampling_params.logprob_token_ids)

    def to_output(self) -> RequestOutput:
        """Return a snapshot. The end of a text may be removed again while a stop string may match."""
        request = self.request
        prompt_logprobs: Logprobs | None = None
        if request.sampling_params.prompt_logprobs is not None:
            prompt_logprobs = self._prompt_logprobs[:]
            while len(prompt_logprobs) < len(request.prompt_token_ids):
                prompt_logprobs.append(None)
        outputs = [
            CompletionOutput(
                index=index,
                text=completion.detokenizer.text if completion.detokenizer is not None else "",
                token_ids=list(completion.token_ids),
                logprobs=completion.logprobs[:] if completion.logprobs is not None else None,
                cumulative_logprob=completion.cumulative_logprob,
                finish_reason=completion.finish_reason,
                stop_reason=completion.stop_reason,
            )
            for index, completion in sorted(self._completions.items())
        ]
        return RequestOutput(
            request_id=request.request_id,
            prompt=self.prompt.text,
            prompt_token_ids=list(request.prompt_token_ids),
            outputs=outputs,
            num_cached_tokens=request.num_cached_tokens,
            cached_tokens=request.cached_tokens,
            sources=request.all_sources,
            num_chosen_tokens=request.num_chosen_tokens,
            metrics=self.metrics,
            prompt_logprobs=prompt_logprobs,
            finished=self.is_finished,
            error=request.error,
            stages=list(self._stages),
            predicted_tokens=request.num_predicted if self.prompt.prediction else None,
            pooled=self.pooled,
        )

    def pop_deltas(self) -> list[Delta]:
        """Return the new part of each output: whole characters, without a possible stop string."""
        found = (completion.pop_delta(index) for index, completion in sorted(self._completions.items()))
        return [delta for delta in found if delta is not None]
