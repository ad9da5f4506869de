"""Lossless coding of blocks of floats: the exponents by zstd, all other bits as they are. Exponents of KV are alike, so
that bfloat16 shrinks to about 0.66 and float32 to 0.83 of its bytes.

    coded data     sign and top 7 mantissa bits, a byte per float; lower halves of float32; a zstd frame of exponents
"""

from __future__ import annotations

import functools
import threading
from dataclasses import dataclass, replace

import numpy as np

from quire.kernels.planes import FORMATS, ExponentCoder, join_words, split_words

#: Floats by kind of coded record.
CODED_KINDS = {2: FORMATS["BF16"], 3: FORMATS["F32"]}
_KIND_OF = {"bfloat16": 2, "float32": 3}

_MOST = 0.9  #: share of a block's bytes above which it stays plain


@dataclass(slots=True)
class CodingTally:
    """Bytes and seconds of coding in the transfers of one thread."""

    saved_bytes: int = 0  #: plain less coded size
    seconds: float = 0.0

    def pop(self) -> CodingTally:
        """Return the counts since the last call."""
        counts = replace(self)
        self.saved_bytes, self.seconds = 0, 0.0
        return counts


def kind_of(dtype: str, block_bytes: int) -> int | None:
    """The kind of coded blocks of this dtype; None if they cannot be coded."""
    kind = _KIND_OF.get(dtype)
    return None if kind is None or block_bytes % CODED_KINDS[kind].item_bytes else kind


def encode(kind: int, block: memoryview | bytes) -> bytes | None:
    """Code a block; None if it hardly shrinks."""
    form = CODED_KINDS[kind]
    floats = np.frombuffer(block, f"u{form.item_bytes}")
    exponents, heads, low = split_words(floats[None], form, 8)
    coded = heads + low + _coder(threading.get_ident()).encode(exponents)
    return coded if len(coded) <= _MOST * floats.nbytes else None


def decode(kind: int, coded: memoryview | bytes, into: memoryview) -> bool:
    """Decode a block. Returns False if the data is damaged; `into` is then undefined."""
    form = CODED_KINDS[kind]
    floats = np.frombuffer(into, f"u{form.item_bytes}")
    try:
        exponents = _coder(threading.get_ident()).decode(coded[floats.nbytes - floats.size :], floats.size)
    except ValueError:
        return False
    others = np.frombuffer(coded, np.uint8, floats.nbytes - floats.size)
    join_words(floats[None], form, 8, exponents, others[: floats.size], others[floats.size :])
    return True


@functools.cache
def _coder(thread: int) -> ExponentCoder:
    return ExponentCoder()
