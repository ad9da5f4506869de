"""Token masks of grammars, `allowed_token_ids`, `bad_words` and `min_tokens`: one bit per token, set if allowed."""

from __future__ import annotations

import numpy as np

from quire.kernels.elementwise import elementwise
from quire.ops.arrays import name_of
from quire.system.threads import threads_for

ALL = np.uint32(0xFFFFFFFF)
_MOST_LISTED = 512  # words of a mask, up to which listing its tokens costs less than reading all logits
_LIMITS = np.array([-np.inf, np.inf], dtype=np.float32)  #: largest logit by bit
_FIRST = np.zeros(1, dtype=np.int64)


def apply_mask(row: np.ndarray, words: np.ndarray) -> None:
    """Set a row's banned logits to minus infinity in place; words: uint32 [words_of(vocab_size)]."""
    if (kernels := elementwise(name_of(row.dtype))) is None:
        np.minimum(row, _LIMITS[_bits(words)[: len(row)]], out=row, casting="same_kind")
        return
    words, count = np.ascontiguousarray(words), threads_for(len(row))
    kernels.ban(row.ctypes.data, len(row), len(row), _FIRST.ctypes.data, 1, words.ctypes.data, len(words), count)


def is_allowed(words: np.ndarray, token: int) -> bool:
    return bool(int(words[token >> 5]) >> (token & 31) & 1)


def allowed_tokens(words: np.ndarray, vocab_size: int) -> np.ndarray | None:
    """Return the allowed tokens in ascending order (int64) if they are few, else None."""
    touched = np.flatnonzero(words)
    if len(touched) > _MOST_LISTED:
        return None
    word, bit = np.nonzero(_bits(words[touched]).reshape(-1, 32))
    tokens = touched[word] * 32 + bit
    return tokens[tokens < vocab_size]


def _bits(words: np.ndarray) -> np.ndarray:
    """Return a mask's bits, each in a byte."""
    return np.unpackbits(words.astype("<u4", copy=False).view(np.uint8), bitorder="little")
