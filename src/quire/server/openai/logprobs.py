"""Log-probabilities in the three forms that clients know: chat's, completions' and vLLM's for prompts.

The engine gives an entry for each position: the likeliest tokens, likeliest first. The chosen one is last where it is
not among them.
"""

from __future__ import annotations

import codecs
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any

from quire.outputs import Logprob

_LOWEST = -9999.0  #: JSON has no infinity; OpenAI's API says "very unlikely" so

Entry = Mapping[int, Logprob]


def chat_logprobs(
    tokenizer: Any, token_ids: Sequence[int], entries: Sequence[Entry], top: int | None, *, shows_ids: bool
) -> list[dict[str, Any]]:
    """The `content` of a chat choice's logprobs, with so many of the likeliest tokens (None: all).

    Args:
        shows_ids: a token is `token_id:123` in place of its text.
    """

    def show(token_id: int, logprob: Logprob) -> dict[str, Any]:
        data = list(tokenizer.token_bytes(token_id)) if tokenizer is not None else None
        return {"token": _text(token_id, logprob, shows_ids), "logprob": _finite(logprob), "bytes": data}

    return [
        {**show(token_id, entry[token_id]), "top_logprobs": [show(*likely) for likely in islice(entry.items(), top)]}
        for token_id, entry in zip(token_ids, entries, strict=True)
    ]


def prompt_logprobs(
    entries: Sequence[Entry | None], token_ids: Sequence[int], top: int | None
) -> list[dict[str, Any] | None]:
    """vLLM's form, a dict a token of the prompt, by token id; none for the first."""

    def show(token_id: int, entry: Entry) -> dict[str, Any]:
        kept = {**dict(islice(entry.items(), top)), token_id: entry[token_id]}
        return {
            str(id_): {"logprob": _finite(found), "rank": found.rank, "decoded_token": found.decoded_token}
            for id_, found in kept.items()
        }

    return [
        None if entry is None else show(token_id, entry) for token_id, entry in zip(token_ids, entries, strict=True)
    ]


class CompletionLogprobsWriter:
    """The logprobs of one completion choice, piece by piece, with each token's offset in the text.

    Args:
        tokenizer: None for a model without one.
        hides_special_tokens: they are no part of the text.
        shows_ids: a token is `token_id:123` in place of its text.
    """

    def __init__(self, tokenizer: Any, *, hides_special_tokens: bool, shows_ids: bool) -> None:
        self._tokenizer = tokenizer
        self._shows_ids = shows_ids
        self._hidden = tokenizer.special_ids if tokenizer is not None and hides_special_tokens else frozenset()
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode  # tokens may be parts of a character
        self._num_characters = 0

    def write(self, token_ids: Sequence[int], entries: Sequence[Entry | None], top: int | None) -> dict[str, Any]:
        """The next tokens, as lists that run in parallel, with so many of the likeliest (None: all)."""
        offsets: list[int] = []
        tokens: list[str] = []
        chosen: list[float | None] = []
        tops: list[dict[str, float] | None] = []
        for token_id, entry in zip(token_ids, entries, strict=True):
            offsets.append(self._num_characters)
            self._pass(token_id)
            if entry is None:  # the first token of a prompt
                has_text = self._tokenizer is not None and not self._shows_ids
                tokens.append(self._tokenizer.token_text(token_id) if has_text else _id(token_id))
                chosen.append(None)
                tops.append(None)
                continue
            tokens.append(_text(token_id, entry[token_id], self._shows_ids))
            chosen.append(_finite(entry[token_id]))
            likely: dict[str, float] = {}
            for id_, logprob in islice(entry.items(), top):  # of several that look the same, the likeliest stands
                likely.setdefault(_text(id_, logprob, self._shows_ids), _finite(logprob))
            likely.setdefault(tokens[-1], _finite(entry[token_id]))
            tops.append(likely)
        return {"text_offset": offsets, "tokens": tokens, "token_logprobs": chosen, "top_logprobs": tops}

    def _pass(self, token_id: int) -> None:
        if self._tokenizer is not None and token_id not in self._hidden:
            self._num_characters += len(self._decode(self._tokenizer.token_bytes(token_id)))


def _text(token_id: int, logprob: Logprob, shows_ids: bool) -> str:
    return _id(token_id) if shows_ids or logprob.decoded_token is None else logprob.decoded_token


def _id(token_id: int) -> str:
    return f"token_id:{token_id}"


def _finite(logprob: Logprob) -> float:
    return max(logprob.logprob, _LOWEST)
