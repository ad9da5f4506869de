"""From logits to tokens. Every row is worked on alone, in an order of operations that no neighbour can change.

A token is drawn by inverting the cumulative distribution at one addressed random number. The nucleus (top_p) needs no
sort: a draw is kept if the tokens more likely than it weigh less than top_p, else all tokens no more likely than it are
out and the next number is drawn; the kept draws follow exactly the nucleus's distribution (rejection with a rising
threshold, as in FlashInfer's sorting-free sampler). Tokens tied with the nucleus's last one belong to it.
"""

from __future__ import annotations

import math

import numpy as np
import torch

from quire.kernels.elementwise import threads_for
from quire.models.layers import kernels_for
from quire.outputs import BROKEN_GRAMMAR, EVERY_TOKEN_IS_BANNED, NewSequence, TokenLogprobs
from quire.runner.random import uniform
from quire.runner.token_mask import ALL, allowed_places, apply_masks
from quire.structured.bits import bits_of, words_of
from quire.structured.grammar import GrammarError
from quire.structured.matcher import Grammars

_NO_NUMBERS = "the model's logits are not numbers (NaN or infinite)"
_COLD = 0.5  # temperatures at which the logits of a usual row may be that far apart
_LEAST_EXPONENT, _LEAST_WEIGHT = -87.0, 2e-38  # exp of the first is a normal number below the second
_CHUNK = 512  # of the vocabulary, summed at once where a cumulative sum is wanted


class RowState:
    """A sequence's memory for sampling: the tokens that it has seen, and how often each is in its output.

    Args:
        info: of the sequence.
        grammars: of the model, for a sequence whose output is in a language.

    Raises:
        GrammarError: its grammar cannot be compiled.
    """

    def __init__(self, info: NewSequence, grammars: Grammars | None = None) -> None:
        params = info.sampling_params
        self.info = info
        self.params = params
        self.num_output_tokens = len(info.token_ids) - info.num_prompt_tokens
        self.has_penalties = (
            params.repetition_penalty != 1.0 or params.presence_penalty != 0.0 or params.frequency_penalty != 0.0
        )
        self.is_plain = not (self.has_penalties or params.logit_bias)  #: its logits are the model's, but for bans
        self.is_argmax = (
            self.is_plain and params.is_greedy and params.logprobs is None and not info.num_candidates
        )  #: only the place of its largest logit matters
        self.output: list[int] = list(info.token_ids[info.num_prompt_tokens :])
        self.matcher = None
        if params.structured_outputs is not None and not info.num_candidates:
            assert grammars is not None
            self.matcher = grammars.matcher(params.structured_outputs, info.stop_token_ids, self.output)
        self._allowed: np.ndarray | None = None
        self._slot_of: dict[int, int] = {}
        self._ids = np.zeros(0, dtype=np.int64)
        self._counts = np.zeros(0, dtype=np.float32)
        if self.has_penalties:
            for at, token in enumerate(info.token_ids):
                self._count(token, is_output=at >= info.num_prompt_tokens)

    def append(self, token: int) -> None:
        self.num_output_tokens += 1
        self.output.append(token)
        if self.matcher is not None:
            self.matcher.advance((token,))
        if self.has_penalties:
            self._count(token, is_output=True)

    @property
    def has_bans(self) -> bool:
        """Whether some token is banned now."""
        params = self.params
        return (
            self.matcher is not None
            or params.allowed_token_ids is not None
            or bool(params.bad_words_token_ids)
            or self._must_go_on
        )

    @property
    def _must_go_on(self) -> bool:
        return self.num_output_tokens < self.params.min_tokens and bool(self.info.stop_token_ids)

    def restrict(self, words: np.ndarray) -> None:
        """Ban tokens in a mask in which every token that the grammar allows is set. uint32 [words_of(vocab_size)]"""
        params = self.params
        if params.allowed_token_ids is not None:
            if self._allowed is None:
                self._allowed = bits_of(params.allowed_token_ids, 32 * len(words))
            words &= self._allowed
        for word in params.bad_words_token_ids:
            if len(word) == 1 or tuple(self.output[-(len(word) - 1) :]) == word[:-1]:
                words[word[-1] >> 5] &= ~np.uint32(1 << (word[-1] & 31))
        if self._must_go_on:
            is_end = bits_of(self.info.stop_token_ids, 32 * len(words))
            if self.matcher is None or (words & ~is_end).any():  # where a grammar can only end, it ends
                words &= ~is_end

    def _count(self, token: int, *, is_output: bool) -> None:
        slot = self._slot_of.setdefault(token, len(self._slot_of))
        if slot >= len(self._ids):
            grow = max(64, len(self._ids))
            self._ids = np.concatenate([self._ids, np.zeros(grow, dtype=np.int64)])
            self._counts = np.concatenate([self._counts, np.zeros(grow, dtype=np.float32)])
        self._ids[slot] = token
        self._counts[slot] += is_output

    def seen(self) -> tuple[np.ndarray, np.ndarray]:
        """Distinct tokens of prompt and output (int64), and how often each is in the output (float32)."""
        size = len(self._slot_of)
        return self._ids[:size], self._counts[:size]


class Sampler:
    """Draws tokens from logits.

    Args:
        vocab_size: of the logits.
        grammars: of the model.
    """

    def __init__(self, vocab_size: int, grammars: Grammars | None = None) -> None:
        self.vocab_size = vocab_size
        self._grammars = grammars
        self._work: torch.Tensor | None = None

    def sample(
        self, logits: torch.Tensor, states: list[RowState]
    ) -> tuple[list[list[int]], list[list[TokenLogprobs] | None], list[str | None]]:
        """Draw each row's tokens.

        Args:
            logits: [num_rows, vocab_size], in the model's dtype; may be overwritten.
            states: one a row.

        Returns:
            For each row: its tokens (several where a prompt forks, none for a beam), its log-probabilities where it
            asked for them, and why it failed, if it did.
        """
        best_values, best_ids = best_tokens(logits)
        failed = {i: _NO_NUMBERS for i, value in enumerate(best_values.tolist()) if not math.isfinite(value)}
        best = best_ids.tolist()
        raw: dict[int, torch.Tensor] = {}
        allowed: dict[int, torch.Tensor] = {}
        if banned := [i for i, state in enumerate(states) if state.has_bans and i not in failed]:
            raw, allowed, again = self._ban(logits, banned, states, best, failed)
            for first, end in _runs(again):  # without a copy of them
                best_values[first:end], best_ids = best_tokens(logits[first:end])
                best[first:end] = best_ids.tolist()
            for i in again:
                if float(best_values[i]) == -math.inf:
                    failed.setdefault(i, EVERY_TOKEN_IS_BANNED)
        if not all(state.is_argmax for state in states):
            logits, best_values = logits.float(), best_values.float()
        drawn = [
            ([], None, failed[i])
            if i in failed
            else self._sample_row(logits[i], best_values[i], best[i], state, raw.get(i), allowed.get(i))
            for i, state in enumerate(states)
        ]
        return [row[0] for row in drawn], [row[1] for row in drawn], [row[2] for row in drawn]

    def _ban(
        self, logits: torch.Tensor, rows: list[int], states: list[RowState], best: list[int], failed: dict[int, str]
    ) -> tuple[dict[int, torch.Tensor], dict[int, torch.Tensor], list[int]]:
        """Set the logits of banned tokens to minus infinity, in place, where a draw depends on them. Of a row whose
        largest logit is all that matters, that of the allowed tokens is found without.

        Args:
            logits: of all rows.
            rows: that have bans.
            states: of all rows.
            best: each row's largest logit, by its place; takes that of the allowed tokens, but for the rows returned.
            failed: takes why a row fails, by row.

        Returns:
            By row, the logits as they were, where log-probabilities are wanted; by row, the allowed tokens, where they
            are few and one is to be drawn; and the rows whose largest logit is banned and still to be found.
        """
        raw: dict[int, torch.Tensor] = {}
        allowed: dict[int, torch.Tensor] = {}
        masks = np.full((len(rows), words_of(self.vocab_size)), ALL)
        matched = [(at, matcher) for at, row in enumerate(rows) if (matcher := states[row].matcher) is not None]
        if matched:
            assert self._grammars is not None
            filled = self._grammars.fill_masks([matcher for _, matcher in matched])
            for (at, matcher), words in zip(matched, filled, strict=True):
                try:
                    matcher.finish_mask(words)
                except GrammarError as error:
                    failed[rows[at]] = f"{BROKEN_GRAMMAR}: {error}"
                masks[at] = words[: masks.shape[1]]
        written, again = [], []
        for at, (row, words) in enumerate(zip(rows, masks, strict=True)):
            state = states[row]
            state.restrict(words)
            is_best_allowed = (int(words[best[row] >> 5]) >> (best[row] & 31)) & 1
            if state.is_argmax and is_best_allowed:
                continue
            listed = allowed_places(words, self.vocab_size) if logits.is_cpu else None
            places = torch.from_numpy(listed) if listed is not None and len(listed) else None
            if state.is_argmax and places is not None:
                value, place = logits[row, places].max(0)
                best[row] = int(places[place])
                if value == -math.inf:
                    failed.setdefault(row, EVERY_TOKEN_IS_BANNED)
                continue
            if places is not None:
                allowed[row] = places
            if state.params.logprobs is not None:
                raw[row] = logits[row].clone().float()
            written.append(at)
            if not is_best_allowed:
                again.append(row)
        if written:
            apply_masks(logits, [rows[at] for at in written], masks[written])
        return raw, allowed, again

    def _sample_row(
        self,
        row: torch.Tensor,
        top: torch.Tensor,
        top_id: int,
        state: RowState,
        raw: torch.Tensor | None,
        allowed: torch.Tensor | None,
    ) -> tuple[list[int], list[TokenLogprobs] | None, str | None]:
        """One row of `sample`; `top` is its largest value and stands first at `top_id`. `raw` is the row before bans,
        where log-probabilities are wanted of a row that has some; `allowed` the tokens that are not banned, if few."""
        info, params = state.info, state.params
        if info.num_candidates:
            return [], [_entry(row, top_id, info.num_candidates)], None
        if raw is None:
            raw = row if params.logprobs is None or state.is_plain else row.clone()
        if not state.is_plain:
            self._process(row, state)
            top = row.amax()
            if params.is_greedy:
                top_id = int(best_tokens(row[None])[1])
        num_samples = info.num_samples if state.num_output_tokens == 0 else 1
        tokens = [top_id] * num_samples if params.is_greedy else self._draw(row, top, state, num_samples, allowed)
        if params.logprobs is None:
            return tokens, None, None
        return tokens, [_entry(raw, token, params.logprobs, params.logprob_token_ids) for token in tokens], None

    def _process(self, row: torch.Tensor, state: RowState) -> None:
        """Biases and penalties, in place."""
        params = state.params
        if params.logit_bias:
            ids = torch.tensor(list(params.logit_bias), device=row.device)
            row[ids] += torch.tensor(list(params.logit_bias.values()), dtype=row.dtype, device=row.device)
        if state.has_penalties:
            self._penalise(row, state)

    @staticmethod
    def _penalise(row: torch.Tensor, state: RowState) -> None:
        """Penalties on the few tokens that were seen; numpy, since on so few a torch operation is all overhead."""
        params = state.params
        seen, counts = state.seen()
        places = torch.from_numpy(seen).to(row.device)
        values = row[places].cpu().numpy()
        if params.repetition_penalty != 1.0:
            factor = np.float32(params.repetition_penalty)
            values = np.where(values > 0, values / factor, values * factor)
        if params.frequency_penalty != 0.0:
            values -= counts * np.float32(params.frequency_penalty)
        if params.presence_penalty != 0.0:
            values -= (counts > 0) * np.float32(params.presence_penalty)
        row[places] = torch.from_numpy(values).to(row.device)

    def _draw(
        self, row: torch.Tensor, top: torch.Tensor, state: RowState, num_samples: int, allowed: torch.Tensor | None
    ) -> list[int]:
        """Tokens from the softmax of a row whose largest value is `top`; all but those in `allowed` are banned."""
        params, info = state.params, state.info
        size = self.vocab_size
        if self._work is None or self._work.device != row.device:
            self._work = torch.zeros(-(-size // _CHUNK) * _CHUNK, dtype=torch.float32, device=row.device)
        weights = self._work  # zero past the vocabulary
        floor = None
        if params.min_p > 0:
            floor = top + float(np.log(params.min_p)) * params.temperature
        if 0 < params.top_k < size:
            kth = top_values(row, params.top_k)[0][-1]
            floor = kth if floor is None else torch.maximum(floor, kth)
        sharpness = 1.0 / params.temperature
        if allowed is None:
            exponents = torch.add(top * -sharpness, row, alpha=sharpness, out=weights[:size])
        else:
            weights.zero_()
            exponents = torch.add(top * -sharpness, row[allowed], alpha=sharpness)
        if state.has_bans or params.logit_bias or params.temperature < _COLD:
            # What is banned, or all but impossible, weighs nothing. Left to `exp`, minus infinity takes it 20 times as
            # long, and results below the smallest normal number 100 times.
            torch.threshold_(exponents.clamp_(min=_LEAST_EXPONENT).exp_(), _LEAST_WEIGHT, 0.0)
        else:
            exponents.exp_()
        if allowed is not None:
            weights[allowed] = exponents
        if floor is not None:
            weights[:size].masked_fill_(row < floor, 0.0)
        sums = _chunk_sums(weights)
        total = float(sums[-1])
        tokens = []
        for sample in range(num_samples):
            index = info.index + sample
            candidates, candidate_sums = weights, sums
            draw = 0
            while True:
                number = uniform(info.seed, index, state.num_output_tokens, draw)
                token = _invert(candidates, candidate_sums, number)
                if params.top_p >= 1.0:
                    break
                above = torch.threshold(candidates, float(weights[token]), 0.0)
                above_sums = _chunk_sums(above)
                if above_sums[-1] < params.top_p * total:
                    break
                candidates, candidate_sums = above, above_sums
                draw += 1
            tokens.append(token)
        return tokens


def best_tokens(logits: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Each row's largest value, NaN where there is any, and the first place where it stands.

    Twice: among the maxima of chunks, then within one chunk. Over 152 k tokens a quarter of the time of `max(dim)`, and
    by a kernel, which reads them once, a third of that.
    """
    num_rows, size = logits.shape
    kernels = kernels_for(logits.dtype) if logits.is_cpu and logits.stride(1) == 1 else None
    if kernels is not None:
        best, places = torch.empty(num_rows, dtype=torch.float32), torch.empty(num_rows, dtype=torch.int64)
        num_threads = threads_for(logits.numel(), torch.get_num_threads())
        kernels.best(
            logits.data_ptr(), num_rows, size, logits.stride(0), best.data_ptr(), places.data_ptr(), num_threads
        )
        return best, places
    whole = size // _CHUNK * _CHUNK
    if not whole:
        values, ids = logits.max(dim=-1)
        return values, ids
    maxima = logits[:, :whole].unflatten(1, (-1, _CHUNK)).amax(-1)
    if whole < size:
        maxima = torch.cat((maxima, logits[:, whole:].amax(-1, keepdim=True)), dim=1)
    values, chunks = maxima.max(dim=-1)
    places = chunks[:, None] * _CHUNK + torch.arange(_CHUNK, device=logits.device)
    inside = logits.gather(1, places.clamp_(max=size - 1)).argmax(dim=-1)
    return values, chunks * _CHUNK + inside


def _runs(rows: list[int]) -> list[tuple[int, int]]:
    """Ascending rows as ranges of neighbours, each with its first row and the one behind its last."""
    starts = [row for at, row in enumerate(rows) if not at or rows[at - 1] != row - 1]
    ends = [row + 1 for at, row in enumerate(rows) if at + 1 == len(rows) or rows[at + 1] != row + 1]
    return list(zip(starts, ends, strict=True))


def _chunk_sums(weights: torch.Tensor) -> np.ndarray:
    """Cumulative weight up to the end of each chunk. float64 [num_chunks]."""
    sums: np.ndarray = np.cumsum(weights.view(-1, _CHUNK).sum(-1).cpu().numpy(), dtype=np.float64)
    return sums


def _invert(weights: torch.Tensor, sums: np.ndarray, number: float) -> int:
    """The token at which the cumulative weight first exceeds `number` of the whole."""
    target = number * float(sums[-1])
    chunk = int(np.searchsorted(sums, target, side="right"))
    chunk = min(chunk, len(sums) - 1)
    inside = weights[chunk * _CHUNK : (chunk + 1) * _CHUNK].cpu().numpy()
    before = float(sums[chunk - 1]) if chunk else 0.0
    at = int(np.searchsorted(np.cumsum(inside, dtype=np.float64), target - before, side="right"))
    # Rounding may leave the target just past the last weight, or on a token without weight: take the last that has one.
    while at >= _CHUNK or inside[at] == 0.0:
        at -= 1
        if at < 0:
            return int(weights.nonzero()[-1]) if float(sums[chunk]) == 0.0 else _last_before(weights, chunk * _CHUNK)
    return chunk * _CHUNK + at


def _last_before(weights: torch.Tensor, end: int) -> int:
    """The last token with weight before `end`, or the first one after it."""
    before = weights[:end].nonzero()
    return int(before[-1]) if len(before) else end + int(weights[end:].nonzero()[0])


def top_values(row: torch.Tensor, k: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The k largest values of a long row, largest first, and their places.

    The k-th largest of the chunks' maxima bounds the k-th largest value from below, so only what reaches it is sorted.
    """
    size = row.shape[0]
    num_chunks = size // _CHUNK
    if k * 4 > num_chunks:
        values, ids = row.topk(min(k, size))
        return values, ids
    maxima = row[: num_chunks * _CHUNK].view(num_chunks, _CHUNK).amax(-1)
    bound = maxima.topk(k)[0][-1]
    places = (row >= bound).nonzero().squeeze(1)
    values, order = row[places].topk(k)
    return values, places[order]


def _entry(row: torch.Tensor, token: int, k: int, token_ids: tuple[int, ...] | None = None) -> TokenLogprobs:
    """The k likeliest tokens of a row of logits (-1: all; or of `token_ids`), and `token` with its rank among all."""
    normaliser = row.logsumexp(0)
    chosen = row[token]
    rank = int((row > chosen).sum()) + 1
    if k or token_ids:
        if token_ids:
            places = torch.tensor(sorted(set(token_ids)), device=row.device)
            values, order = row[places].sort(descending=True, stable=True)
            ids = places[order]
        else:
            values, ids = top_values(row, k if k > 0 else row.shape[0])
        return TokenLogprobs(ids.tolist(), (values - normaliser).tolist(), token, float(chosen - normaliser), rank)
    return TokenLogprobs([], [], token, float(chosen - normaliser), rank)


def token_logprobs(logits: torch.Tensor, tokens: list[int], k: int) -> list[TokenLogprobs]:
    """The k likeliest tokens of each row (-1: all), and the given one with its rank (for prompt_logprobs)."""
    return [_entry(row, token, k) for row, token in zip(logits, tokens, strict=True)]
