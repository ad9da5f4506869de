"""What the two modes back cost on this machine: the CPS paper's table, measured on an idle engine.

For each length, in turns: compute so many tokens, swap their blocks out, swap them in. Decode steps too, so that the
cost model knows every kind of step. Knows nothing about tables, pictures or files.
"""

from __future__ import annotations

import logging
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial

from quire.calibration.microbenchmark import BlocksLost, Microbenchmark, StepTime, TransferTime
from quire.core.costs.cost_model import CostModel
from quire.engine.engine import Engine
from quire.tiers.host_space import HostSpace
from quire.tiers.transfer_worker import TransferWorker

logger = logging.getLogger("quire")

SHORTEST = 64  #: tokens
COPY_MODES = ("block", "layer")
_BATCH_SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
_CONTEXTS = (64, 512, 4096)
_DECODE_STEPS = 4
_SHORTEST_S = 1e-9  #: clocks that stand still count as this


@dataclass(frozen=True, slots=True)
class Spread:
    """A measured quantity, in seconds."""

    median: float
    min: float
    max: float

    @classmethod
    def of(cls, values: Iterable[float]) -> Spread:
        known = list(values)
        return cls(statistics.median(known), min(known), max(known))


@dataclass(frozen=True, slots=True)
class Swapping:
    """Out and in again. `latency` is out, preparation and in; of it, `waits` is what holds other requests up."""

    out: Spread  #: the link was busy with it
    prepare: Spread  #: whatever else it took: bookkeeping, staging, handing over
    into: Spread  #: the link was busy with it
    latency: Spread
    waits: Spread  #: no step could run meanwhile

    @classmethod
    def of(cls, pairs: Sequence[tuple[TransferTime, TransferTime]]) -> Swapping:
        return cls(
            out=Spread.of(save.copy_s for save, _ in pairs),
            prepare=Spread.of(sum(max(0.0, one.wall_s - one.copy_s) for one in pair) for pair in pairs),
            into=Spread.of(load.copy_s for _, load in pairs),
            latency=Spread.of(save.wall_s + load.wall_s for save, load in pairs),
            waits=Spread.of(save.wait_s + load.wait_s for save, load in pairs),
        )


@dataclass(frozen=True, slots=True)
class Row:
    """One length."""

    num_tokens: int
    num_bytes: int  #: of its blocks
    swap: Swapping
    recompute: Spread
    layer_swap: Swapping | None = None  #: with K and V of every block and layer copied by themselves


@dataclass(frozen=True, slots=True)
class DecodeRow:
    """Steps of one batch."""

    num_seqs: int
    context: int  #: tokens that each looks back on
    step: Spread


@dataclass(frozen=True)
class Calibration:
    """What was measured, and the cost model that learnt from it.

    Attributes:
        rows: by length.
        decodes: by batch size and context.
        cost_model: has seen every measurement.
        bytes_per_token: of KV.
        block_size: tokens a block.
        chunk: tokens that a step computes at most.
    """

    rows: list[Row]
    decodes: list[DecodeRow]
    cost_model: CostModel
    bytes_per_token: int
    block_size: int
    chunk: int

    @property
    def max_tokens(self) -> int:
        return self.rows[-1].num_tokens

    def crossing_points(self) -> list[int]:
        """Token counts from which on the other mode is cheaper, by the cost model, up to the longest length."""
        return self.cost_model.crossing_points(
            self.bytes_per_token, self.max_tokens, granularity=self.block_size, chunk=self.chunk
        )


def default_lengths(max_model_len: int) -> list[int]:
    """64, 96, 128, 192, 256 and so on, and the longest."""
    lengths = []
    power = SHORTEST
    while power <= max_model_len:
        lengths += [power, power + power // 2]
        power *= 2
    return [*(length for length in lengths if length < max_model_len), max_model_len]


def check_copy_mode(copy_mode: str) -> None:
    """Raises:
    ValueError: there is no such mode.
    """
    if copy_mode not in COPY_MODES:
        raise ValueError(f"copy_mode={copy_mode!r} is not one of {', '.join(COPY_MODES)}")


def calibrate_engine(
    engine: Engine,
    *,
    lengths: Sequence[int] | None = None,
    repeats: int = 3,
    copy_mode: str = "block",
    cost_model: CostModel | None = None,
    decodes: bool = True,
) -> Calibration:
    """Measure swapping and computing over lengths, and decode steps over batch sizes and contexts.

    Lengths take turns, and repeats go through all of them, so that none has the better minute. Blocks are scattered
    over the pool, as they are after a while of serving. The engine is left as it was, but for what its pool had cached.

    Args:
        engine: idle, with a swap tier that holds the longest length.
        lengths: tokens, taken down to whole blocks; None is `default_lengths`, as far as the swap tier has room.
        repeats: of every measurement, after one that does not count.
        copy_mode: block; or layer, which measures beside it what copies of every block's layers by themselves cost,
            to host memory.
        cost_model: learns from it all; None is a fresh one.
        decodes: whether decode steps are measured.

    Raises:
        ValueError: the engine is not idle or has no swap tier, or a length does not fit.
        BlocksLost: on the way.
    """
    config = engine.scheduler.config
    block_size = config.block_size
    check_copy_mode(copy_mode)
    if repeats < 1:
        raise ValueError(f"repeats={repeats} measures nothing; expected at least 1")
    microbenchmark = Microbenchmark(engine)
    microbenchmark.require_link()
    lengths = lengths or default_lengths(min(config.max_model_len, engine.scheduler.swap.tier.num_slots * block_size))
    _check_lengths(lengths, block_size, config.max_model_len)
    whole = _whole_blocks(lengths, block_size)
    model = cost_model or CostModel()
    measured: dict[int, _Measured] = {length: _Measured() for length in whole}
    with microbenchmark:
        microbenchmark.scatter()
        layer_link = _layer_link(microbenchmark) if copy_mode == "layer" else None
        try:
            for length in whole:
                if length <= 2 * config.max_num_batched_tokens:  # later chunks are like earlier ones
                    _Measured().measure(microbenchmark, length, layer_link)
            lessons = [
                measured[length].measure(microbenchmark, length, layer_link) for _ in range(repeats) for length in whole
            ]
        finally:
            if layer_link is not None:
                layer_link.close()
        decode_rows, more = _measure_decodes(microbenchmark, repeats) if decodes else ([], [])
    _learn(model, [*lessons, *more])
    bytes_per_token = config.block_bytes // block_size
    rows = [each.row(length, length * bytes_per_token) for length, each in measured.items()]
    return Calibration(rows, decode_rows, model, bytes_per_token, block_size, config.max_num_batched_tokens)


def quick_profile(engine: Engine, cost_model: CostModel, *, seconds: float = 2.0) -> None:
    """Teach a cost model the little that fits in a few seconds: for the first start of an engine with a swap tier.

    Each measurement is made twice where there is time, and the first of them does not count then. What would take too
    long is left out; the engine's own steps and transfers will teach it.

    Args:
        engine: idle. Without a swap tier, steps alone are measured.
        cost_model: learns.
        seconds: not to be exceeded by much.
    """
    config = engine.scheduler.config
    longest = min(config.max_model_len, 2 * config.max_num_batched_tokens)
    powers = [length for length in default_lengths(longest) if length & (length - 1) == 0]
    started = engine.clock()
    seen: dict[int, _Lesson] = {}
    with Microbenchmark(engine) as microbenchmark:
        trials = [
            partial(_decode, microbenchmark, 1, 16),
            *(
                partial(_compute_and_swap, microbenchmark, length)
                for length in _whole_blocks(powers, config.block_size)
            ),
            partial(_decode, microbenchmark, 8, 64),
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


@dataclass
class _Lesson:
    """What one trial brought."""

    steps: list[StepTime]
    transfers: list[TransferTime] = field(default_factory=list)
    seconds: float = 0.0  #: of the whole trial


def _learn(model: CostModel, lessons: Iterable[_Lesson]) -> None:
    """Take all of it in as one moment: what differs within it is noise, and no sign that the machine has changed."""
    for lesson in lessons:
        for step in lesson.steps:
            model.steps.observe(step.shape, max(step.seconds, _SHORTEST_S))
        for transfer in lesson.transfers:
            cost = model.saves if transfer.kind == "save" else model.loads
            cost.observe(transfer.num_bytes, max(transfer.copy_s, _SHORTEST_S))
    model.steps.fit()
    for each in (model.steps, model.saves, model.loads):
        each.misses.misses.clear()
        each.errors.clear()  # of predictions that nobody relied on


class _Measured:
    """All that was measured of one length."""

    def __init__(self) -> None:
        self.recompute: list[float] = []
        self.swaps: list[tuple[TransferTime, TransferTime]] = []
        self.layer_swaps: list[tuple[TransferTime, TransferTime]] = []

    def measure(self, microbenchmark: Microbenchmark, length: int, layer_link: TransferWorker | None) -> _Lesson:
        seq, steps = microbenchmark.compute(length)
        self.recompute.append(sum(step.seconds for step in steps))
        pair = microbenchmark.swap_out(seq), microbenchmark.swap_in(seq)
        self.swaps.append(pair)
        if layer_link is not None:
            usual = microbenchmark.use_link(layer_link)
            try:
                self.layer_swaps.append((microbenchmark.swap_out(seq), microbenchmark.swap_in(seq)))
            finally:
                microbenchmark.use_link(usual)
        microbenchmark.forget(seq)
        return _Lesson(steps, list(pair))

    def row(self, length: int, num_bytes: int) -> Row:
        layer_swap = Swapping.of(self.layer_swaps) if self.layer_swaps else None
        return Row(length, num_bytes, Swapping.of(self.swaps), Spread.of(self.recompute), layer_swap)


def _compute_and_swap(microbenchmark: Microbenchmark, length: int) -> _Lesson:
    seq, steps = microbenchmark.compute(length)
    transfers = []
    if microbenchmark.link is not None and microbenchmark.has_room_for(seq):
        transfers = [microbenchmark.swap_out(seq), microbenchmark.swap_in(seq)]
    microbenchmark.forget(seq)
    return _Lesson(steps, transfers)


def _decode(microbenchmark: Microbenchmark, num_seqs: int, context: int) -> _Lesson:
    """Nothing where there is no room."""
    has_room = microbenchmark.has_room_to_decode(num_seqs, context, _DECODE_STEPS)
    return _Lesson(microbenchmark.decode(num_seqs, context, _DECODE_STEPS) if has_room else [])


def _measure_decodes(microbenchmark: Microbenchmark, repeats: int) -> tuple[list[DecodeRow], list[_Lesson]]:
    """Every batch size with every context that the engine has room for."""
    longest = microbenchmark.config.max_model_len - _DECODE_STEPS
    shapes = [
        (num_seqs, context)
        for context in dict.fromkeys(min(context, longest) for context in _CONTEXTS)
        for num_seqs in _BATCH_SIZES
        if microbenchmark.has_room_to_decode(num_seqs, context, _DECODE_STEPS)
    ]
    times: dict[tuple[int, int], list[StepTime]] = {shape: [] for shape in shapes}
    lessons = []
    for shape in shapes:
        microbenchmark.decode(*shape, 1)
    for _ in range(repeats):
        for shape in shapes:
            steps = microbenchmark.decode(*shape, _DECODE_STEPS)
            times[shape] += steps
            lessons.append(_Lesson(steps))
    rows = [DecodeRow(*shape, Spread.of(step.seconds for step in steps)) for shape, steps in times.items()]
    return rows, lessons


def _layer_link(microbenchmark: Microbenchmark) -> TransferWorker:
    """A link like the engine's that copies layer by layer, to host memory of its own."""
    usual = microbenchmark.require_link()
    config, cache = microbenchmark.config, microbenchmark.cache
    space = HostSpace(config.num_swap_slots, config.block_bytes, pinned=cache.is_cuda)
    return TransferWorker(cache, space, bandwidth=usual.bandwidth, copy_mode="layer")


def _whole_blocks(lengths: Sequence[int], block_size: int) -> list[int]:
    """Taken down to whole blocks, ascending, each once."""
    return sorted({length // block_size * block_size for length in lengths if length >= block_size})


def _check_lengths(lengths: Sequence[int], block_size: int, max_model_len: int) -> None:
    for length in lengths:
        if not block_size <= length <= max_model_len:
            raise ValueError(
                f"a length of {length} tokens: expected at least a block's {block_size}, and at most "
                f"max_model_len={max_model_len}"
            )
