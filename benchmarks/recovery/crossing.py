"""What the crossing point depends on: the bandwidth of the link, against what computing costs. Pure arithmetic."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

from quire.core.decisions.costs import Costs


def even_bandwidth(costs: Costs, bytes_per_token: int, num_tokens: int, *, chunk: int) -> float:
    """The bandwidth, in bytes a second, at which both modes cost the same for `num_tokens`; infinite where none does.

    A transfer takes as long as it takes on the link as it is, or longer where the bandwidth allows no less.

    Args:
        costs: with the link as fast as it goes.
        chunk: tokens that a step takes.
    """
    num_bytes = num_tokens * bytes_per_token
    recompute = costs.recompute(num_tokens, chunk=chunk)
    slower, faster = sorted((costs.save(num_bytes), costs.load(num_bytes)), reverse=True)
    if slower + faster >= recompute:
        return math.inf
    # Both ways are held back alike, or only the faster one, beside a way that is slow enough by itself.
    return num_bytes / min(recompute / 2, recompute - slower)


def bandwidth_for_crossing(costs: Costs, bytes_per_token: int, num_tokens: int, *, chunk: int) -> float:
    """`even_bandwidth`, where there is one.

    Raises:
        ValueError: even the unhindered link is too slow for that.
    """
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
    """The lengths from which on another mode is the cheaper one, on a link that is held to a bandwidth."""
    swaps = [(n, even_bandwidth(costs, bytes_per_token, n, chunk=chunk) <= bandwidth) for n in lengths]
    return [n for (_, before), (n, now) in pairwise(swaps) if now != before]
