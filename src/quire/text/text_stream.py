"""Decode token by token; text once returned never changes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from quire.text.token_pieces import TokenPieces, decode_complete

if TYPE_CHECKING:
    from quire.text.tokenizer import Tokenizer

_MAX_UNDECIDED_TOKENS = 8  # no character is longer; one still broken then stays broken
_PROMPT_WINDOW = 6


def open_stream(
    tokenizer: Tokenizer, prompt_token_ids: Sequence[int], hidden: frozenset[int]
) -> _PieceStream | _WindowStream:
    """Open a stream for the text after the prompt, without hidden tokens."""
    if tokenizer.pieces is None:
        return _WindowStream(tokenizer, prompt_token_ids, hidden)
    return _PieceStream(tokenizer.pieces, prompt_token_ids, hidden)


class _PieceStream:
    """Exact and cheap: looks up each token's bytes, and holds back up to three of an incomplete character."""

    def __init__(self, pieces: TokenPieces, prompt_token_ids: Sequence[int], hidden: frozenset[int]) -> None:
        self._pieces = pieces
        self._hidden = hidden
        self._spaces_to_strip = pieces.strip_start
        self._is_at_start = pieces.has_start_rule
        for token_id in prompt_token_ids:
            if not self._is_at_start:
                break
            if token_id not in hidden:
                self._start_piece(token_id)
        self._pending = self._incomplete_end(prompt_token_ids)

    def _incomplete_end(self, token_ids: Sequence[int]) -> bytes:
        """Bytes of a character that the prompt leaves incomplete; UTF-8 shows it in the last three."""
        end = b""
        for token_id in reversed(token_ids):
            if len(end) >= 3:
                break
            if token_id not in self._hidden:
                end = self._pieces[token_id] + end
        return decode_complete(end[-3:], mark_each_byte=False)[1]

    def _start_piece(self, token_id: int) -> bytes:
        if not self._pieces[token_id]:
            return b""
        piece = self._pieces.at_start(token_id)
        while self._spaces_to_strip and piece.startswith(b" "):
            piece = piece[1:]
            self._spaces_to_strip -= 1
        self._is_at_start = not piece and self._spaces_to_strip > 0
        return piece

    def feed(self, token_id: int) -> str:
        """Return the text that a token decides; empty while a character is incomplete."""
        if token_id in self._hidden:
            return ""
        piece = self._start_piece(token_id) if self._is_at_start else self._pieces[token_id]
        data = self._pending + piece
        try:
            text = data.decode()
        except UnicodeDecodeError:
            text, self._pending = decode_complete(data, mark_each_byte=self._pieces.mark_each_byte)
        else:
            self._pending = b""
        return text

    def flush(self) -> str:
        """Return U+FFFD for a character that was never completed."""
        marks = len(self._pending) if self._pieces.mark_each_byte else min(1, len(self._pending))
        self._pending = b""
        return "\ufffd" * marks


class _WindowStream:
    """For other decoders: decodes the last few tokens with and without the new one and returns the difference."""

    def __init__(self, tokenizer: Tokenizer, prompt_token_ids: Sequence[int], hidden: frozenset[int]) -> None:
        self._tokenizer = tokenizer
        self._hidden = hidden
        self._ids = list(prompt_token_ids[-_PROMPT_WINDOW:])
        self._num_decided = len(self._ids)
        self._decided_text = self._decode(self._ids)

    def _decode(self, token_ids: list[int]) -> str:
        shown = [token_id for token_id in token_ids if token_id not in self._hidden]
        return self._tokenizer.decode(shown, skip_special_tokens=False)

    def feed(self, token_id: int) -> str:
        self._ids.append(token_id)
        text = self._decode(self._ids)
        is_incomplete = text.endswith("\ufffd") and len(self._ids) - self._num_decided < _MAX_UNDECIDED_TOKENS
        if is_incomplete or len(text) <= len(self._decided_text):
            return ""
        return self._decide(text)

    def _decide(self, text: str) -> str:
        new_text = text[len(self._decided_text) :]
        del self._ids[: self._num_decided]
        self._num_decided = len(self._ids)
        self._decided_text = self._decode(self._ids)
        return new_text

    def flush(self) -> str:
        return self._decide(self._decode(self._ids))
