"""Preempted requests: freed blocks that are evicted before they resume, and further preemptions."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from quire.core.request import Sequence


def forecast_evictions(others: Iterable[Sequence], block_size: int) -> float:
    """Blocks that other sequences allocate until those that have ended return as many, so that a victim has room again.
    It supposes a token per step, and ends at the maximum lengths; at least 1."""
    seqs = sorted(others, key=_num_tokens_left)
    num_running, time = len(seqs), 0
    taken = returned = 0.0  # tokens
    for seq in seqs:
        taken += len(seq.token_ids) + block_size / 2 - len(seq.block_table) * block_size
    for seq in seqs:
        left = _num_tokens_left(seq)
        taken += (left - time) * num_running
        returned += seq.num_tokens_at_end
        if returned >= taken:
            break
        num_running, time = num_running - 1, left
    return max(1.0, taken / block_size)


def _num_tokens_left(seq: Sequence) -> int:
    return seq.num_tokens_at_end - len(seq.token_ids)


class EvictionStats:
    """Statistics of preempted requests: how many of their freed blocks (the end of each table first) are evicted, as a
    share of the forecast, since most requests end before their maximum lengths; and how many are preempted again."""

    def __init__(self, num_kept: int = 32, num_preemptions: int = 64) -> None:
        self._shares: deque[tuple[float, bool]] = deque(maxlen=num_kept)
        self._is_repeated: deque[bool] = deque(maxlen=num_preemptions)

    def observe_preemption(self, *, is_repeated: bool) -> None:
        """Record a preemption; `is_repeated` if the request has been preempted before."""
        self._is_repeated.append(is_repeated)

    @property
    def again(self) -> float:
        """Share of preempted requests that are preempted again; one more was not."""
        return sum(self._is_repeated) / (len(self._is_repeated) + 1)

    def observe(self, num_freed: int, num_lost: int, forecast: float) -> None:
        """Record a resumed request: full blocks that its preemption freed, how many of them were evicted, and how many
        were forecast. Where all were, it might have lost more."""
        self._shares.append((min(num_lost, num_freed) / forecast, num_lost >= num_freed))

    def expect(self, num_freed: int, forecast: float, num_groups: int = 4) -> list[int]:
        """Equally likely numbers of evicted blocks, ascending; before any observation, the forecast. The distribution
        of shares is Kaplan's and Meier's (1958), which counts a request that lost all as at risk up to there."""
        shares = sorted(self._shares)
        points, rest = list[tuple[float, float, float]](), 1.0  # blocks, and from where to where in the distribution
        for at, (share, is_all) in enumerate(shares):
            if not is_all:
                after = rest - rest / (len(shares) - at)
                points.append((share * forecast, 1.0 - rest, 1.0 - after))
                rest = after
        most = max(1.0, shares[-1][0]) if shares else 1.0
        points.append((most * forecast, 1.0 - rest, 1.0))
        num_groups = max(1, min(num_groups, len(shares)))

        def mean(low: float, high: float) -> float:
            parts = ((min(lost, num_freed), min(high, end) - max(low, start)) for lost, start, end in points)
            return sum(lost * part for lost, part in parts if part > 0.0) / (high - low)

        return sorted(round(mean(at / num_groups, (at + 1) / num_groups)) for at in range(num_groups))
