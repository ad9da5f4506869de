"""Crossing point of swap and recompute as a function of the link's bandwidth. Pure arithmetic."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

from quire.core.decisions.costs import Costs


def even_bandwidth(costs: Costs, bytes_per_token: int, num_tokens: int, *, chunk: int) -> float:
    """Bytes per second at which both modes cost the same for `num_tokens`; infinite if none does.

    A limited transfer takes at least as long as on the unlimited link.

    Args:
        costs: costs with an unlimited link.
        chunk: tokens per step.
    """
    num_bytes = num_tokens * bytes_per_token
    recompute = costs.recompute(num_tokens, chunk=chunk)
    slower, faster = sorted((costs.save(num_bytes), costs.load(num_bytes)), reverse=True)
    if slower + faster >= recompute:
        return math.inf
    # Both ways are held back alike, or only the faster one, beside a way that is slow enough by itself.
    return num_bytes / min(recompute / 2, recompute - slower)


def bandwidth_for_crossing(costs: Costs, bytes_per_token: int, num_tokens: int, *, chunk: int) -> float:
    """`even_bandwidth`, if it is finite. Raises ValueError if even the unlimited link is too slow."""
    bandwidth = even_bandwidth(costs, bytes_per_token, num_tokens, chunk=chunk)
    if bandwidth == math.inf:
        recompute = costs.recompute(num_tokens, chunk=chunk)
        raise ValueError(
            f"no bandwidth makes the modes cross at {num_tokens} tokens: computing takes {recompute * 1e3:.1f} ms, and "
            "swapping takes longer on the link as it is"
        )
    return bandwidth


def crossings_at(
    bandwidth: float, costs: Costs, bytes_per_token: int, lengths: Sequence[int], *, chunk: int
) -> list[int]:
    """Lengths at which the cheaper mode changes on a limited link."""
    swaps = [(n, even_bandwidth(costs, bytes_per_token, n, chunk=chunk) <= bandwidth) for n in lengths]
    return [n for (_, before), (n, now) in pairwise(swaps) if now != before]
