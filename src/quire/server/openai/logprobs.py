"""Log-probabilities in the forms of chat, of completions, and of vLLM for prompts.

The engine gives one entry a position: the likeliest tokens in order, and the chosen one last unless it is among them.
"""

from __future__ import annotations

import codecs
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any

from quire.outputs import Logprob

_LOWEST = -9999.0  #: OpenAI's value for minus infinity, which JSON lacks

Entry = Mapping[int, Logprob]


def chat_logprobs(
    tokenizer: Any, token_ids: Sequence[int], entries: Sequence[Entry], top: int | None, *, shows_ids: bool
) -> list[dict[str, Any]]:
    """Return the `content` of a chat choice's logprobs.

    Args:
        top: number of likeliest tokens to show; None shows all.
        shows_ids: show tokens as `token_id:123`.
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
    """Return vLLM's form: for each prompt token a dict by token id, None for the first."""

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
    """Writes the logprobs of one completion choice piece by piece, with each token's offset in the text.

    Args:
        tokenizer: None for a model without one.
        hides_special_tokens: whether the text lacks special tokens.
        shows_ids: show tokens as `token_id:123`.
    """

    def __init__(self, tokenizer: Any, *, hides_special_tokens: bool, shows_ids: bool) -> None:
        self._tokenizer = tokenizer
        self._shows_ids = shows_ids
        self._hidden = tokenizer.special_ids if tokenizer is not None and hides_special_tokens else frozenset()
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode  # tokens may be parts of a character
        self._num_characters = 0

    def write(self, token_ids: Sequence[int], entries: Sequence[Entry | None], top: int | None) -> dict[str, Any]:
        """Return the next tokens as parallel lists, with the `top` likeliest (None: all)."""
        offsets: list[int] = []
        tokens: list[str] = []
        chosen: list[float | None] = []
        tops: list[dict[str, float] | None] = []
        for token_id, entry in zip(token_ids, entries, strict=True):
            offsets.append(self._num_characters)
            if self._tokenizer is not None and token_id not in self._hidden:
                self._num_characters += len(self._decode(self._tokenizer.token_bytes(token_id)))
            if entry is None:  # the first token of a prompt
                has_text = self._tokenizer is not None and not self._shows_ids
                tokens.append(self._tokenizer.token_text(token_id) if has_text else f"token_id:{token_id}")
                chosen.append(None)
                tops.append(None)
                continue
            tokens.append(_text(token_id, entry[token_id], self._shows_ids))
            chosen.append(_finite(entry[token_id]))
            likely: dict[str, float] = {}
            for id_, logprob in islice(entry.items(), top):  # of several with one text, keep the likeliest
                likely.setdefault(_text(id_, logprob, self._shows_ids), _finite(logprob))
            likely.setdefault(tokens[-1], _finite(entry[token_id]))
            tops.append(likely)
        return {"text_offset": offsets, "tokens": tokens, "token_logprobs": chosen, "top_logprobs": tops}


def _text(token_id: int, logprob: Logprob, shows_ids: bool) -> str:
    return f"token_id:{token_id}" if shows_ids or logprob.decoded_token is None else logprob.decoded_token


def _finite(logprob: Logprob) -> float:
    return max(logprob.logprob, _LOWEST)
