"""The largest logits of long rows."""

from __future__ import annotations

import numpy as np

from quire.kernels.elementwise import elementwise
from quire.ops.arrays import Array, is_numpy, name_of, to_host, widen
from quire.system.threads import threads_for

_CHUNK = 512  # tokens


def best_tokens(logits: Array) -> tuple[np.ndarray, np.ndarray]:
    """Return each row's largest value (NaN if it has any) and its first position."""
    if not is_numpy(logits):
        values, ids = logits.max(dim=-1)
        return to_host(values.float()), to_host(ids)
    kernels = elementwise(name_of(logits.dtype))
    if kernels is None or logits.strides[1] != logits.itemsize:
        places = (rows := widen(logits)).argmax(axis=-1)
        return np.take_along_axis(rows, places[:, None], axis=-1)[:, 0], places
    num_rows, size = logits.shape
    best, places = np.empty(num_rows, dtype=np.float32), np.empty(num_rows, dtype=np.int64)
    stride, count = logits.strides[0] // logits.itemsize, threads_for(logits.size)
    kernels.best(logits.ctypes.data, num_rows, size, stride, best.ctypes.data, places.ctypes.data, count)
    return best, places


def top_values(row: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the k largest values of a float32 row, descending, and their positions; of equal values, the first."""
    size = len(row)
    bounds = row  # the kth largest of these is no larger than the row's
    if k * 4 <= (num_chunks := size // _CHUNK):
        bounds = np.maximum.reduce(row[: num_chunks * _CHUNK].reshape(num_chunks, _CHUNK), axis=1)
    kth = max(0, len(bounds) - k)
    places = np.flatnonzero(row >= np.partition(bounds, kth)[kth])
    places = places[np.argsort(-row[places], kind="stable")[:k]]
    return row[places], places
