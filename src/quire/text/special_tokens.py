"""Encode special tokens in user text as plain text, so that a user cannot end a turn and speak as the system."""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Mapping
from typing import Any

import tokenizers

_MARK = "\ue0c2"  # a private-use character, inserted after the first character of an escaped token


class SpecialTokenEscaper:
    """Escapes a tokenizer's special tokens in texts, and encodes escaped texts with a copy of the tokenizer."""

    def __init__(self, backend: tokenizers.Tokenizer) -> None:
        self._backend = backend
        specials = {token.content for token in backend.get_added_tokens_decoder().values() if token.special}
        self._plain = _copy_without_specials(backend, specials)
        longest_first = sorted(filter(None, specials), key=len, reverse=True)
        self._special = re.compile("|".join(map(re.escape, longest_first)) or r"(?!)")
        marked = (re.escape(token[0] + _MARK + token[1:]) for token in longest_first)
        self._marked = re.compile(f"({'|'.join(marked) or '(?!)'})")

    def __reduce__(self) -> tuple[Any, ...]:
        return SpecialTokenEscaper, (self._backend,)  # a pickled copy would lose `encode_special_tokens`

    def escape(self, value: Any) -> Any:
        """Mark the special tokens in all strings of a JSON value."""
        if isinstance(value, str):
            return self._special.sub(lambda found: found[0][0] + _MARK + found[0][1:], value.replace(_MARK, ""))
        if isinstance(value, Mapping):
            return {key: self.escape(item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [self.escape(item) for item in value]
        return value

    def encode_plain(self, texts: list[str], *, add_special_tokens: bool) -> list[tokenizers.Encoding]:
        """Encode texts as plain text; `add_special_tokens` still adds tokens around them."""
        found: list[tokenizers.Encoding] = self._plain.encode_batch_fast(texts, add_special_tokens=add_special_tokens)
        return found

    def encode_marked(self, text: str, *, add_special_tokens: bool) -> tuple[str, list[int]]:
        """Encode a rendered template, whose marked tokens are plain; return it without marks, and its token ids."""
        parts = self._marked.split(text)  # marked tokens at odd indices
        encodings = [
            (self._plain if number % 2 else self._backend).encode(part.replace(_MARK, ""), add_special_tokens=False)
            for number, part in enumerate(parts)
            if part
        ]
        merged = tokenizers.Encoding.merge(encodings, growing_offsets=True)
        ids: list[int] = self._backend.post_process(merged, add_special_tokens=add_special_tokens).ids
        return text.replace(_MARK, ""), ids


def _copy_without_specials(backend: tokenizers.Tokenizer, specials: set[str]) -> tokenizers.Tokenizer:
    """Copy a tokenizer with these tokens as plain text; ordinary pieces get random names."""
    copied = tokenizers.Tokenizer.from_str(backend.to_str())
    copied.encode_special_tokens = True
    ids = {token: copied.token_to_id(token) for token in specials}
    probes = [lead + token for token in ids for lead in ("", " ", "x")]
    found = {token for probe in probes for token in copied.encode(probe, add_special_tokens=False).ids}
    if found.isdisjoint(ids.values()):
        return copied
    parts = json.loads(backend.to_str())
    model = parts["model"]
    unknown = model.get("unk_token")
    if isinstance(model["vocab"], list):  # pieces and their scores
        if model.get("unk_id") is not None:
            unknown = model["vocab"][model["unk_id"]][0]
        pieces = {piece for piece, _ in model["vocab"]}
    else:
        pieces = set(model["vocab"])
    hidden = {token: uuid.uuid4().hex for token in (specials & pieces) - {unknown}}
    if isinstance(model["vocab"], list):
        model["vocab"] = [[hidden.get(piece, piece), score] for piece, score in model["vocab"]]
    else:
        model["vocab"] = {hidden.get(piece, piece): number for piece, number in model["vocab"].items()}
    if "merges" in model:
        model["merges"] = [
            pair
            for pair in model["merges"]
            if "".join(pair if isinstance(pair, list) else pair.split(" ")) not in hidden
        ]
    parts["added_tokens"] = [token for token in parts["added_tokens"] if token["content"] not in hidden]
    copied = tokenizers.Tokenizer.from_str(json.dumps(parts))
    copied.encode_special_tokens = True
    return copied
