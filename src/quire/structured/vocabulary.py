"""Describe a tokenizer's vocabulary to llguidance: each token's bytes, and an extra end token behind all others, which
stands for a request's end tokens in a mask."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from quire.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from llguidance import LLTokenizer

#: Special tokens that are text in grammars with tool calls: models write calls and reasoning between them.
CALL_MARKERS = {
    b"<tool_call>", b"</tool_call>", b"<|tool_call|>", b"<|/tool_call|>", b"<|tool_call>", b"<tool_call|>",
    b"[TOOL_CALLS]", b"[CALL_ID]", b"[ARGS]", b"<function=", b"<function_calls>", b"</function_calls>",
    b"<arg_key>", b"</arg_key>", b"<arg_value>", b"</arg_value>", b"<escape>", b'<|"|>',
    b"<|python_tag|>", b"<|python_start|>", b"<|python_end|>", b"<|tool_call_start|>", b"<|tool_call_end|>",
    b"<start_function_call>", b"<end_function_call>",
    *map(str.encode, ("<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>", "<｜tool▁sep｜>")),
    *map(str.encode, ("<｜tool▁call▁begin｜>", "<｜tool▁call▁end｜>")),
    b"<|start|>", b"<|channel|>", b"<|constrain|>", b"<|message|>", b"<|end|>", b"<|call|>", b"<|return|>",
    b"<think>", b"</think>", b"[THINK]", b"[/THINK]", b"<|channel>", b"<channel|>",
}  # fmt: skip
_LEADS = ("\n", ".")  # prefixes after which a text has the tokens of a continuation


class _Words:
    """The interface that `llguidance.TokenizerWrapper` expects."""

    bos_token_id = None

    def __init__(self, tokens: list[bytes], special_ids: Sequence[int], encode: Callable[[bytes], list[int]]) -> None:
        self.tokens = tokens
        self.eos_token_id = len(tokens) - 1
        self.special_token_ids = [*special_ids, self.eos_token_id]
        self._encode = encode

    def __call__(self, text: bytes) -> list[int]:
        return self._encode(text)


def make_vocabulary(
    tokenizer: Tokenizer, vocab_size: int, end_ids: Sequence[int], *, has_calls: bool = False
) -> LLTokenizer:
    """Build a model's vocabulary; `vocab_size` counts its logits, of which those beyond the tokenizer's tokens are
    never allowed. ValueError if the decoder does not determine the bytes of tokens."""
    pieces = tokenizer.pieces
    if pieces is None:
        raise ValueError("structured_outputs needs a tokenizer whose tokens are pieces of text")
    tokens = [pieces[token] for token in range(vocab_size)]
    markers = {token for token in tokenizer.special_ids if has_calls and pieces[token] in CALL_MARKERS}
    special = {
        *(tokenizer.special_ids - markers),
        *end_ids,
        *(token for token, piece in enumerate(tokens) if not piece),
    }
    for token in special:
        tokens[token] = tokens[token] or b"<%d>" % token
    ids = {piece: token for token, piece in reversed([*enumerate(tokens)]) if token not in special}
    longest = max(map(len, ids), default=1)

    def encode(text: bytes) -> list[int]:
        """Encode as the tokenizer would within a text, or greedily by the longest tokens."""
        if any(pieces[token] in text for token in markers):
            return _longest_tokens(text, ids, longest)
        try:
            plain = text.decode()
            for lead in _LEADS:
                before, both = tokenizer.encode_plain(lead), tokenizer.encode_plain(lead + plain)
                found = both[len(before) :]
                if both[: len(before)] == before and b"".join(pieces[token] for token in found) == text:
                    return found
        except ValueError:
            pass
        return _longest_tokens(text, ids, longest)

    return _to_llguidance(_Words([*tokens, b"<end>"], sorted(special), encode))


def byte_vocabulary() -> LLTokenizer:
    """A vocabulary of single bytes, enough to compile and sample a grammar."""
    return _to_llguidance(_Words([*(bytes([byte]) for byte in range(256)), b"<end>"], [], list))


def _to_llguidance(words: _Words) -> LLTokenizer:
    from llguidance import LLTokenizer, TokenizerWrapper

    return LLTokenizer(TokenizerWrapper(words))


def _longest_tokens(text: bytes, ids: dict[bytes, int], longest: int) -> list[int]:
    found = []
    at = 0
    while at < len(text):
        for end in range(min(len(text), at + longest), at, -1):
            if (token := ids.get(text[at:end])) is not None:
                found.append(token)
                at = end
                break
        else:
            return found  # no token has this byte; the mask handles the rest
    return found
