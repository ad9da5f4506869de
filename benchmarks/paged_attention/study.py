"""Sweep request rates for each system, and find the rate that each sustains at the same latency."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from typing import Any, TypeVar

from benchmarks.paged_attention.lengths import MAX_MODEL_LEN, draw_lengths, find_preset
from benchmarks.paged_attention.machine import NUM_SLOTS, SEQUENCE_S, a100
from benchmarks.paged_attention.service import ONE_SAMPLE, Decoding, Service, make_arrivals
from quire.config import SchedulerConfig

T = TypeVar("T")
_IN_QUEUE = 600  #: sequences of the queue that measures a capacity


@dataclass(frozen=True)
class Load:
    """One engine and its load."""

    system: str  #: see `reservation.SYSTEMS`
    lengths: str  #: see `lengths.PRESETS`
    decoding: Decoding = ONE_SAMPLE
    block_size: int = 16
    has_prefix_caching: bool = False
    duration_s: float = 600.0  #: arrivals of one rate
    num_slots: int = NUM_SLOTS
    sequence_s: float = SEQUENCE_S
    seed: int = 0

    def serve(self, rate: float) -> dict[str, Any]:
        """Serve arrivals of `duration_s` at `rate` requests a second."""
        count = max(5, round(rate * self.duration_s))
        lengths = draw_lengths(self.lengths, count, self.seed)
        arrivals = make_arrivals(lengths, rate, find_preset(self.lengths).prefix)
        return {"rate": rate, "requests": count, **asdict(self._make_service().serve(arrivals))}

    def capacity(self, count: int) -> float:
        """Requests per second of a long queue, from the ends of its middle half."""
        lengths = draw_lengths(self.lengths, count, self.seed)
        arrivals = make_arrivals(lengths, math.inf, find_preset(self.lengths).prefix)
        service = self._make_service()
        service.serve(arrivals)
        ends = sorted(service.ended.values())
        first, last = len(ends) // 4, 3 * len(ends) // 4
        return (last - first) / (ends[last] - ends[first])

    def _make_service(self) -> Service:
        num_blocks = self.num_slots // self.block_size
        hardware = a100(self.sequence_s)
        # Prompts are computed whole, as in Orca and the first vLLM. Memory is the only limit of a batch.
        config = SchedulerConfig(
            num_blocks=num_blocks,
            block_size=self.block_size,
            max_num_seqs=4096,
            max_num_batched_tokens=num_blocks * self.block_size,
            max_model_len=min(MAX_MODEL_LEN, num_blocks * self.block_size),
            enable_prefix_caching=self.has_prefix_caching,
            watermark_blocks=num_blocks // 100,
            block_bytes=hardware.bytes_per_token * self.block_size,
        )
        return Service(self.system, hardware, config, self.decoding)


@dataclass(frozen=True)
class Sweep:
    """Runs of one load at rising rates."""

    load: Load
    capacity: float  #: requests per second of a long queue
    points: list[dict[str, Any]]

    def sustained(self, latency_s: float) -> float | None:
        """The rate at which the normalised latency reaches `latency_s`, between the two runs around it; None if all
        runs are on one side."""
        for below, above in zip(self.points, self.points[1:], strict=False):
            low, high = below["normalised_s"], above["normalised_s"]
            if low <= latency_s < high:
                share = math.log(latency_s / low) / math.log(high / low)
                return float(below["rate"] * (above["rate"] / below["rate"]) ** share)
        return None


def _sweep(task: tuple[Load, Sequence[float], float]) -> Sweep:
    load, shares, scale = task
    capacity = load.capacity(max(60, round(_IN_QUEUE * scale / load.decoding.width)))
    return Sweep(load, capacity, [load.serve(share * capacity) for share in shares])


def _serve(task: tuple[Load, float]) -> dict[str, Any]:
    load, rate = task
    return load.serve(rate)


def sweep_all(loads: Sequence[Load], shares: Sequence[float], scale: float, workers: int) -> list[Sweep]:
    """Serve each load at shares of its own capacity, ascending. `scale` shortens the queue that measures it."""
    return _map(_sweep, [(load, shares, scale) for load in loads], workers)


def serve_all(tasks: Sequence[tuple[Load, float]], workers: int) -> list[dict[str, Any]]:
    """Serve each load at its rate."""
    return _map(_serve, tasks, workers)


def _map(run: Callable[[Any], T], tasks: Sequence[Any], workers: int) -> list[T]:
    """Run tasks in several processes, or one after the other in this one."""
    if workers == 1:
        return [run(task) for task in tasks]
    with ProcessPoolExecutor(workers) as pool:
        return list(pool.map(run, tasks))
