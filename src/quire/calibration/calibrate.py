"""What the two recovery modes cost on this machine: the CPS paper's table, measured on an idle engine.

For each length, in turns: compute its tokens, swap their blocks out, swap them in. Decode steps are measured too, so
that the cost model knows every kind of step.
"""

from __future__ import annotations

import logging
import statistics
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

from quire.calibration.microbenchmark import BlocksLost, Microbenchmark, StepTime, TransferTime
from quire.core.decisions.cost_model import CostModel
from quire.engine.engine import Engine

logger = logging.getLogger("quire")

SHORTEST = 64  #: tokens
_BATCH_SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
_CONTEXTS = (64, 512, 4096)
_DECODE_STEPS = 4
_SHORTEST_S = 1e-9  #: clocks that stand still count as this
_Key = TypeVar("_Key", bound=Hashable)


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
    """A request's blocks, out and in again."""

    out: Spread  #: the link was busy saving
    prepare: Spread  #: all else: bookkeeping, staging, handing over
    into: Spread  #: the link was busy loading
    latency: Spread  #: out, preparation and in
    waits: Spread  #: of the latency, what holds other requests up: no step can run

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
        cost_model: has learnt from every measurement.
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


def calibrate_engine(
    engine: Engine,
    *,
    lengths: Sequence[int] | None = None,
    repeats: int = 3,
    decodes: bool = True,
) -> Calibration:
    """Measure swapping and computing over lengths, and decode steps over batch sizes and contexts.

    Blocks are scattered over the pool, as they are after a while of serving. The engine is left as it was, but for what
    its pool had cached.

    Args:
        engine: idle, with a swap tier that holds the longest length.
        lengths: tokens, taken down to whole blocks; None is `default_lengths`, as far as the swap tier has room.
        repeats: of every measurement, after one that does not count.
        decodes: whether decode steps are measured.

    Raises:
        ValueError: the engine is not idle or has no swap tier, or a length does not fit.
        BlocksLost: on the way.
    """
    config = engine.scheduler.config
    block_size = config.block_size
    if repeats < 1:
        raise ValueError(f"repeats={repeats} measures nothing; expected at least 1")
    microbenchmark = Microbenchmark(engine)
    num_slots = engine.scheduler.swap.tier.num_slots
    if not num_slots:
        raise ValueError("there is no swap tier to measure; give swap_space or swap_dir")
    lengths = lengths or default_lengths(min(config.max_model_len, num_slots * block_size))
    whole = _whole_blocks(lengths, block_size, config.max_model_len)
    with microbenchmark:
        microbenchmark.scatter()
        for length in whole:
            if length <= 2 * config.max_num_batched_tokens:  # later chunks are like earlier ones
                _compute_and_swap(microbenchmark, length)
        swaps = _in_turns({length: partial(_compute_and_swap, microbenchmark, length) for length in whole}, repeats)
        shapes = _decode_shapes(microbenchmark) if decodes else []
        for shape in shapes:
            microbenchmark.decode(*shape, 1)
        steps = _in_turns({shape: partial(_decode, microbenchmark, *shape) for shape in shapes}, repeats)
    model = CostModel()
    _learn(model, (lesson for lessons in (*swaps.values(), *steps.values()) for lesson in lessons))
    bytes_per_token = config.block_bytes // block_size
    return Calibration(
        rows=[
            Row(
                length,
                length * bytes_per_token,
                Swapping.of([(lesson.transfers[0], lesson.transfers[1]) for lesson in lessons]),
                Spread.of(sum(step.seconds for step in lesson.steps) for lesson in lessons),
            )
            for length, lessons in swaps.items()
        ],
        decodes=[
            DecodeRow(*shape, Spread.of(step.seconds for lesson in lessons for step in lesson.steps))
            for shape, lessons in steps.items()
        ],
        cost_model=model,
        bytes_per_token=bytes_per_token,
        block_size=block_size,
        chunk=config.max_tokens_beside_streams or config.max_num_batched_tokens,
    )


def quick_profile(engine: Engine, cost_model: CostModel, *, seconds: float = 2.0) -> None:
    """Teach a cost model the little that fits in a few seconds: for the first start of an engine with a swap tier.

    Each measurement is made twice where there is time, and then the first does not count. Lengths that would take too
    long are left out; the engine's own steps and transfers will teach them.

    Args:
        engine: idle. Without a swap tier, steps alone are measured.
        cost_model: learns.
        seconds: not to be exceeded by much.
    """
    config = engine.scheduler.config
    longest = min(config.max_model_len, 2 * config.max_num_batched_tokens)
    lengths = [n for n in default_lengths(longest) if n & (n - 1) == 0 and n >= config.block_size]
    started = engine.clock()
    seen: dict[int, _Lesson] = {}
    with Microbenchmark(engine) as microbenchmark:
        trials = [
            partial(_decode, microbenchmark, 1, 16),
            *(
                partial(_compute_and_swap, microbenchmark, length, may_skip_swap=True)
                for length in _whole_blocks(lengths, config.block_size, longest)
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
    """One trial's measurements."""

    steps: list[StepTime]
    transfers: list[TransferTime] = field(default_factory=list)
    seconds: float = 0.0  #: of the whole trial


def _learn(model: CostModel, lessons: Iterable[_Lesson]) -> None:
    """Take all lessons in as one moment: they differ by noise, and not because the machine has changed."""
    link = model.links["host"]
    for lesson in lessons:
        for step in lesson.steps:
            model.steps.observe(step.shape, max(step.seconds, _SHORTEST_S))
        for transfer in lesson.transfers:
            cost = link.saves if transfer.kind == "save" else link.loads
            cost.observe(transfer.num_bytes, max(transfer.copy_s, _SHORTEST_S))
    model.steps.fit()
    for each in (model.steps, link.saves, link.loads):
        each.misses.misses.clear()
        each.errors.clear()  # of predictions that nobody relied on


def _compute_and_swap(microbenchmark: Microbenchmark, length: int, *, may_skip_swap: bool = False) -> _Lesson:
    seq, steps = microbenchmark.compute(length)
    transfers = []
    if microbenchmark.has_room_for(seq) or not may_skip_swap:
        transfers = [microbenchmark.swap_out(seq), microbenchmark.swap_in(seq)]
    microbenchmark.forget(seq)
    return _Lesson(steps, transfers)


def _decode(microbenchmark: Microbenchmark, num_seqs: int, context: int) -> _Lesson:
    """Nothing where there is no room."""
    has_room = microbenchmark.has_room_to_decode(num_seqs, context, _DECODE_STEPS)
    return _Lesson(microbenchmark.decode(num_seqs, context, _DECODE_STEPS) if has_room else [])


def _decode_shapes(microbenchmark: Microbenchmark) -> list[tuple[int, int]]:
    """Every batch size with every context that the engine has room for."""
    longest = microbenchmark.config.max_model_len - _DECODE_STEPS
    return [
        (num_seqs, context)
        for context in dict.fromkeys(min(context, longest) for context in _CONTEXTS)
        for num_seqs in _BATCH_SIZES
        if microbenchmark.has_room_to_decode(num_seqs, context, _DECODE_STEPS)
    ]


def _in_turns(trials: Mapping[_Key, Callable[[], _Lesson]], repeats: int) -> dict[_Key, list[_Lesson]]:
    """Each trial's lessons. Repeats go through all trials, so that none has the better minute."""
    lessons: dict[_Key, list[_Lesson]] = {key: [] for key in trials}
    for _ in range(repeats):
        for key, trial in trials.items():
            lessons[key].append(trial())
    return lessons


def _whole_blocks(lengths: Sequence[int], block_size: int, longest: int) -> list[int]:
    """Lengths taken down to whole blocks, ascending, each once."""
    for length in lengths:
        if not block_size <= length <= longest:
            raise ValueError(
                f"a length of {length} tokens: expected at least a block's {block_size}, and at most "
                f"max_model_len={longest}"
            )
    return sorted({length // block_size * block_size for length in lengths})
