"""One virtual engine that serves requests with samples or beams: end times, batch sizes and use of the KV memory."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence as Seq
from dataclasses import dataclass
from itertools import accumulate
from statistics import fmean
from typing import Any

from benchmarks.paged_attention.reservation import ReservingKVCacheManager, make_scheduler
from quire.bench.workload import Lengths
from quire.config import SchedulerConfig
from quire.core.request import EndRules, KVScope, Order, Request
from quire.outputs import SchedulerOutput, StepOutput, TokenLogprobs
from quire.sampling_params import BeamSearchParams, SamplingParams
from quire.simulate.hardware import HardwareProfile
from quire.simulate.simulation import ROOT, Arrival, Simulation
from quire.simulate.virtual_batch import VirtualBatch
from quire.simulate.virtual_runner import VirtualRunner

#: Mean of the first candidate's -log p, and of the difference to each next one. Chosen so that beams over Alpaca's
#: lengths share as many blocks as in the paper (Figure 15: 38 to 55 %).
_FIRST, _GAP = 0.5, 5.0
_PREFIX_TOKEN = 0


@dataclass(frozen=True)
class Decoding:
    """Sequences of each request: `width` samples, or beams."""

    width: int = 1
    is_beam: bool = False

    @property
    def name(self) -> str:
        return "one sample" if self.width == 1 else f"{self.width} {'beams' if self.is_beam else 'samples'}"


ONE_SAMPLE = Decoding()


@dataclass(frozen=True)
class Served:
    """Figures of one run. Means over time are from a fifth of the arrivals on to the last one."""

    normalised_s: float  #: mean of latency / output tokens
    batched: float  #: mean running requests
    filled: float  #: mean share of the KV memory that holds tokens
    held: float  #: mean share of the KV memory that is reserved, or in used blocks
    saved: float  #: mean share of block table entries that are shared
    preemptions: int


class BeamBatch(VirtualBatch):
    """Draws the candidates of beams, so that beams fork and end at random."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__()
        self._random = random.Random(seed)

    def _add_candidates(self, seq_id: int, seq: Any, result: StepOutput) -> None:  # type: ignore[override]
        gaps = [_FIRST, *[_GAP] * (seq.num_candidates - 1)]
        logprobs = list(accumulate(-gap * self._random.expovariate(1.0) for gap in gaps))
        result.seq_ids.append(seq_id)
        result.sampled.append([])
        result.logprobs[seq_id] = [TokenLogprobs(list(range(len(gaps))), logprobs, 0, logprobs[0], 1)]


class Service(Simulation):
    """One engine of a system. A static batch answers all its requests when its last one ends."""

    def __init__(self, system: str, hardware: HardwareProfile, config: SchedulerConfig, decoding: Decoding) -> None:
        runner = VirtualRunner(hardware, config.block_bytes)
        runner.batch = BeamBatch()
        super().__init__(make_scheduler(system, config), runner)
        self._is_static, self._decoding = system == "static", decoding
        self.ended: dict[int, float] = {}  #: number of the request -> time
        self.window = (0.0, math.inf)
        self._unanswered: list[int] = []
        self._sums = [0.0] * 5

    def make_request(self, number: int, prompt: Seq[int], arrival: Arrival) -> Request:
        width, is_beam = self._decoding.width, self._decoding.is_beam
        return Request(
            f"request-{number}",
            prompt,
            SamplingParams(n=1 if is_beam else width, max_tokens=None, ignore_eos=True),
            beam=BeamSearchParams(width, arrival.num_output_tokens, ignore_eos=True) if is_beam else None,
            order=Order(0, number),
            seed=number,
            ends=EndRules(arrival.num_output_tokens),
            kv=KVScope(ROOT),
        )

    def step(self, until: float = math.inf) -> SchedulerOutput:
        began = self.runner.now
        out = super().step(until)
        requests = {update.sequence.request for update in self.updates}
        ended = [request.order.arrival for request in requests if not request.unfinished]
        running, kv = self.scheduler.queue.running, self.scheduler.kv
        if self.window[0] <= began <= self.window[1]:
            used = kv.pool.num_used * kv.block_size
            held = kv.num_reserved_tokens if isinstance(kv, ReservingKVCacheManager) else used
            entries = kv.num_logical_blocks
            sums = (1.0, len(running) + len(ended), kv.num_kv_tokens, held, used / (entries * kv.block_size or 1))
            seconds = self.runner.now - began
            self._sums = [total + seconds * each for total, each in zip(self._sums, sums, strict=True)]
        self._unanswered += ended
        if not (self._is_static and running):
            self.ended |= dict.fromkeys(self._unanswered, self.runner.now)
            self._unanswered.clear()
        return out

    def serve(self, arrivals: Seq[Arrival]) -> Served:
        """Run requests to their end. Raises RuntimeError if one is refused."""
        self.window = (arrivals[len(arrivals) // 5].time_s, arrivals[-1].time_s)
        figures = self.run(arrivals)
        if figures.num_refused or len(self.ended) < len(arrivals):
            raise RuntimeError(f"{len(arrivals) - len(self.ended)} requests have not been served")
        config = self.scheduler.config
        seconds, batched, tokens, held, shared = self._sums
        num_slots = config.num_blocks * config.block_size
        return Served(
            fmean((self.ended[n] - each.time_s) / each.num_output_tokens for n, each in enumerate(arrivals)),
            batched / seconds,
            tokens / seconds / num_slots,
            held / seconds / num_slots,
            1 - shared / seconds,
            figures.num_preemptions,
        )


def make_arrivals(lengths: Lengths, rate: float, prefix: int = 0) -> list[Arrival]:
    """Requests at `rate` a second. Their first `prefix` tokens are the same; the others are unique."""
    arrivals = []
    for number, (at, prompt, output) in enumerate(zip(lengths.arrival_s, lengths.prompt, lengths.output, strict=True)):
        ids = [_PREFIX_TOKEN] * prefix + [number + 1] * (prompt - prefix) if prefix else None
        arrivals.append(Arrival(at / rate, prompt, output, ids))
    return arrivals


def serve(
    system: str, arrivals: Seq[Arrival], hardware: HardwareProfile, config: SchedulerConfig, decoding: Decoding
) -> Served:
    """Run a load on a fresh engine of a system."""
    return Service(system, hardware, config, decoding).serve(arrivals)
