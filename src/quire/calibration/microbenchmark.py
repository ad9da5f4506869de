"""Time single steps and swaps on an idle engine, without the scheduler. All blocks and slots are released."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from dataclasses import dataclass

from quire.core.decisions.costs import EMPTY_STEP, StepShape
from quire.core.request import Request
from quire.core.request import Sequence as BlockSequence
from quire.engine.engine import Engine
from quire.outputs import NewSequence, SchedulerOutput, StepOutput, TransferReport
from quire.runner.model_runner import ModelRunner
from quire.runner.ranks.multi_rank_runner import MultiRankRunner
from quire.sampling_params import SamplingParams

_GREEDY = SamplingParams(temperature=0.0, max_tokens=1, ignore_eos=True, detokenize=False)
_NO_STEP = -1  # not counted among the engine's steps


@dataclass(frozen=True, slots=True)
class StepTiming:
    shape: StepShape
    seconds: float


@dataclass(frozen=True, slots=True)
class TransferTiming:
    """One transfer of all full blocks of a sequence."""

    kind: str  #: save or load
    num_bytes: int
    wall_s: float  #: from planning to the report
    copy_s: float  #: copying by the link
    wait_s: float  #: no step could run: bookkeeping and staging


class BlocksLost(RuntimeError):
    """Swapped blocks were lost or damaged."""


class Microbenchmark:
    """Exclusive use of an idle engine inside a context. ValueError if the engine is busy or its runner has no model."""

    def __init__(self, engine: Engine) -> None:
        runner = engine.runner
        if not isinstance(runner, ModelRunner | MultiRankRunner):
            raise ValueError("there is nothing to measure: this engine's runner has no model")
        if engine.has_unfinished():
            raise ValueError("this engine has requests; measure one that is idle")
        self.config = engine.scheduler.config
        self._kv = engine.scheduler.kv
        self._swap = engine.scheduler.swap
        self._stages = engine.scheduler.stages
        self._runner = runner
        self._clock = engine.clock
        self._vocab_size = engine.vocab_size
        self._random = random.Random(0)
        self._next_id = itertools.count(-1, -1)  # the engine's ids are never negative
        self._known: list[BlockSequence] = []

    def __enter__(self) -> Microbenchmark:
        # A runner learns with the next step which sequences ended; in an idle engine all have.
        self._execute(SchedulerOutput(_NO_STEP, removed_seq_ids=list(self._runner.batch.row_of)))
        return self

    def __exit__(self, *error: object) -> None:
        for seq in list(self._known):
            self.forget(seq)

    def scatter(self) -> None:
        """Shuffle the free blocks, as after a while of serving. Cached blocks are lost."""
        pool = self._kv.pool
        blocks = [pool.allocate() for _ in range(pool.num_available)]
        self._random.shuffle(blocks)
        for block in blocks:
            pool.release(block)

    def compute(self, num_tokens: int) -> tuple[BlockSequence, list[StepTiming]]:
        """Compute new tokens in the engine's chunks; blocks are held until `forget`. ValueError if the pool has no
        room."""
        token_ids = self._tokens(num_tokens + 1)  # of a request that has just got its next token
        seq_id = next(self._next_id)
        request = Request(f"microbenchmark{seq_id}", token_ids, _GREEDY)
        seq = BlockSequence(seq_id, 0, request, token_ids)
        request.sequences = request.unfinished = [seq]
        self._known.append(seq)
        times = []
        for start in range(0, num_tokens, self.config.max_num_batched_tokens):
            count = min(self.config.max_num_batched_tokens, num_tokens - start)
            self._kv.begin_step()
            placed = self._kv.append_slots(seq, count)
            if placed is None:
                raise ValueError(f"the pool has no room for {num_tokens} tokens")
            out = SchedulerOutput(_NO_STEP, [seq.seq_id], [count], total_tokens=count)
            if start:
                out.new_blocks[seq.seq_id] = placed[0]
            else:
                out.new_sequences.append(_describe(seq_id, token_ids[:num_tokens], 0, seq.block_table))
            _, seconds = self._execute(out)
            shape = StepShape(1, 1, 0.0, start) if count == 1 else EMPTY_STEP.plus_chunk(start, count)
            times.append(StepTiming(shape, seconds))
        return seq, times

    def decode(self, num_seqs: int, context: int, num_steps: int, num_shared: int = 0) -> list[StepTiming]:
        """Run decode steps after `context` tokens (of any KV, as values cost no time), the first `num_shared` in common
        blocks."""
        if not self.has_room_to_decode(num_seqs, context, num_steps):
            raise ValueError(f"the engine has no room for {num_seqs} sequences of {context + num_steps} tokens")
        pool = self._kv.pool
        per_seq = self._kv.blocks_for(context + num_steps)
        shared = [pool.allocate() for _ in range(min(num_shared, context) // self.config.block_size)]
        tables = [[pool.allocate() for _ in range(per_seq - len(shared))] for _ in range(num_seqs)]
        ids = [next(self._next_id) for _ in range(num_seqs)]
        newcomers = [
            _describe(seq_id, self._tokens(context + 1), context, [*shared, *table])
            for seq_id, table in zip(ids, tables, strict=True)
        ]
        times = []
        try:
            for step in range(num_steps):
                out = SchedulerOutput(_NO_STEP, ids, [1] * num_seqs, newcomers, total_tokens=num_seqs)
                newcomers = []
                _, seconds = self._execute(out)
                times.append(StepTiming(StepShape(num_seqs, num_seqs, 0.0, num_seqs * (context + step)), seconds))
        finally:
            for table in (*tables, shared):
                for block in reversed(table):
                    pool.release(block)
            self._execute(SchedulerOutput(_NO_STEP, removed_seq_ids=ids))
        return times

    def swap_out(self, seq: BlockSequence) -> TransferTiming:
        """Save all full blocks of a sequence and release its blocks. Raises BlocksLost if the transfer failed."""
        kv, swap = self._kv, self._swap
        if not self.has_room_for(seq):
            raise ValueError(
                f"swapping {seq.num_computed_tokens} tokens takes more than the {swap.tier.num_available} blocks that "
                "the swap tier can give; raise swap_space"
            )
        swap.invalidate(seq.block_keys)  # else they would not be saved again
        started = self._clock()
        swap.swap_out([seq], 0, set(seq.block_table))
        kv.free(seq)
        out = SchedulerOutput(_NO_STEP, removed_seq_ids=[seq.seq_id], transfers=swap.transfers.pop_new())
        return self._move("save", out, started)

    def swap_in(self, seq: BlockSequence) -> TransferTiming:
        """Load the blocks saved by `swap_out` into the pool. Raises BlocksLost if the transfer failed."""
        swap = self._swap
        self._drop_cached(seq)
        started = self._clock()
        span = swap.find_loadable(seq, 0)
        assert span is not None, "the saved blocks are gone"
        swap.swap_in(seq, span)
        swap.release(seq)
        taken = self._move("load", SchedulerOutput(_NO_STEP, transfers=swap.transfers.pop_new()), started)
        swap.pop_loaded(seq)
        return taken

    def _drop_cached(self, seq: BlockSequence) -> None:
        pool = self._kv.pool
        for key in seq.block_keys:
            if (block := pool.find(key)) is not None:
                pool.invalidate(block)

    def has_room_for(self, seq: BlockSequence) -> bool:
        """Whether the swap tier has room for a sequence's full blocks, and its state."""
        num_records = len(self._kv.full_blocks(seq)) + self._kv.num_state_records
        return self._swap.tier.num_available >= num_records

    def has_room_to_decode(self, num_seqs: int, context: int, num_steps: int) -> bool:
        """Whether these sequences fit the engine until the last step."""
        config, length = self.config, context + num_steps
        return (
            num_seqs <= min(config.max_num_seqs, config.max_num_batched_tokens)
            and context > 0
            and length <= config.max_model_len
            and num_seqs * self._kv.blocks_for(length) <= self._kv.pool.num_available
        )

    def forget(self, seq: BlockSequence) -> None:
        """Release all blocks and slots of a sequence, and drop its block keys."""
        kv, swap = self._kv, self._swap
        while swap.transfers:
            result, _ = self._execute(SchedulerOutput(_NO_STEP, transfers=swap.transfers.pop_new()))
            swap.end_transfers(result.transfers)
            if not self._runner.num_moving:
                break
        swap.release(seq)
        swap.stop_waiting(seq)
        kv.free(seq)
        swap.invalidate(seq.block_keys)
        self._drop_cached(seq)
        self._execute(SchedulerOutput(_NO_STEP, removed_seq_ids=[seq.seq_id]))
        self._known.remove(seq)

    def _move(self, kind: str, out: SchedulerOutput, started: float) -> TransferTiming:
        handed_over = self._clock()
        reports: list[TransferReport] = []
        stall_s = 0.0
        while self._swap.transfers:
            result, _ = self._execute(out)
            out = SchedulerOutput(_NO_STEP)
            self._swap.end_transfers(result.transfers)
            reports += result.transfers
            stall_s += result.stall_s
            if self._swap.transfers and not self._runner.num_moving:
                raise BlocksLost(f"the link did not {kind} all blocks")
        ended = self._clock()
        num_lost = sum(len(report.failed) for report in reports)
        if num_lost:
            raise BlocksLost(f"{num_lost} blocks did not arrive at a {kind}; see the log")
        return TransferTiming(
            kind=kind,
            num_bytes=sum(report.num_bytes for report in reports),
            wall_s=ended - started,
            copy_s=sum(report.copy_s for report in reports),
            wait_s=handed_over - started + stall_s,
        )

    def _execute(self, out: SchedulerOutput) -> tuple[StepOutput, float]:
        """Run a step. Returns its result and its seconds, until the device is done."""
        out.stage = self._stages.current
        started = self._clock()
        result = self._runner.execute(out)
        if self._runner.device != "cpu":
            import torch

            torch.cuda.synchronize()  # sampling waits for the device; this step may not sample
        return result, self._clock() - started

    def _tokens(self, count: int) -> list[int]:
        return [self._random.randrange(self._vocab_size) for _ in range(count)]


def _describe(seq_id: int, tokens: list[int], num_computed: int, table: Sequence[int]) -> NewSequence:
    return NewSequence(seq_id, 0, tokens, len(tokens), num_computed, list(table), sampling_params=_GREEDY, seed=0)
