"""Random operands of products, without torch."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec

import numpy as np

from quire.ops.arrays import Array, DType, as_tensor, is_numpy, name_of, numpy_dtype


def random_array(shape: Sequence[int], dtype: DType) -> Array:
    """Return normal numbers in an array of the dtype's kind."""
    values = np.random.default_rng(0).standard_normal(shape, np.float32).astype(numpy_dtype(name_of(dtype)))
    return values if is_numpy(dtype) else as_tensor(values)


def check_torch(purpose: str) -> None:
    """Raise ValueError if torch is not installed."""
    if find_spec("torch") is None:
        raise ValueError(f"{purpose} needs torch: pip install 'quire-llm[torch]'")
