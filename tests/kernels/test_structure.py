"""Addresses of arrays, as kernels get them."""

from __future__ import annotations

import ml_dtypes
import numpy as np

from quire.kernels.recorder import PassMemory
from quire.kernels.structure import address


def test_an_array_begins_where_numpy_says() -> None:
    whole = np.zeros((7, 9), np.float32)
    arrays = [whole, whole[2:, 3:], whole.T, whole[::2], whole[:0], np.zeros((), np.int64), np.frombuffer(bytes(8))]
    arrays += [whole.astype(ml_dtypes.bfloat16), whole.view(np.uint8), PassMemory().allocate((3, 4), whole.dtype)]
    assert [address(each) for each in arrays] == [each.ctypes.data for each in arrays]
