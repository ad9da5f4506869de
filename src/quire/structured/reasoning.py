"""Reasoning before an output in a grammar, which begins with the token behind the closing marker."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from quire.structured.bits import bits_of
from quire.text.tokenizer import Tokenizer


class ReasoningTokens:
    """A model's tokens in reasoning between two markers. `opening` is "" if the prompt contains it."""

    def __init__(self, tokenizer: Tokenizer, vocab_size: int, opening: str, closing: str) -> None:
        assert tokenizer.pieces is not None
        self.pieces = pieces = tokenizer.pieces
        self.closing = closing.encode()
        # A marker has other tokens at the start of a text, where no answer is.
        before, both = (tokenizer.backend.encode(text, add_special_tokens=False).ids for text in ("\n", "\n" + opening))
        self.opening: list[int] = both[len(before) :]
        self.can_open = b"".join(pieces[token] for token in self.opening) == opening.encode()
        self.num_bits = vocab_size + 1  #: as in the masks of `Grammars`
        tokens = range(vocab_size)
        # A reader does not see other special tokens, and would find a marker around one.
        hidden = [token for token in tokenizer.special_ids if token in tokens and pieces[token] != self.closing]
        self._free = bits_of(tokens, self.num_bits) & ~bits_of(hidden, self.num_bits)
        self._long = [token for token in tokens if self.closing[-1:] in pieces[token][:-1]]
        self._allowed: dict[bytes, np.ndarray] = {}

    def allowed(self, end: bytes) -> np.ndarray:
        """Return a mask of the tokens behind `end`, a beginning of the closing marker or b"": all but special tokens
        and tokens with text behind the marker. uint32 [words_of(num_bits)]."""
        if end not in self._allowed:
            crossing = [token for token in self._long if self.closing in (end + self.pieces[token])[:-1]]
            self._allowed[end] = self._free & ~bits_of(crossing, self.num_bits)
        return self._allowed[end]


class ReasoningMatcher:
    """An output's position in its reasoning, which end tokens do not end. The output may omit it, unless the prompt has
    begun it."""

    def __init__(self, tokens: ReasoningTokens, end_ids: Sequence[int]) -> None:
        self._tokens = tokens
        self._ends = bits_of(end_ids, tokens.num_bits)
        self._num_opened = 0  # tokens of the opening marker
        self._end = b""  # its last bytes if they begin the closing marker
        self._is_over = not tokens.can_open

    @property
    def is_optional(self) -> bool:
        """Whether the next token may be the grammar's, too."""
        return self._num_opened == 0 < len(self._tokens.opening) and not self._is_over

    def allowed(self) -> np.ndarray | None:
        """Return a mask of its next tokens; None once it is over."""
        if self._is_over:
            return None
        if marker := self._tokens.opening[self._num_opened :]:
            return bits_of(marker[:1], self._tokens.num_bits)
        return self._tokens.allowed(self._end) & ~self._ends

    def take(self, token: int) -> bool:
        """Append a token of the output. Returns False if it is the grammar's."""
        if self._is_over:
            return False
        if marker := self._tokens.opening[self._num_opened :]:
            self._num_opened += 1
            self._is_over = token != marker[0]
            return not self._is_over
        text, closing = self._end + self._tokens.pieces[token], self._tokens.closing
        self._is_over = closing in text
        starts = range(max(0, len(text) - len(closing) + 1), len(text)) if closing[:1] in text else ()
        self._end = next((text[at:] for at in starts if closing.startswith(text[at:])), b"")
        return True
