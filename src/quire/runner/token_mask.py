"""Token masks of grammars, `allowed_token_ids`, `bad_words` and `min_tokens`: one bit per token, set if allowed."""

from __future__ import annotations

import functools

import numpy as np
import torch

from quire.kernels.elementwise import threads_for
from quire.models.layers import kernels_for
from quire.system.threads import num_threads

ALL = np.uint32(0xFFFFFFFF)
#: Minus infinity as an integer, by dtype of the logits.
_NEGATIVE_INFINITY = {torch.float32: -0x800000, torch.bfloat16: -0x80, torch.float16: -0x400}
_INTEGERS = {2: torch.int16, 4: torch.int32}
_FEW = 64  # words of a mask, up to which tokens are looked up one by one
_MOST_LISTED = 512  # words of a mask, up to which listing its tokens costs less than reading all logits


def apply_masks(logits: torch.Tensor, rows: list[int], words: np.ndarray) -> None:
    """Set banned logits of [num_rows, vocab_size] to minus infinity in place; words: uint32 [len(rows), words]."""
    if logits.device.type == "cpu":
        kernels = kernels_for(logits.dtype) if logits.stride(1) == 1 else None
        if kernels is not None:
            at, words = np.array(rows, dtype=np.int64), np.ascontiguousarray(words)
            count = threads_for(words.size * 32, num_threads())
            kernels.ban(
                logits.data_ptr(), logits.stride(0), logits.shape[1], at.ctypes.data, len(rows),
                words.ctypes.data, words.shape[1], count,
            )  # fmt: skip
            return
        integers = logits.view(_INTEGERS[logits.element_size()]).numpy()
        for row, mask in zip(rows, words, strict=True):
            _apply(integers[row], mask, _NEGATIVE_INFINITY[logits.dtype])
        return
    apply_on_device(logits, rows, words)


def allowed_tokens(words: np.ndarray, vocab_size: int) -> np.ndarray | None:
    """Return the allowed tokens in ascending order (int64) if they are few, else None."""
    touched = np.flatnonzero(words)
    return _places(touched, words[touched], vocab_size) if len(touched) <= _MOST_LISTED else None


def apply_on_device(logits: torch.Tensor, rows: list[int], words: np.ndarray) -> None:
    """As `apply_masks`, with torch operations for an accelerator."""
    bits = torch.from_numpy(words.view(np.int32)).to(logits.device, non_blocking=True)
    places = torch.arange(32, dtype=torch.int32, device=logits.device)
    is_banned = ((bits[:, :, None] >> places) & 1 == 0).flatten(1)[:, : logits.shape[1]]  # [len(rows), vocab_size]
    where = torch.tensor(rows, device=logits.device)
    logits[where] = logits[where].masked_fill_(is_banned, -torch.inf)


def _apply(row: np.ndarray, mask: np.ndarray, infinity: int) -> None:
    """Apply a mask to one row of logits, viewed as integers."""
    touched = np.flatnonzero(mask != ALL)
    if len(touched) <= _FEW:  # a few bans
        row[_places(touched, ~mask[touched], len(row))] = infinity
        return
    allowed = np.flatnonzero(mask)
    if len(allowed) <= _FEW:
        places = _places(allowed, mask[allowed], len(row))
        kept = row[places]
        row.fill(infinity)
        row[places] = kept
        return
    # Sixteen bytes of logits at once from a table, without a branch: the time does not depend on the mask.
    keys = mask.astype("<u4", copy=False).view(np.uint8)
    if row.itemsize == 4:
        keys = np.stack((keys & 15, keys >> 4), axis=1).ravel()
    per_key = 16 // row.itemsize
    size = len(row) // per_key
    keep = np.take(_keep_table(row.dtype), keys[:size], mode="clip").view(row.dtype)
    head = row[: size * per_key]
    head &= keep
    np.invert(keep, out=keep)
    keep &= infinity
    head |= keep
    tail = np.arange(size * per_key, len(row))
    row[tail[(mask[tail >> 5] >> (tail & 31).astype(np.uint32)) & 1 == 0]] = infinity


def _places(at: np.ndarray, words: np.ndarray, size: int) -> np.ndarray:
    """Return the tokens whose bits are set in words `at`."""
    bits = np.unpackbits(words.astype("<u4").view(np.uint8), bitorder="little").reshape(-1, 32)
    row, bit = np.nonzero(bits)
    places = at[row] * 32 + bit
    return places[places < size]


@functools.cache
def _keep_table(dtype: np.dtype) -> np.ndarray:
    """Return a table of all-ones or all-zeros integers per bit, for eight bits of a mask (four for wide logits), in
    numbers of sixteen bytes: complex128 [256 or 16]."""
    num_bits = 16 // dtype.itemsize
    values = np.arange(1 << num_bits, dtype=np.uint8)[:, None]
    bits = np.unpackbits(values, axis=1, bitorder="little")[:, :num_bits]
    return np.negative(bits.astype(dtype)).view(np.complex128).ravel()
