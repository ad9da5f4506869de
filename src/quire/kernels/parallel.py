"""How many threads an operation is worth."""

from __future__ import annotations

_SERIAL_ELEMENTS = 2**17  # up to this size, one thread is faster than waking another


def threads_for(num_elements: int, num_threads: int) -> int:
    """Return the number of threads worth using."""
    return num_threads if num_elements > _SERIAL_ELEMENTS else 1
