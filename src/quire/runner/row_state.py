"""A sequence's sampling state between steps."""

from __future__ import annotations

import numpy as np

from quire.outputs import NewSequence
from quire.runner.sampling_rules import SamplingRules
from quire.structured.matcher import Grammars


class RowState:
    """A sequence's sampling state, with its request's `rules`: seen tokens, their counts in the output, the position in
    a grammar. GrammarError if it cannot be compiled."""

    def __init__(self, info: NewSequence, grammars: Grammars | None = None, rules: SamplingRules | None = None) -> None:
        params = info.sampling_params
        self.info = info
        self.params = params
        self.rules = rules or SamplingRules(info)
        self.num_output_tokens = len(info.token_ids) - info.num_prompt_tokens
        self.has_penalties = (
            params.repetition_penalty != 1.0 or params.presence_penalty != 0.0 or params.frequency_penalty != 0.0
        )
        self.is_plain = not (self.has_penalties or params.logit_bias)  #: only bans change its logits
        self.needs_logprobs = params.logprobs is not None or bool(info.num_candidates)
        self.is_argmax = (
            self.is_plain and params.is_greedy and not self.needs_logprobs
        )  #: only the largest logit matters
        self._output = info.token_ids[info.num_prompt_tokens :]
        self.matcher = None
        if params.structured_outputs is not None and not info.num_candidates:
            assert grammars is not None
            self.matcher = grammars.matcher(params.structured_outputs, info.stop_token_ids, self._output)
        self._has_lasting_bans = (
            self.matcher is not None or params.allowed_token_ids is not None or bool(params.bad_words_token_ids)
        )
        self.num_samples = info.num_samples if self.num_output_tokens == 0 else 1  #: tokens to draw at this position
        self._set_bans()
        if self.has_penalties:
            self._ids, slots = np.unique(np.array(info.token_ids, dtype=np.int64), return_inverse=True)
            counts = np.bincount(slots[info.num_prompt_tokens :], minlength=len(self._ids))
            self._counts = counts.astype(np.float32)
            self._slot_of = {token: slot for slot, token in enumerate(self._ids.tolist())}

    def append(self, token: int) -> None:
        self.num_output_tokens += 1
        self.num_samples = 1
        self._output.append(token)
        if self.matcher is not None:
            self.matcher.advance((token,))
        if self.has_penalties:
            self._count(token)
        if self._must_continue:
            self._set_bans()

    def _set_bans(self) -> None:
        self._must_continue = self.num_output_tokens < self.params.min_tokens and bool(self.info.stop_token_ids)
        self.has_bans = self._has_lasting_bans or self._must_continue  #: some token is banned at this position

    def restrict(self, words: np.ndarray) -> None:
        """Clear banned tokens in a mask of the tokens that the grammar allows: uint32 [words_of(vocab_size)]."""
        if self._has_lasting_bans:
            words &= self.rules.allowed(len(words))
            self.rules.ban_completions(words, self._output)
        if self._must_continue:
            is_end = self.rules.ends(len(words))
            if self.matcher is None or (words & ~is_end).any():  # else the grammar can only end
                words &= ~is_end

    def _count(self, token: int) -> None:
        slot = self._slot_of.setdefault(token, len(self._slot_of))
        if slot >= len(self._ids):
            grow = max(64, len(self._ids))
            self._ids = np.concatenate([self._ids, np.zeros(grow, dtype=np.int64)])
            self._counts = np.concatenate([self._counts, np.zeros(grow, dtype=np.float32)])
        self._ids[slot] = token
        self._counts[slot] += 1

    def seen(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the distinct tokens of prompt and output (int64) and their counts in the output (float32)."""
        size = len(self._slot_of)
        return self._ids[:size], self._counts[:size]
