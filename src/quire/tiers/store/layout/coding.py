"""Lossless coding of blocks of floats: the exponents by zstd, all other bits as they are. Exponents of KV are alike, so
that bfloat16 shrinks to about 0.66 and float32 to 0.83 of its bytes.

    coded data     sign and top 7 mantissa bits, a byte per float; lower halves of float32; a zstd frame of exponents
"""

from __future__ import annotations

import functools
import threading
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from quire.kernels.planes import CODER_PARAMETERS, FORMATS, join_words, split_words

#: Bytes per float by kind of coded record.
CODED_KINDS = {2: 2, 3: 4}
_KIND_OF = {"bfloat16": 2, "float32": 3}
_FORMATS = {2: "BF16", 3: "F32"}

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
    return None if kind is None or block_bytes % CODED_KINDS[kind] else kind


def encode(kind: int, block: memoryview | bytes) -> bytes | None:
    """Code a block; None if it hardly shrinks."""
    floats = np.frombuffer(block, f"u{CODED_KINDS[kind]}")
    exponents, heads, low = split_words(floats[None], FORMATS[_FORMATS[kind]], 8)
    coded = heads + low + _coders(threading.get_ident())[0].compress(exponents)
    return coded if len(coded) <= _MOST * floats.nbytes else None


def decode(kind: int, coded: memoryview | bytes, into: memoryview) -> bool:
    """Decode a block. Returns False if the data is damaged; `into` is then undefined."""
    import zstandard

    floats = np.frombuffer(into, f"u{CODED_KINDS[kind]}")
    start = floats.nbytes - floats.size
    frame = coded[start:]
    try:
        if zstandard.get_frame_parameters(frame).content_size != floats.size:  # nothing larger is decoded
            return False
        exponents = np.frombuffer(_coders(threading.get_ident())[1].decompress(frame), np.uint8)
    except zstandard.ZstdError:
        return False
    if exponents.size != floats.size:
        return False
    others = np.frombuffer(coded, np.uint8, start)
    join_words(floats[None], FORMATS[_FORMATS[kind]], 8, exponents, others[: floats.size], others[floats.size :])
    return True


@functools.cache
def _coders(thread: int) -> tuple[Any, Any]:
    """A thread's own compressor and decompressor."""
    import zstandard  # takes 10 ms

    parameters = zstandard.ZstdCompressionParameters(**CODER_PARAMETERS)
    return zstandard.ZstdCompressor(compression_params=parameters), zstandard.ZstdDecompressor()
