"""A request's biases and bans as arrays, made once and shared by all its sequences."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from quire.outputs import NewSequence
from quire.structured.bits import bits_of


class SamplingRules:
    """Masks of allowed and end tokens, banned sequences, and biases of one request."""

    def __init__(self, info: NewSequence) -> None:
        self.params = info.sampling_params
        self._stop_token_ids = info.stop_token_ids
        self._allowed: np.ndarray | None = None
        self._ends: np.ndarray | None = None
        self._bias: tuple[np.ndarray, np.ndarray] | None = None
        last: dict[tuple[int, ...], list[int]] = {}
        for word in self.params.bad_words_token_ids:
            last.setdefault(word[:-1], []).append(word[-1])
        self._always_banned = last.pop((), [])
        self._banned = {beginning: np.unique(tokens) for beginning, tokens in last.items()}
        self._lengths = {len(beginning) for beginning in last}

    def allowed(self, num_words: int) -> np.ndarray:
        """Return a mask of the tokens that are allowed at every position: uint32 [num_words]."""
        if self._allowed is None:
            ids = self.params.allowed_token_ids
            allowed = bits_of(range(32 * num_words) if ids is None else ids, 32 * num_words)
            self._allowed = allowed & ~bits_of(self._always_banned, 32 * num_words)
        return self._allowed

    def ends(self, num_words: int) -> np.ndarray:
        """Return a mask of the tokens that end an output: uint32 [num_words]."""
        if self._ends is None:
            self._ends = bits_of(self._stop_token_ids, 32 * num_words)
        return self._ends

    def ban_completions(self, words: np.ndarray, output: Sequence[int]) -> None:
        """Clear the tokens that complete a bad word after an output in a mask."""
        found = [self._banned.get(tuple(output[-length:])) for length in self._lengths]
        if matches := [tokens for tokens in found if tokens is not None]:
            words &= ~bits_of(np.concatenate(matches), 32 * len(words))

    def bias(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the biased tokens (int64) and their biases (float32)."""
        if self._bias is None:
            bias = self.params.logit_bias or {}
            self._bias = np.array([*bias], dtype=np.int64), np.array([*bias.values()], dtype=np.float32)
        return self._bias
