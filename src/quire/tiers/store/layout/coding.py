"""Lossless coding of blocks of floats: the exponents by zstd, all other bits as they are. Exponents of KV are alike, so
that bfloat16 shrinks to about 0.7 and float32 to 0.85 of its bytes.

    coded data     sign and top 7 mantissa bits, a byte per float; lower halves of float32; a zstd frame of exponents
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace

import numpy as np

from quire.kernels.exponents import join_exponents, split_exponents

#: Bytes per float by kind of coded record.
CODED_KINDS = {2: 2, 3: 4}
_KIND_OF = {"bfloat16": 2, "float32": 3}

_LEVEL = 1  #: Huffman codes without matches: higher levels are slower, and larger
_MOST = 0.9  #: share of a block's bytes above which it stays plain
_TRIAL_FLOATS = 1 << 18


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


class ExponentCoder:
    """Codes blocks of one dtype. One thread at a time."""

    def __init__(self, kind: int) -> None:
        self.kind = kind
        self._word = np.dtype(f"u{CODED_KINDS[kind]}")
        import zstandard  # takes 10 ms

        self._compressor = zstandard.ZstdCompressor(level=_LEVEL)

    @classmethod
    def of(cls, dtype: str, block_bytes: int) -> ExponentCoder | None:
        """A coder for blocks of this dtype; None if there is none."""
        kind = _KIND_OF.get(dtype)
        return None if kind is None or block_bytes % CODED_KINDS[kind] else cls(kind)

    def encode(self, block: memoryview | bytes | bytearray) -> bytes | None:
        """Code a block; None if it hardly shrinks."""
        floats = np.frombuffer(block, self._word)
        exponents, rest = np.empty(floats.size, np.uint8), np.empty(floats.nbytes - floats.size, np.uint8)
        split_exponents(floats, exponents, rest)
        coded = rest.tobytes() + self._compressor.compress(exponents.data)
        return coded if len(coded) <= _MOST * floats.nbytes else None

    def measure(self) -> tuple[int, float]:
        """Decode normal numbers. Returns the bytes that coding them saves, and the seconds."""
        block = np.random.default_rng(0).standard_normal(_TRIAL_FLOATS, np.float32)
        words = (block.view(np.uint32) >> (32 - 8 * self._word.itemsize)).astype(self._word)
        coded = self.encode(words.tobytes())
        assert coded is not None, "normal numbers have similar exponents"
        times = [time.perf_counter()]
        for _ in range(3):
            decode(self.kind, coded, words.view(np.uint8).data)
            times.append(time.perf_counter())
        return words.nbytes - len(coded), float(np.diff(times).min())


def decode(kind: int, coded: memoryview | bytes, into: memoryview) -> bool:
    """Decode a block. Returns False if the data is damaged; `into` is then undefined."""
    import zstandard

    floats = np.frombuffer(into, np.dtype(f"u{CODED_KINDS[kind]}"))
    start = floats.nbytes - floats.size
    frame = coded[start:]
    try:
        if zstandard.get_frame_parameters(frame).content_size != floats.size:  # nothing larger is decoded
            return False
        exponents = np.frombuffer(zstandard.ZstdDecompressor().decompress(frame), np.uint8)
    except zstandard.ZstdError:
        return False
    if exponents.size != floats.size:
        return False
    join_exponents(floats, exponents, np.frombuffer(coded, np.uint8, start))
    return True
