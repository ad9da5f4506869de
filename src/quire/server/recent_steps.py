"""Sums over a model's steps since the start, and its latest latencies, for the page."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable
from typing import Any

from quire.outputs import RequestOutput, Stats

_NUM_REQUESTS, _NUM_GAPS = 256, 1024


class RecentSteps:
    """A step costs it a few microseconds. Other threads may call `show`."""

    def __init__(self) -> None:
        self._sums: Counter[str] = Counter()
        self._moved: Counter[str] = Counter()  #: blocks by tier and direction
        self._ways: Counter[str] = Counter()
        self._audits: Counter[str] = Counter()
        self._ttfts: deque[float] = deque(maxlen=_NUM_REQUESTS)
        self._gaps: deque[float] = deque(maxlen=_NUM_GAPS)
        self._last_step: dict[str, float] = {}

    def observe(self, stats: Stats) -> None:
        sums = self._sums
        sums["prompt_tokens"] += stats.num_prompt_tokens
        sums["generated_tokens"] += stats.num_sampled_tokens
        sums["found_tokens"] += stats.prefix_hits
        sums["preemptions"] += stats.preemptions
        self._gaps.extend(stats.token_gaps)
        if stats.num_scheduled_tokens:
            sums["steps"] += 1
            tokens, sequences = stats.num_scheduled_tokens, stats.num_scheduled_seqs
            self._last_step = {"tokens": tokens, "sequences": sequences, "seconds": round(stats.execute_s, 6)}
        for kind, count in stats.disk_moved.items():
            self._moved[f"disk.{kind}"] += count
        if stats.recovery is not None:
            for kind, count in stats.recovery.swapped_blocks.items():
                self._moved[f"host.{kind}"] += count
        self._ways.update(stats.prefix_ways)
        for (_, result), count in stats.audits.items():
            self._audits[result] += count

    def observe_finished(self, output: RequestOutput) -> None:
        times = output.metrics
        if times is not None and times.first_token_time is not None:
            self._ttfts.append(times.first_token_time - times.arrival_time)

    def show(self) -> dict[str, Any]:
        """Return the numbers as JSON values."""
        counters = {"sums": self._sums, "moved_blocks": self._moved, "ways": self._ways, "audits": self._audits}
        return {
            **{name: dict(counter) for name, counter in counters.items()},
            "last_step": self._last_step,
            "ttft_s": _percentiles(self._ttfts),
            "itl_s": _percentiles(self._gaps),
        }


def _percentiles(values: Iterable[float]) -> dict[str, float]:
    ordered = sorted(values)  # copies them at once: other threads append
    if not ordered:
        return {}
    return {f"p{part}": round(ordered[min(len(ordered) - 1, len(ordered) * part // 100)], 6) for part in (50, 95, 99)}
