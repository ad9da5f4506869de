"""One request's outputs while they grow: text, log-probabilities, times.

Turns the scheduler's sequences into the `RequestOutput` that a user sees.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from quire.core.beam_search import Hypothesis
from quire.core.request import Request, RequestStatus
from quire.core.scheduling.step_results import SequenceUpdate
from quire.outputs import (
    CompletionOutput,
    Delta,
    Logprob,
    RequestMetrics,
    RequestOutput,
    Resumption,
    TokenLogprobs,
)
from quire.prompt import Prompt
from quire.text.detokenizer import IncrementalDetokenizer
from quire.text.tokenizer import Tokenizer


@dataclass(slots=True, eq=False)
class _Completion:
    """One output of the request."""

    detokenizer: IncrementalDetokenizer | None
    logprobs: list[dict[int, Logprob]] | None = None
    cumulative_logprob: float | None = None
    token_ids: list[int] = field(default_factory=list)
    finish_reason: str | None = None
    stop_reason: int | str | None = None
    last_token_time: float | None = None
    num_told: int = 0  #: tokens that `take_progress` has given out
    is_told: bool = False  #: its end, too

    def take_progress(self, index: int) -> Delta | None:
        if self.is_told:
            return None
        self.is_told = self.finish_reason is not None
        text = self.detokenizer.take_delta(self.is_told) if self.detokenizer is not None else ""
        start, self.num_told = self.num_told, len(self.token_ids)
        if not (text or self.is_told or self.num_told > start):
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
    """A request with its outputs so far.

    Args:
        request: as the scheduler knows it.
        prompt: as it was accepted.
        tokenizer: None makes no text.
        arrival_time: seconds on the engine's clock.
        is_staged: whether to count which stage of the model made which tokens.
        grammar: of the request, which is there as long as this is.
    """

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
        self._prompt_entries: dict[int, TokenLogprobs] = {}
        self._is_staged = is_staged
        self._grammar = grammar
        self._stages: list[tuple[int, int]] = []  #: and how many tokens each made, in order

    @property
    def is_finished(self) -> bool:
        return self.request.status.is_finished

    def add(self, update: SequenceUpdate, now: float) -> str | None:
        """Take in new tokens. Returns the stop string that they complete, where the sequence must end."""
        seq, params = update.sequence, self.request.sampling_params
        if self._is_staged:
            self._note_stage(len(update.token_ids))
        if self.request.beam is not None:
            return None  # all beams may change until the search ends; `finish` takes them
        completion = self._completions.get(seq.index)
        if completion is None:
            completion = self._begin(seq.index)
        if self.metrics.first_token_time is None:
            self.metrics.first_token_time = now
        self.metrics.last_token_time = now
        completion.last_token_time = now
        completion.token_ids.extend(update.token_ids)
        if completion.logprobs is not None and update.logprobs is not None:
            completion.logprobs.extend(self._decode(entry) for entry in update.logprobs)
            completion.cumulative_logprob = seq.cumulative_logprob
        if seq.finish_reason is not None:
            completion.finish_reason = seq.finish_reason.value
            completion.stop_reason = seq.stop_reason
        if completion.detokenizer is None:
            return None
        shown = update.token_ids
        if seq.finish_reason is RequestStatus.FINISHED_STOPPED and not params.include_stop_str_in_output:
            shown = shown[:-1]  # the token that ended it is no part of the text
        stop = None
        if shown:
            has_enough = len(completion.token_ids) >= params.min_tokens
            stop = completion.detokenizer.append(shown, check_stop=has_enough)
        if stop is not None:
            completion.finish_reason, completion.stop_reason = RequestStatus.FINISHED_STOPPED.value, stop
        return stop

    def restore(self, so_far: Resumption) -> None:
        """Begin behind outputs that another engine has made, and that have been told."""
        self.metrics.first_scheduled_time = so_far.first_scheduled_time
        self.metrics.first_token_time = so_far.first_token_time
        params = self.request.sampling_params
        if self._is_staged:
            self._stages.append((so_far.stage, so_far.num_tokens))
        for index, output in enumerate(so_far.outputs):
            completion = self._begin(index)
            completion.token_ids = list(output.token_ids)
            completion.finish_reason, completion.stop_reason = output.finish_reason, output.stop_reason
            if completion.logprobs is not None:
                completion.logprobs = list(output.logprobs or ())
                completion.cumulative_logprob = output.cumulative_logprob
            if completion.detokenizer is not None:
                is_stop_token = output.finish_reason == "stop" and not isinstance(output.stop_reason, str)
                hides_last = is_stop_token and not params.include_stop_str_in_output
                for count, token in enumerate(output.token_ids[: -1 if hides_last else None], start=1):
                    completion.detokenizer.append([token], check_stop=count >= params.min_tokens)
            completion.take_progress(index)

    def _note_stage(self, num_tokens: int) -> None:
        """The stage that the request is at made tokens."""
        stage, stages = self.request.stage, self._stages
        if stages and stages[-1][0] == stage:
            stages[-1] = stage, stages[-1][1] + num_tokens
        elif num_tokens:
            stages.append((stage, num_tokens))

    def last_token_time(self, index: int) -> float | None:
        """When the output with this index got its last token; None before its first."""
        completion = self._completions.get(index)
        return completion.last_token_time if completion is not None else None

    def add_prompt_logprobs(self, entries: Iterable[tuple[int, TokenLogprobs]]) -> None:
        self._prompt_entries.update(entries)  # again after a preemption: the same values

    def finish(self, now: float) -> None:
        """The request has ended: note the time, and how the outputs that are still open ended."""
        self.metrics.finished_time = now
        self.metrics.num_preemptions = self.request.num_preemptions
        search = self.request.beams
        if search is not None and search.is_done:
            self._take_beams(search.finished)
        if not self._completions:  # it ended before its first token
            self._begin(0)
        for completion in self._completions.values():
            if completion.finish_reason is None:
                completion.finish_reason = self.request.status.value
            if completion.detokenizer is not None:
                completion.detokenizer.finish()

    def _take_beams(self, found: Iterable[Hypothesis]) -> None:
        self.metrics.first_token_time = self.metrics.last_token_time = self.metrics.finished_time
        for index, hypothesis in enumerate(found):
            completion = self._completions[index] = _Completion(self._detokenizer())
            completion.token_ids = list(hypothesis.token_ids)
            completion.cumulative_logprob = hypothesis.sum_logprob
            completion.finish_reason = "stop" if hypothesis.stopped else "length"
            if self._is_staged:  # beams change until the search ends: they count as made where it ended
                self._note_stage(len(hypothesis.token_ids))
            if completion.detokenizer is not None:
                completion.detokenizer.append(completion.token_ids[:-1] if hypothesis.stopped else completion.token_ids)

    def _begin(self, index: int) -> _Completion:
        found = self._completions[index] = _Completion(self._detokenizer())
        if self.request.sampling_params.logprobs is not None:
            found.logprobs, found.cumulative_logprob = [], 0.0
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

    def _decode(self, entry: TokenLogprobs) -> dict[int, Logprob]:
        """The likeliest tokens, likeliest first, and the chosen one (last, where it is not among them)."""
        text = self.tokenizer.token_text if self.tokenizer is not None else None
        is_ranked = not self.request.sampling_params.logprob_token_ids  # else the places of these few are no ranks
        found = {
            token: Logprob(logprob, rank if is_ranked else None, text(token) if text else None)
            for rank, (token, logprob) in enumerate(zip(entry.top_ids, entry.top_logprobs, strict=True), start=1)
        }
        token = entry.token_id
        found[token] = Logprob(entry.logprob, entry.rank, text(token) if text else None)
        return found

    def to_output(self) -> RequestOutput:
        """A snapshot. Text is what is decided so far; while a stop string may still match, part of it may go again."""
        request = self.request
        prompt_logprobs: list[dict[int, Logprob] | None] | None = None
        if request.sampling_params.prompt_logprobs is not None:
            decoded = {position: self._decode(entry) for position, entry in self._prompt_entries.items()}
            prompt_logprobs = [decoded.get(position) for position in range(len(request.prompt_token_ids))]
        outputs = [
            CompletionOutput(
                index=index,
                text=completion.detokenizer.text if completion.detokenizer is not None else "",
                token_ids=list(completion.token_ids),
                logprobs=list(completion.logprobs) if completion.logprobs is not None else None,
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
            cached_tokens=dict(request.cached_tokens or {}),
            metrics=self.metrics,
            prompt_logprobs=prompt_logprobs,
            finished=self.is_finished,
            error=request.error,
            stages=list(self._stages),
        )

    def take_progress(self) -> list[Delta]:
        """The gain of each output since the last call. Its text is whole characters, no part of which may still be a
        stop string."""
        found = (completion.take_progress(index) for index, completion in sorted(self._completions.items()))
        return [delta for delta in found if delta is not None]
