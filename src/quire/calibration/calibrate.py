"""Measure both recovery modes on an idle engine, for each length in turns, then decode steps: the CPS paper's table,
and the cost model for this machine."""

from __future__ import annotations

import logging
import statistics
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

from quire.calibration.microbenchmark import BlocksLost, Microbenchmark, StepTiming, TransferTiming
from quire.config import SchedulerConfig
from quire.core.decisions.cost_model import CostModel
from quire.core.decisions.costs import find_crossings
from quire.engine.engine import Engine

logger = logging.getLogger("quire")

SHORTEST = 64  #: tokens
_BATCH_SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
_CONTEXTS = (64, 512, 4096)
_DECODE_STEPS = 4
_FEW_TOKENS = 4  #: a token and its drafts
_SHORTEST_S = 1e-9  #: least duration, for clocks of low resolution
_Key = TypeVar("_Key", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Spread:
    """Median and range of measured seconds."""

    median: float
    min: float
    max: float

    @classmethod
    def of(cls, values: Iterable[float]) -> Spread:
        known = list(values)
        return cls(statistics.median(known), min(known), max(known))


@dataclass(frozen=True, slots=True)
class Swapping:
    """Swapping one request's blocks out and in."""

    out: Spread  #: copying by the link
    prepare: Spread  #: bookkeeping, staging, submission
    into: Spread  #: copying by the link
    latency: Spread  #: sum of the three
    waits: Spread  #: part of the latency in which no step can run

    @classmethod
    def of(cls, pairs: Sequence[tuple[TransferTiming, TransferTiming]]) -> Swapping:
        return cls(
            out=Spread.of(save.copy_s for save, _ in pairs),
            prepare=Spread.of(sum(max(0.0, one.wall_s - one.copy_s) for one in pair) for pair in pairs),
            into=Spread.of(load.copy_s for _, load in pairs),
            latency=Spread.of(save.wall_s + load.wall_s for save, load in pairs),
            waits=Spread.of(save.wait_s + load.wait_s for save, load in pairs),
        )


@dataclass(frozen=True, slots=True)
class LengthRow:
    num_tokens: int
    num_bytes: int  #: size of its blocks
    swap: Swapping
    recompute: Spread


@dataclass(frozen=True, slots=True)
class DecodeRow:
    num_seqs: int
    context: int  #: tokens per sequence
    step: Spread


@dataclass(frozen=True)
class Calibration:
    """All measurements, and the cost model fitted to them."""

    rows: list[LengthRow]
    decodes: list[DecodeRow]
    cost_model: CostModel
    bytes_per_token: int  #: KV size
    block_size: int
    chunk: int  #: most tokens per step
    state_bytes: int = 0  #: of a sequence, beside its KV

    @property
    def max_tokens(self) -> int:
        return self.rows[-1].num_tokens

    def crossing_points(self) -> list[int]:
        """Lengths at which the cheaper mode changes, by the cost model."""
        return find_crossings(
            self.cost_model, self.bytes_per_token, self.max_tokens, granularity=self.block_size, chunk=self.chunk,
            state_bytes=self.state_bytes,
        )  # fmt: skip


@dataclass
class _Trial:
    steps: list[StepTiming]
    transfers: list[TransferTiming] = field(default_factory=list)
    seconds: float = 0.0  #: duration of the whole trial


def default_lengths(max_model_len: int) -> list[int]:
    """64, 96, 128, 192, 256 and so on, and `max_model_len`."""
    lengths = []
    power = SHORTEST
    while power <= max_model_len:
        lengths += [power, power + power // 2]
        power *= 2
    return [*(length for length in lengths if length < max_model_len), max_model_len]


def calibrate_engine(
    engine: Engine,
    *,
    lengths: Sequence[int] | None = None,
    repeats: int = 3,
    decodes: bool = True,
    on_trial: Callable[[str], None] = lambda trial: None,
) -> Calibration:
    """Measure what swapping and computing cost on an idle engine, whose pool loses its cached blocks.

    Each of `lengths` tokens (rounded down to full blocks; by default up to what the swap tier holds) is measured
    `repeats` times after a warm-up, and with `decodes` decode steps are too. `on_trial` gets each measurement's name.
    Raises ValueError if the engine is busy, has no swap tier or a length does not fit; BlocksLost if a transfer failed.
    """
    config = engine.scheduler.config
    microbenchmark = Microbenchmark(engine)
    num_slots = engine.scheduler.swap.tier.num_slots
    if not num_slots:
        raise ValueError("there is no swap tier to measure; give swap_space or swap_dir")
    lengths = lengths or default_lengths(min(config.max_model_len, num_slots * config.block_size))
    whole = _whole_blocks(lengths, config.block_size, config.max_model_len)
    with microbenchmark:
        microbenchmark.scatter()
        for length in whole:
            if length <= 2 * config.max_num_batched_tokens:  # a warm-up for each shape of a step
                _compute_and_swap(microbenchmark, length)
        trials = {length: partial(_compute_and_swap, microbenchmark, length) for length in whole}
        swaps = _in_turns(trials, repeats, on_trial)
        contexts = dict.fromkeys(min(context, config.max_model_len - _DECODE_STEPS) for context in _CONTEXTS)
        every = [(num_seqs, context) for context in contexts for num_seqs in _BATCH_SIZES] if decodes else []
        shapes = [shape for shape in every if microbenchmark.has_room_to_decode(*shape, _DECODE_STEPS)]
        for shape in shapes:
            microbenchmark.decode(*shape, 1)
        steps = _in_turns({shape: partial(_decode, microbenchmark, *shape) for shape in shapes}, repeats, on_trial)
    return _summarise(swaps, steps, config)


def _summarise(
    swaps: Mapping[int, Sequence[_Trial]], steps: Mapping[tuple[int, int], Sequence[_Trial]], config: SchedulerConfig
) -> Calibration:
    bytes_per_token = config.block_bytes // config.block_size
    state_bytes = 0 if config.window is None else (config.window.num_records - 1) * config.block_bytes
    rows = [
        LengthRow(
            length,
            length * bytes_per_token + state_bytes,
            Swapping.of([(trial.transfers[0], trial.transfers[1]) for trial in trials]),
            Spread.of(sum(step.seconds for step in trial.steps) for trial in trials),
        )
        for length, trials in swaps.items()
    ]
    decodes = [
        DecodeRow(*shape, Spread.of(step.seconds for trial in trials for step in trial.steps))
        for shape, trials in steps.items()
    ]
    model = CostModel()
    _learn(model, (trial for trials in (*swaps.values(), *steps.values()) for trial in trials))
    chunk = config.max_tokens_beside_streams or config.max_num_batched_tokens
    return Calibration(rows, decodes, model, bytes_per_token, config.block_size, chunk, state_bytes)


def quick_profile(engine: Engine, cost_model: CostModel, *, seconds: float = 2.0) -> None:
    """Profile an idle engine for about this many seconds, at its first start; without a swap tier, only steps. If time
    allows, each measurement runs twice and the second counts; lengths that take too long are skipped."""
    config = engine.scheduler.config
    longest = min(config.max_model_len, 2 * config.max_num_batched_tokens)
    lengths = [n for n in default_lengths(longest) if n & (n - 1) == 0 and n >= config.block_size]
    started = engine.clock()
    seen: dict[int, _Trial] = {}
    with Microbenchmark(engine) as microbenchmark:
        trials = [
            partial(_decode, microbenchmark, 1, 16),
            partial(_compute_blocks, microbenchmark, min(_FEW_TOKENS, longest)),
            partial(_decode, microbenchmark, 8, 64),
            partial(_compute_blocks, microbenchmark, min(config.block_size, longest)),
            *(
                partial(_compute_and_swap, microbenchmark, length, may_skip_swap=True)
                for length in _whole_blocks(lengths, config.block_size, longest)
            ),
        ]
        for _ in range(2):
            last = 0.0
            for at, trial in enumerate(trials):
                began = engine.clock()
                expected = seen[at].seconds if at in seen else 2.5 * last
                if began - started + expected > seconds:
                    break
                try:
                    seen[at] = trial()
                except BlocksLost as error:
                    logger.warning("profiling ends early: %s", error)
                    break
                seen[at].seconds = last = engine.clock() - began
    _learn(cost_model, seen.values())


def _learn(model: CostModel, done: Iterable[_Trial]) -> None:
    """Fit all trials at once: their differences are noise, not a change of the machine."""
    link = model.links["host"]
    for trial in done:
        for step in trial.steps:
            model.steps.observe(step.shape, max(step.seconds, _SHORTEST_S))
        for transfer in trial.transfers:
            cost = link.saves if transfer.kind == "save" else link.loads
            cost.observe(transfer.num_bytes, max(transfer.copy_s, _SHORTEST_S))
    model.steps.fit()
    for each in (model.steps, link.saves, link.loads):
        each.misses.misses.clear()


def _compute_and_swap(microbenchmark: Microbenchmark, length: int, *, may_skip_swap: bool = False) -> _Trial:
    seq, steps = microbenchmark.compute(length)
    transfers = []
    if microbenchmark.has_room_for(seq) or not may_skip_swap:
        transfers = [microbenchmark.swap_out(seq), microbenchmark.swap_in(seq)]
    microbenchmark.forget(seq)
    return _Trial(steps, transfers)


def _compute_blocks(microbenchmark: Microbenchmark, length: int) -> _Trial:
    """Measure short prompts: where steps wait for weights, a block costs far less than its share of a long prompt."""
    steps = []
    for _ in range(_DECODE_STEPS):
        seq, timings = microbenchmark.compute(length)
        microbenchmark.forget(seq)
        steps += timings
    return _Trial(steps)


def _decode(microbenchmark: Microbenchmark, num_seqs: int, context: int) -> _Trial:
    """Measure decode steps; none without room for them."""
    has_room = microbenchmark.has_room_to_decode(num_seqs, context, _DECODE_STEPS)
    return _Trial(microbenchmark.decode(num_seqs, context, _DECODE_STEPS) if has_room else [])


def _in_turns(
    trials: Mapping[_Key, Callable[[], _Trial]], repeats: int, on_trial: Callable[[str], None]
) -> dict[_Key, list[_Trial]]:
    done: dict[_Key, list[_Trial]] = {key: [] for key in trials}
    for _ in range(repeats):
        for key, trial in trials.items():
            done[key].append(trial())
            on_trial(f"{key} tokens" if isinstance(key, int) else "decoding")
    return done


def _whole_blocks(lengths: Sequence[int], block_size: int, longest: int) -> list[int]:
    """Distinct lengths in whole blocks, ascending."""
    for length in lengths:
        if not block_size <= length <= longest:
            raise ValueError(f"a length of {length} tokens: expected {block_size} (a block) to max_model_len={longest}")
    return sorted({length // block_size * block_size for length in lengths})
