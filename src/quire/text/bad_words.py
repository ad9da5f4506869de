"""Words that must not be generated, as the token sequences that write them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from quire.text.tokenizer import Tokenizer


def encode_bad_words(tokenizer: Tokenizer, words: Iterable[str]) -> list[list[int]]:
    """Token sequences to ban, so that no word is written.

    A word has other tokens at the start of a line than after a space, so each is encoded both with and without the
    space. A sequence that ends in another one is left out: banning the shorter bans it too.

    Raises:
        ValueError: a word is empty or only spaces, or has no tokens.
    """
    sequences: dict[tuple[int, ...], None] = {}
    for word in words:
        if not isinstance(word, str) or not word.strip():
            raise ValueError(f"bad_words must be non-empty strings, got {word!r}")
        bare = word.lstrip()
        variants = [tokenizer.encode(form, add_special_tokens=False) for form in (bare, " " + bare)]
        # Tokenizers that put a space in front of every text show the bare word only behind something else.
        line_break = tokenizer.encode("\n", add_special_tokens=False)
        behind_break = tokenizer.encode("\n" + bare, add_special_tokens=False)
        if line_break and behind_break[: len(line_break)] == line_break:
            variants.append(behind_break[len(line_break) :])
        variants = [variant for variant in variants if variant]
        if not variants:
            raise ValueError(f"the tokenizer has no tokens for the bad word {word!r}")
        for variant in variants:
            if not any(variant != other and variant[-len(other) :] == other for other in variants):
                sequences[tuple(variant)] = None
    return [list(sequence) for sequence in sequences]
