"""Steps and swaps on an idle engine, to see how long they take.

They go through the KV cache manager, the runner and the link like real ones, but past the scheduler, so that nothing
runs beside them. All blocks and slots that they take are given back.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType

import torch

from quire.core.decisions.costs import EMPTY_STEP, StepShape
from quire.core.request import Request
from quire.core.request import Sequence as BlockSequence
from quire.engine.engine import Engine
from quire.outputs import NewSequence, SchedulerOutput, StepOutput, TransferReport
from quire.runner.model_runner import ModelRunner
from quire.runner.ranks.joint_runner import JointRunner
from quire.sampling_params import SamplingParams

_GREEDY = SamplingParams(temperature=0.0, max_tokens=1, ignore_eos=True, detokenize=False)
_NO_STEP = -1  # these steps have no place in the engine's count


@dataclass(frozen=True, slots=True)
class StepTime:
    shape: StepShape
    seconds: float


@dataclass(frozen=True, slots=True)
class TransferTime:
    """All full blocks of a sequence, moved one way."""

    kind: str  #: save or load
    num_bytes: int
    wall_s: float  #: from planning the transfer to its report
    copy_s: float  #: the link was busy
    wait_s: float  #: no step could run: bookkeeping, and staging that the step waits for


class BlocksLost(RuntimeError):
    """Blocks that were swapped out did not come back as they were."""


class Microbenchmark:
    """Has an idle engine to itself, from entering the context to leaving it.

    Args:
        engine: over a real model, without requests.
        seed: of the tokens.

    Raises:
        ValueError: the engine has requests, or computes nothing.
    """

    def __init__(self, engine: Engine, seed: int = 0) -> None:
        runner = engine.runner
        if not isinstance(runner, ModelRunner | JointRunner):
            raise ValueError("there is nothing to measure: this engine's runner has no model")
        if engine.has_unfinished():
            raise ValueError("this engine has requests; measure one that is idle")
        self.config = engine.scheduler.config
        self._kv = engine.scheduler.kv
        self._swap = engine.scheduler.swap
        self._runner = runner
        self._clock = engine.clock
        self._vocab_size = engine.vocab_size
        self._random = random.Random(seed)
        self._next_id = itertools.count(-1, -1)  # the engine's own are never negative
        self._known: list[BlockSequence] = []

    def __enter__(self) -> Microbenchmark:
        # The runner hears only with the next step which sequences have ended. In an idle engine all have.
        self._execute(SchedulerOutput(_NO_STEP, removed_seq_ids=list(self._runner.batch.row_of)))
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for seq in list(self._known):
            self.forget(seq)

    def scatter(self) -> None:
        """Shuffle the free blocks, as a while of serving does. Cached blocks are lost."""
        pool = self._kv.pool
        blocks = [pool.allocate() for _ in range(pool.num_available)]
        self._random.shuffle(blocks)
        for block in blocks:
            pool.release(block)

    # -- computing ---------------------------------------------------------------------------------------------------

    def compute(self, num_tokens: int) -> tuple[BlockSequence, list[StepTime]]:
        """Compute tokens that nobody has seen before, in the engine's chunks, one after the other.

        Returns:
            The sequence, which holds its blocks until `forget`, and what each step took.

        Raises:
            ValueError: the pool has no room.
        """
        seq = self._new_sequence(num_tokens)
        self._known.append(seq)
        times = []
        shown = seq.token_ids[:num_tokens]  # the last one is known, but not computed
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
                out.new_sequences.append(self._describe(seq.seq_id, shown, 0, seq.block_table))
            _, seconds = self._execute(out)
            shape = StepShape(1, 1, 0.0, start) if count == 1 else EMPTY_STEP.plus_chunk(start, count)
            times.append(StepTime(shape, seconds))
        return seq, times

    def decode(self, num_seqs: int, context: int, num_steps: int, num_shared: int = 0) -> list[StepTime]:
        """Steps of sequences with a token each, whose context has `context` tokens at first.

        The blocks of the first `num_shared` of them, as far as they are whole, are the same in all sequences.

        The context's KV was never computed; a step's seconds do not depend on its values.

        Raises:
            ValueError: the engine has no room.
        """
        if not self.has_room_to_decode(num_seqs, context, num_steps):
            raise ValueError(f"the engine has no room for {num_seqs} sequences of {context + num_steps} tokens")
        pool = self._kv.pool
        per_seq = self._kv.blocks_for(context + num_steps)
        shared = [pool.allocate() for _ in range(min(num_shared, context) // self.config.block_size)]
        tables = [[pool.allocate() for _ in range(per_seq - len(shared))] for _ in range(num_seqs)]
        ids = [next(self._next_id) for _ in range(num_seqs)]
        newcomers = [
            self._describe(seq_id, self._tokens(context + 1), context, [*shared, *table])
            for seq_id, table in zip(ids, tables, strict=True)
        ]
        times = []
        try:
            for step in range(num_steps):
                out = SchedulerOutput(_NO_STEP, ids, [1] * num_seqs, newcomers, total_tokens=num_seqs)
                newcomers = []
                _, seconds = self._execute(out)
                times.append(StepTime(StepShape(num_seqs, num_seqs, 0.0, num_seqs * (context + step)), seconds))
        finally:
            for table in (*tables, shared):
                for block in reversed(table):
                    pool.release(block)
            self._execute(SchedulerOutput(_NO_STEP, removed_seq_ids=ids))
        return times

    # -- moving ------------------------------------------------------------------------------------------------------

    def swap_out(self, seq: BlockSequence) -> TransferTime:
        """Save a sequence's full blocks, also those that were saved before, and give all of its blocks up.

        Raises:
            ValueError: the swap tier has no room.
            BlocksLost: on the way.
        """
        kv, swap = self._kv, self._swap
        if not self.has_room_for(seq):
            raise ValueError(
                f"swapping {seq.num_computed_tokens} tokens takes more than the {swap.tier.num_available} blocks that "
                "the swap tier can give; raise swap_space"
            )
        swap.drop(seq.block_keys)  # or they would not be saved again
        started = self._clock()
        swap.swap_out([seq], 0, set(seq.block_table))
        kv.free(seq)
        out = SchedulerOutput(_NO_STEP, removed_seq_ids=[seq.seq_id], transfers=swap.take_transfers())
        return self._move("save", out, started)

    def swap_in(self, seq: BlockSequence) -> TransferTime:
        """Load what `swap_out` saved into blocks of the pool.

        Raises:
            BlocksLost: on the way.
        """
        swap = self._swap
        started = self._clock()
        span = swap.find_loadable(seq, 0)
        assert span is not None, "what was saved is gone"
        swap.swap_in(seq, span)
        swap.release(seq)
        taken = self._move("load", SchedulerOutput(_NO_STEP, transfers=swap.take_transfers()), started)
        swap.pop_loaded(seq)
        return taken

    def has_room_for(self, seq: BlockSequence) -> bool:
        """Whether the swap tier can take a sequence's full blocks."""
        return self._swap.tier.num_available >= len(self._kv.full_blocks(seq))

    def has_room_to_decode(self, num_seqs: int, context: int, num_steps: int) -> bool:
        """Whether the engine can run these sequences to the last step."""
        config, length = self.config, context + num_steps
        return (
            num_seqs <= min(config.max_num_seqs, config.max_num_batched_tokens)
            and context > 0
            and length <= config.max_model_len
            and num_seqs * self._kv.blocks_for(length) <= self._kv.pool.num_available
        )

    def forget(self, seq: BlockSequence) -> None:
        """Give back all blocks and slots of a sequence, with their names: its tokens mean nothing."""
        kv, swap = self._kv, self._swap
        while swap.num_under_way:
            result, _ = self._execute(SchedulerOutput(_NO_STEP, transfers=swap.take_transfers()))
            swap.end_transfers(result.transfers)
            if not self._is_moving():
                break
        swap.release(seq)
        swap.stop_waiting(seq)
        kv.free(seq)
        swap.drop(seq.block_keys)
        for key in seq.block_keys:
            if (block := kv.pool.find(key)) is not None:
                kv.pool.withdraw(block)
        self._execute(SchedulerOutput(_NO_STEP, removed_seq_ids=[seq.seq_id]))
        self._known.remove(seq)

    def _move(self, kind: str, out: SchedulerOutput, started: float) -> TransferTime:
        handed_over = self._clock()
        reports: list[TransferReport] = []
        stall_s = 0.0
        while self._swap.num_under_way:
            result, _ = self._execute(out)
            out = SchedulerOutput(_NO_STEP)
            self._swap.end_transfers(result.transfers)
            reports += result.transfers
            stall_s += result.stall_s
            if self._swap.num_under_way and not self._is_moving():
                raise BlocksLost(f"the link did not {kind} all blocks")
        ended = self._clock()
        num_lost = sum(len(report.failed) for report in reports)
        if num_lost:
            raise BlocksLost(f"{num_lost} blocks did not arrive at a {kind}; see the log")
        return TransferTime(
            kind=kind,
            num_bytes=sum(report.num_bytes for report in reports),
            wall_s=ended - started,
            copy_s=sum(report.copy_s for report in reports),
            wait_s=handed_over - started + stall_s,
        )

    def _is_moving(self) -> bool:
        """Whether the link has reports to come."""
        return self._runner.num_moving > 0

    # -- the parts of a step -----------------------------------------------------------------------------------------

    def _execute(self, out: SchedulerOutput) -> tuple[StepOutput, float]:
        """The step's result and seconds, until the device is done with it."""
        started = self._clock()
        result = self._runner.execute(out)
        if self._runner.device.type == "cuda":
            torch.cuda.synchronize(self._runner.device)  # without a token to sample, nothing has waited for it
        return result, self._clock() - started

    def _tokens(self, count: int) -> list[int]:
        return [self._random.randrange(self._vocab_size) for _ in range(count)]

    def _new_sequence(self, num_tokens: int) -> BlockSequence:
        seq_id = next(self._next_id)
        token_ids = self._tokens(num_tokens + 1)  # as of a request that has just got its next token
        request = Request(f"microbenchmark{seq_id}", token_ids, _GREEDY)
        seq = BlockSequence(seq_id, 0, request, token_ids)
        request.sequences = request.unfinished = [seq]
        return seq

    def _describe(self, seq_id: int, tokens: list[int], num_computed: int, table: Sequence[int]) -> NewSequence:
        return NewSequence(
            seq_id=seq_id,
            index=0,
            token_ids=tokens,
            num_prompt_tokens=len(tokens),
            num_computed_tokens=num_computed,
            block_table=list(table),
            sampling_params=_GREEDY,
            seed=0,
        )
