"""Token sets as bit masks of 32-bit words, lowest bit first."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np


def words_of(vocab_size: int) -> int:
    """Return the number of words of a mask over the vocabulary."""
    return -(-vocab_size // 32)


def bits_of(token_ids: Collection[int], vocab_size: int) -> np.ndarray:
    """Return a mask of these tokens, uint32 [words_of(vocab_size)]."""
    ids = np.fromiter(token_ids, dtype=np.int64, count=len(token_ids))
    words = np.zeros(words_of(vocab_size), dtype=np.uint32)
    np.bitwise_or.at(words, ids >> 5, np.uint32(1) << (ids & 31).astype(np.uint32))
    return words
