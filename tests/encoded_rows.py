"""Encoded rows of weights for tests: any bytes, with scales of a usual size."""

from __future__ import annotations

import gguf
import numpy as np

#: Offsets of float16 numbers in a block.
_HALVES = {"Q6_K": (208,), "MXFP4": (), "Q4_1": (0, 2), "Q5_1": (0, 2), "Q4_K": (0, 2), "Q5_K": (0, 2)}
_HALVES |= {"Q2_K": (80, 82), "Q3_K": (108,)}


def random_rows(name: str, num_rows: int, depth: int, seed: int = 0) -> np.ndarray:
    """Return uint8 [num_rows, row_bytes] of a GGUF type; every bit pattern occurs."""
    random = np.random.default_rng(seed)
    block_size, type_size = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[name]]
    blocks = random.integers(0, 256, (num_rows, depth // block_size, type_size), np.uint8)
    for at in _HALVES.get(name, (0,)):
        values = random.standard_normal(blocks.shape[:2]) * 0.01
        blocks[..., at : at + 2] = values.astype(np.float16)[..., None].view(np.uint8)
    if name == "MXFP4":
        blocks[..., 0] = random.integers(110, 125, blocks.shape[:2])
        blocks[0, 0, 0] = 1  # a denormal number
    return blocks.reshape(num_rows, -1)


def encode_integers(integers: np.ndarray, scales: np.ndarray, zeros: np.ndarray, group: int) -> np.ndarray:
    """Encode uint8 [rows, depth] as rows of "INT4" or "INT8"; scales float32 and zeros uint8, [rows, groups]."""
    num_rows, depth = integers.shape
    blocks = np.zeros((num_rows, scales.shape[1], 5 + group), np.uint8)
    blocks[..., :4] = scales[..., None].view(np.uint8)
    blocks[..., 4] = zeros
    padded = np.pad(integers, ((0, 0), (0, scales.shape[1] * group - depth)))
    blocks[..., 5:] = padded.reshape(num_rows, -1, group)
    return blocks.reshape(num_rows, -1)


def decoded_integers(integers: np.ndarray, scales: np.ndarray, zeros: np.ndarray, group: int) -> np.ndarray:
    """Return float64 [rows, depth]: (integer - zero) * scale."""
    places = np.arange(integers.shape[1]) // group
    return (integers.astype(np.float64) - zeros[:, places]) * scales[:, places].astype(np.float64)
