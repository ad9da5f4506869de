"""Split floats into bit planes and join them again.

The planes are the exponents, a byte each; the *top*, sign and upper bits of the mantissa's head; the *rest*, the head's
other bits; the low bytes. Rows of the top and the rest are little-endian bit strings, each padded to whole bytes.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any

import numpy as np

from quire.kernels.loaded import load_kernels
from quire.kernels.structure import address, structure


@dataclass(frozen=True)
class FloatFormat:
    """A sign, an exponent, the head of the mantissa, and further bytes of it."""

    item_bytes: int
    head_bits: int
    low_bytes: int

    def plane_bytes(self, num_rows: int, size: int, top_bits: int) -> tuple[int, int]:
        """Return the bytes of the top plane of rows of `size` weights, and of rest and low planes."""
        rest_bits = 1 + self.head_bits - top_bits
        rest = packed_bytes(size, rest_bits) + size * self.low_bytes
        return num_rows * packed_bytes(size, top_bits), num_rows * rest


#: Of zstd for exponents: nearly no matches, since they are independent. 9 % smaller than level 1, 0.6 of its time.
CODER_PARAMETERS = {"strategy": 1, "min_match": 7, "hash_log": 6, "chain_log": 6, "search_log": 1, "window_log": 20}
#: By safetensors' dtypes.
FORMATS = {"BF16": FloatFormat(2, 7, 0), "F32": FloatFormat(4, 7, 2), "F16": FloatFormat(2, 2, 1)}


class ExponentCoder:
    """Codes exponents by zstd, for one thread."""

    def __init__(self) -> None:
        import zstandard  # takes 10 ms

        self._library: Any = zstandard
        self._decompressor = zstandard.ZstdDecompressor()
        parameters = zstandard.ZstdCompressionParameters(**CODER_PARAMETERS)
        self._compressor = zstandard.ZstdCompressor(compression_params=parameters)

    def encode(self, exponents: bytes) -> bytes:
        """Return a frame."""
        return self._compressor.compress(exponents)

    def decode(self, frame: memoryview | bytes, count: int) -> np.ndarray:
        """Return `count` exponents, uint8. A frame that states another size is refused before memory is taken for it:
        ValueError, as for a damaged one."""
        try:
            fits = self._library.get_frame_parameters(frame).content_size == count
            exponents = self._decompressor.decompress(frame, allow_extra_data=False) if fits else b""
        except self._library.ZstdError as error:
            raise ValueError(str(error)) from None
        if len(exponents) != count:
            raise ValueError("the exponents have another size")
        return np.frombuffer(exponents, np.uint8)


def packed_bytes(size: int, bits: int) -> int:
    """Return the bytes of a packed row of `size` fields."""
    return -(-size * bits // 8)


_Planes = structure(
    "QuirePlanes",
    "pointer exponents top rest low out",
    "int64 num_rows size",
    "int32 top_bits rest_bits item_bytes low_bytes",
)  # csrc/planes.h


def split_words(words: np.ndarray, form: FloatFormat, top_bits: int) -> tuple[bytes, bytes, bytes]:
    """Return exponents, top, and rest with low bytes of unsigned words [num_rows, size]."""
    bits, low_bits, rest_bits = 8 * form.item_bytes, 8 * form.low_bytes, 1 + form.head_bits - top_bits
    exponents, head = np.empty(words.shape, np.uint8), np.empty(words.shape, np.uint8)
    low = np.empty((*words.shape, form.low_bytes), np.uint8)
    if (functions := load_kernels().functions) is not None and form.head_bits == 7:
        places = (ctypes.c_void_p(address(each)) for each in (words, exponents, head, low))
        functions.quire_split_planes(*places, ctypes.c_int64(words.size), ctypes.c_int32(form.item_bytes))
    else:
        exponents[...] = words >> (form.head_bits + low_bits) & ((1 << (bits - 1 - form.head_bits - low_bits)) - 1)
        head[...] = words >> (bits - 1) << form.head_bits | words >> low_bits & ((1 << form.head_bits) - 1)
        low[...] = words.view(np.uint8).reshape(*words.shape, form.item_bytes)[..., : form.low_bytes]
    rest = low.tobytes()
    if rest_bits:
        rest = _pack(head & ((1 << rest_bits) - 1), rest_bits) + rest
        head >>= rest_bits
    return exponents.tobytes(), _pack(head, top_bits), rest


def join_words(
    out: np.ndarray,
    form: FloatFormat,
    top_bits: int,
    exponents: np.ndarray | None,
    top: np.ndarray | None,
    rest: np.ndarray | None,
) -> None:
    """Undo `split_words` for words [num_rows, size], from bytes. Bits of absent planes become 0."""
    rest_bits, low_bits = 1 + form.head_bits - top_bits, 8 * form.low_bytes
    low, size = None, out.shape[1]
    if rest is not None:
        packed = len(out) * packed_bytes(size, rest_bits)
        rest, low = rest[:packed], rest[packed:]
    found = [None if plane is None or not plane.size else plane for plane in (exponents, top, rest, low)]
    if (functions := load_kernels().functions) is not None:
        places = [None if plane is None else address(plane) for plane in found]
        call = _Planes(*places, address(out), *out.shape, top_bits, rest_bits, form.item_bytes, form.low_bytes)
        functions.quire_join_planes(ctypes.byref(call))
        return
    exponents, top, rest, low = found
    head = np.zeros(out.shape, out.dtype)
    if top is not None:
        head |= _unpack(top, top_bits, out.shape).astype(out.dtype) << rest_bits
    if rest is not None:
        head |= _unpack(rest, rest_bits, out.shape)
    out[...] = head >> form.head_bits << (8 * form.item_bytes - 1)
    out |= (head & ((1 << form.head_bits) - 1)) << low_bits
    if exponents is not None:
        out |= exponents.reshape(out.shape).astype(out.dtype) << (form.head_bits + low_bits)
    if low is not None:
        out |= low.view(f"<u{form.low_bytes}").reshape(out.shape)


def _pack(fields: np.ndarray, bits: int) -> bytes:
    if bits == 8:
        return fields.tobytes()
    each = np.unpackbits(fields[..., None], axis=-1, count=bits, bitorder="little")
    return np.packbits(each.reshape(len(fields), -1), axis=-1, bitorder="little").tobytes()


def _unpack(packed: np.ndarray, bits: int, shape: tuple[int, ...]) -> np.ndarray:
    num_rows, size = shape
    each = np.unpackbits(packed.reshape(num_rows, -1), axis=-1, count=size * bits, bitorder="little")
    return np.packbits(each.reshape(num_rows, size, bits), axis=-1, bitorder="little")[..., 0]
