"""What the next step computes: one budget of tokens, spent on requests oldest first.

There is no prefill phase and no decode phase. Every sequence has tokens, and some of them have KV; a step moves
`num_computed_tokens` towards the number of tokens, and where it arrives there the step brings the next token. Chunked
prefill, prefix hits, resumption and beam search all follow from that one rule.

    waiting   by (priority, arrival), the preempted among them         admitted in order, while there is room
    running   by (priority, arrival)                                   served oldest first, preempted youngest first

A sequence that comes back from the swap tier runs like any other, as far as what stands before its missing blocks goes,
and waits for the rest; nobody waits with it.

Nobody is preempted more than `MAX_PREEMPTIONS` times. One that has been comes back to stay: it is admitted only where
the pool holds all that then runs at its full length, and while it runs nobody is admitted beyond that, so that room is
never missing. It gets there, since while it is first in the queue nobody else is admitted, and alone it always fits.
A preemption drops at most what its request has, so that of a request that ends with T tokens, its prompt among them,
at most `MAX_PREEMPTIONS * (T - 1)` are computed in vain, for each of its sequences. (Sequences that run in turns, since
they outgrow the pool even alone, drop theirs without a preemption.)

Owns requests and sequences from `add` to their end. Decides, never executes: tensors, text and clocks are elsewhere.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import accumulate

from quire.config import SchedulerConfig
from quire.core.beam_search import BeamSearch
from quire.core.costs.interface import EMPTY_STEP, StepShape
from quire.core.kv_cache_manager import Kept, KVCacheManager
from quire.core.recovery.eviction_stats import EvictionStats
from quire.core.recovery.interface import (
    MAX_CANDIDATES,
    MAX_PREEMPTIONS,
    Candidate,
    Preemption,
    RecoveryMode,
    RecoveryPolicy,
    SystemState,
)
from quire.core.recovery.log import Recovery, RecoveryLog
from quire.core.recovery.policies import Recompute
from quire.core.request import Request, RequestStatus, Sequence
from quire.outputs import BlockTransfer, NewSequence, SchedulerOutput, StepOutput, TokenLogprobs

_ORDER: Callable[[Request], tuple[int, int]] = lambda request: request.order  # noqa: E731


@dataclass(slots=True)
class SequenceUpdate:
    """New tokens of one sequence, for whoever turns them into text and answers; none where a beam search has ended."""

    sequence: Sequence
    token_ids: list[int]
    logprobs: list[TokenLogprobs] | None = None


@dataclass(slots=True)
class Counts:
    """What happened since the engine started; `Stats` are differences of it."""

    preemptions: int = 0
    recomputed_tokens: int = 0  #: computed in vain the first time
    prefix_queries: int = 0
    prefix_hits: int = 0
    sampled_tokens: int = 0


class _ShapeSum:
    """Adds up what a step computes, sequence by sequence."""

    __slots__ = ("attended", "context_decode", "num_seqs", "num_tokens")

    def __init__(self) -> None:
        self.num_tokens = self.num_seqs = self.context_decode = 0
        self.attended = 0.0

    def add(self, start: int, num_new: int) -> None:
        self.num_tokens += num_new
        self.num_seqs += 1
        if num_new == 1:
            self.context_decode += start
        else:
            self.attended += num_new * (start + num_new / 2)

    def total(self) -> StepShape:
        return StepShape(self.num_tokens, self.num_seqs, self.attended, self.context_decode)


def _is_loading(request: Request) -> bool:
    return any(seq.loading is not None for seq in request.unfinished)


def _gap(seq: Sequence, block_size: int) -> range:
    """The blocks, by their places in the table, that are to be computed before those that are on their way."""
    if seq.loading is None:
        return range(0)
    return range(seq.num_computed_tokens // block_size, seq.loading.start // block_size)


def _count_from(flags: Iterable[bool]) -> tuple[int, ...]:
    """How many there are from each place on, and none after the last."""
    return tuple(accumulate(reversed(list(flags)), initial=0))[::-1]


def _is_back(request: Request) -> bool:
    """Whether a request that was preempted has computed again all that it had."""
    return request.status is RequestStatus.RUNNING and all(
        seq.loading is None and seq.num_computed_tokens >= seq.num_lost_tokens
        for seq in request.unfinished
        if seq.candidates is None
    )


def check_limits(config: SchedulerConfig, num_prompt_tokens: int, width: int, *, is_beam: bool) -> None:
    """Refuse what could never run here.

    Raises:
        ValueError: the message says which limit it breaks.
    """
    if num_prompt_tokens == 0:
        raise ValueError("the prompt is empty; give at least one token")
    if num_prompt_tokens >= config.max_model_len:
        raise ValueError(
            f"the prompt has {num_prompt_tokens} tokens, and max_model_len={config.max_model_len} leaves room "
            f"for at most {config.max_model_len - 1} and one of output; shorten it or raise max_model_len"
        )
    if width > config.max_num_seqs:
        name = "beam_width" if is_beam else "n"
        raise ValueError(f"{name}={width} is more than max_num_seqs={config.max_num_seqs}")


class Scheduler:
    """Continuous batching over a pool of KV blocks.

    Args:
        config: the pool's size and the limits.
        root: the namespace's key.
        recovery: whom to preempt.
    """

    def __init__(self, config: SchedulerConfig, root: bytes = b"", recovery: RecoveryPolicy | None = None) -> None:
        self.config = config
        self.kv = KVCacheManager(
            config.num_blocks, config.block_size, root, config.enable_prefix_caching, config.num_swap_slots
        )
        self.recovery = recovery or Recompute()
        self.recovery_log = RecoveryLog()
        self.eviction_stats = EvictionStats()
        self._prober = self.recovery.prober if config.num_swap_slots else None
        self.recovery_log.on_complete.append(self._tell_policy)
        self.requests: dict[str, Request] = {}
        self.waiting: list[Request] = []
        self.running: list[Request] = []
        self.counts = Counts()
        self._sequences: dict[int, Sequence] = {}  #: alive, by seq_id
        self._removed: list[int] = []  #: the runner knows them and must forget them
        self._appended: dict[int, list[int]] = {}  #: tokens of known sequences that the runner did not draw itself
        self.num_preempted = 0  #: of the waiting, those that have run before
        self._num_running_seqs = 0  #: places taken, a request's whole width from its admission on
        self._next_seq_id = 0
        self._step_id = 0
        self._in_flight: SchedulerOutput | None = None
        self._shape = _ShapeSum()  #: of the step that is being made, or was made last
        self._last_shape = EMPTY_STEP  #: of the step before it

    # -- requests come and go ------------------------------------------------------------------------------------

    @property
    def num_steps(self) -> int:
        """Decided so far."""
        return self._step_id

    def add(self, request: Request) -> None:
        """Queue a request.

        Raises:
            ValueError: it can never run here; the message says which limit it breaks.
        """
        num_prompt_tokens = len(request.prompt_token_ids)
        if request.request_id in self.requests:
            raise ValueError(f"request id {request.request_id!r} is in use")
        check_limits(self.config, num_prompt_tokens, request.width, is_beam=request.beam is not None)
        request.max_tokens = min(request.max_tokens, self.config.max_model_len - num_prompt_tokens)
        if request.beam is not None:
            request.beams = BeamSearch(request.beam, request.eos_token_ids, request.max_tokens)
        first = self._new_sequence(request, 0, list(request.prompt_token_ids))
        request.sequences = [first]
        request.unfinished = [first]
        self.requests[request.request_id] = request
        insort(self.waiting, request, key=_ORDER)

    def request_of(self, seq_id: int) -> Request:
        """The request that a live sequence belongs to."""
        return self._sequences[seq_id].request

    def has_unfinished(self) -> bool:
        """Whether there is a step to run: requests, or blocks under way that are waited for."""
        return bool(self.requests) or self.kv.num_under_way > 0

    @property
    def step_shape(self) -> StepShape:
        """What the last step computes, as far as its cost depends on it."""
        return self._shape.total()

    def finish_sequence(self, seq: Sequence, reason: RequestStatus, stop_reason: int | str | None = None) -> None:
        """End one sequence; with the last one its request ends too. Harmless where it has ended already."""
        if seq.finish_reason is not None:
            return
        seq.finish_reason = reason
        seq.stop_reason = stop_reason
        self._drop(seq)
        request = seq.request
        request.unfinished.remove(seq)
        if not request.unfinished:
            self._finish(request, reason)

    def finish_request(self, request_id: str, reason: RequestStatus, error: str | None = None) -> Request | None:
        """End a request with all its sequences, wherever it is. None where there is no such request any more."""
        request = self.requests.get(request_id)
        if request is None:
            return None
        request.error = error
        for seq in list(request.unfinished):
            self.finish_sequence(seq, reason)
        return request

    def _finish(self, request: Request, reason: RequestStatus) -> None:
        queue = self.running if request.status is RequestStatus.RUNNING else self.waiting
        queue.remove(request)
        if queue is self.running:
            self._num_running_seqs -= request.width
        self.num_preempted -= request.status is RequestStatus.PREEMPTED
        request.status = reason
        for seq in request.sequences:
            self._sequences.pop(seq.seq_id, None)
        self.recovery_log.leave(request.request_id)
        del self.requests[request.request_id]

    def _drop(self, seq: Sequence) -> None:
        """Give up a sequence's blocks and have the runner forget it: on finish, preemption and error alike."""
        seq.num_lost_tokens = max(seq.num_lost_tokens, seq.num_computed_tokens)
        self.kv.free(seq)
        if seq.finish_reason is not None:
            self.kv.abandon_kept(seq)
        self._forget_in_runner(seq)

    def _forget_in_runner(self, seq: Sequence) -> None:
        if seq.is_in_runner:
            seq.is_in_runner = False
            self._appended.pop(seq.seq_id, None)
            self._removed.append(seq.seq_id)

    def _new_sequence(self, request: Request, index: int, token_ids: list[int]) -> Sequence:
        seq = Sequence(self._next_seq_id, index, request, token_ids)
        self._next_seq_id += 1
        self._sequences[seq.seq_id] = seq
        return seq

    # -- a step ------------------------------------------------------------------------------------------------------

    def schedule(self) -> SchedulerOutput:
        """Decide the next step. Its result goes to `update`, or its failure to `fail_step`, before the next call."""
        assert self._in_flight is None, "the last step has neither been updated nor failed"
        self._step_id += 1
        self.kv.begin_step(write_through=self.config.swap_write_through)
        self._look_again()
        self._sample_link()
        self._last_shape, self._shape = self._shape.total(), _ShapeSum()
        self.recovery_log.begin_step()
        out = SchedulerOutput(self._step_id)
        budget = self.config.max_num_batched_tokens
        promised = 0  # blocks that running sequences need for tokens which they know already
        at = 0
        running = self.running
        while at < len(running) and budget > 0:
            request = running[at]
            if len(request.unfinished) == 1:
                budget, promised = self._schedule_single(request, request.unfinished[0], out, budget, promised)
            else:
                budget, promised = self._schedule_group(request, out, budget, promised)
            if request.status is RequestStatus.RUNNING:  # else it preempted itself, and the next one has its place
                at += 1
        while self.waiting and budget > 0 and self._fits(self.waiting[0], promised):
            request = self.waiting.pop(0)
            self._admit(request)
            budget, promised = self._schedule_group(request, out, budget, promised)
        out.removed_seq_ids, self._removed = self._removed, []
        out.transfers.extend(self.kv.take_transfers())
        out.cancelled = self.kv.take_cancelled()
        self._in_flight = out
        return out

    def _look_again(self) -> None:
        """Give up what is under way where the link has shown meanwhile that computing it is shorter."""
        if not self.kv.num_under_way:
            return
        for recovery in self.recovery_log.open_recoveries():
            if recovery.is_experiment:
                continue
            for seq in self.requests[recovery.request_id].unfinished:
                if seq.loading is not None:
                    self._look_again_at(
                        seq, self.kv.unloaded(seq), self.recovery.is_worth_loading, self.kv.cancel_loads
                    )
                elif recovery.num_saving and seq.kept_keys:
                    self._look_again_at(seq, self.kv.unsaved(seq), self.recovery.is_worth_saving, self.kv.cancel_saves)

    def _look_again_at(
        self,
        seq: Sequence,
        rest: Kept | None,
        is_worth: Callable[[int, int, SystemState], bool],
        cancel: Callable[[Sequence, Kept], int],
    ) -> None:
        if rest is None or is_worth(*self._tokens_of(rest), self._system_state()):
            return
        if cancel(seq, rest):
            self.recovery_log.note_fallback(seq.request.request_id)

    def _tokens_of(self, blocks: Kept) -> tuple[int, int]:
        return blocks.start * self.config.block_size, blocks.end * self.config.block_size

    def _sample_link(self) -> None:
        """Where somebody may soon have to give way, save some blocks of who it may be ahead of time now and then, to
        see how fast the idle link is."""
        if self._prober is None or self.kv.num_under_way or not self._is_preemption_near():
            return
        num_blocks = self._prober.sample_size(self.config.block_bytes)
        if num_blocks == 0:
            return
        for request in reversed(self.running[1:][-MAX_CANDIDATES:]):
            if num_saved := self.kv.save_ahead(request.unfinished[0], num_blocks):
                self._prober.note_sample(num_saved * self.config.block_bytes)
                return

    def _is_preemption_near(self) -> bool:
        """Whether the pool has no block more for each sequence: within a block's tokens all of them need one."""
        return len(self.running) > 1 and self.kv.pool.num_available <= self._num_running_seqs

    def _schedule_single(
        self, request: Request, seq: Sequence, out: SchedulerOutput, budget: int, promised: int
    ) -> tuple[int, int]:
        """The common case: one sequence, whose blocks are in place."""
        if seq.candidates is not None:
            return budget, promised
        if not seq.block_table or seq.loading is not None:
            return self._schedule_group(request, out, budget, promised)
        missing = len(seq.token_ids) - seq.num_computed_tokens
        num_new = missing if missing <= budget else budget
        while (placed := self.kv.append_slots(seq, num_new)) is None:
            if self._preempt_for(request):
                continue
            num_new = self._room_for(seq) if request is self.running[0] else 0
            if num_new == 0:
                return budget, promised
        self._emit(seq, num_new, placed, out)
        if num_new < missing:
            promised += self.kv.blocks_for(len(seq.token_ids)) - len(seq.block_table)
        return budget - num_new, promised

    def _schedule_group(self, request: Request, out: SchedulerOutput, budget: int, promised: int) -> tuple[int, int]:
        """A request with several sequences, or one that has to begin (again).

        Either all sequences that hold blocks go on, or the request is preempted whole; only the oldest request, which
        may not be preempted, runs its sequences in turns where they do not fit together.
        """
        is_oldest = request is self.running[0]
        for seq in request.unfinished:
            if seq.loading is not None:
                self._take_in_what_came(seq)
        holding = [
            seq for seq in request.unfinished if seq.block_table and seq.candidates is None and seq.loading is None
        ]
        need = sum(
            self.kv.count_new_blocks(seq, min(len(seq.token_ids), seq.num_computed_tokens + budget)) for seq in holding
        )
        while self.kv.pool.num_available < need:
            if not self._preempt_for(request):
                if not is_oldest:
                    return budget, promised  # preempted itself
                break
        has_progress = False
        for seq in list(request.unfinished):
            if budget == 0:
                break
            if seq.candidates is not None:
                continue
            if not seq.block_table and not self._begin(seq, promised, is_forced=is_oldest and not has_progress):
                promised += self.kv.blocks_for(len(seq.token_ids))  # or younger ones would take its room, and lose it
                continue
            missing = len(seq.token_ids) - seq.num_computed_tokens
            num_new = min(missing, budget)
            if seq.loading is not None:
                num_new = min(num_new, seq.loading.start - seq.num_computed_tokens)
                if num_new == 0:  # the rest is on its way; its last tokens find room when they are computed
                    promised += self.kv.blocks_for(len(seq.token_ids)) - len(seq.block_table)
                    has_progress = True
                    continue
            while (placed := self.kv.append_slots(seq, num_new)) is None:
                if not self._park_sibling(seq):
                    break
            if placed is None and is_oldest and not has_progress and (room := self._room_for(seq)):
                num_new = room
                placed = self.kv.append_slots(seq, num_new)
            if placed is None:  # its turn comes when a sibling, or a load that nobody waits for any more, has ended
                self._drop(seq)
                promised += self.kv.blocks_for(len(seq.token_ids))
                continue
            self._emit(seq, num_new, placed, out)
            has_progress = True
            budget -= num_new
            if num_new < missing:
                promised += self.kv.blocks_for(len(seq.token_ids)) - len(seq.block_table)
        return budget, promised

    def _room_for(self, seq: Sequence) -> int:
        """How many tokens of the oldest can be computed where not all can, with nobody left who could make room.

        Loads that nobody waits for any more hold the rest, until they end.
        """
        computed = seq.num_computed_tokens
        spare = self.kv.pool.num_available - self.kv.count_new_blocks(seq, computed)
        return max(0, (self.kv.blocks_for(computed) + spare) * self.config.block_size - computed)

    def _begin(self, seq: Sequence, promised: int, *, is_forced: bool) -> bool:
        """Give a sequence without blocks the prefix that is there already, if the rest fits beside what is promised."""
        request = seq.request
        found = self._find_prefix(seq)
        pool = self.kv.pool
        evictable = sum(1 for block in found if pool.ref_counts[block] == 0)
        missing = self.kv.blocks_for(len(seq.token_ids)) - len(found)
        if pool.num_available - evictable < missing + promised and not is_forced:
            return False
        if request.num_cached_tokens is None:
            request.num_cached_tokens = len(found) * self.config.block_size
            self.counts.prefix_queries += len(seq.token_ids)
            self.counts.prefix_hits += request.num_cached_tokens
        self._note_survivors(request, len(found))
        self.kv.adopt_prefix(seq, found)
        if is_forced:
            while pool.num_available < missing and (self._preempt_for(request) or self._park_sibling(seq)):
                pass
        kept = self.kv.find_kept(seq, len(found))
        if kept is not None and pool.num_available >= kept.end - len(found) and self._is_worth_loading(request, kept):
            self.recovery_log.note_load(request.request_id, self.kv.begin_load(seq, kept))
        elif kept is not None or self._has_lost_saved(seq, len(found)):
            self.recovery_log.note_fallback(request.request_id)
        self.kv.release_kept(seq)
        return True

    def _has_lost_saved(self, seq: Sequence, num_found: int) -> bool:
        """Whether blocks were kept for it that are neither in the tier any more nor have been found."""
        recovery = self.recovery_log.open_of(seq.request.request_id)
        return bool(seq.kept_keys) and recovery is not None and num_found < recovery.num_full

    def _is_worth_loading(self, request: Request, kept: Kept) -> bool:
        recovery = self.recovery_log.open_of(request.request_id)
        if recovery is not None and recovery.is_experiment:
            return True
        return self.recovery.is_worth_loading(*self._tokens_of(kept), self._system_state())

    def _note_survivors(self, request: Request, num_found: int) -> None:
        """A request is about to go on, with so many blocks that were still there."""
        recovery = self.recovery_log.open_of(request.request_id)
        if recovery is not None and recovery.num_given_up > 0:
            self.eviction_stats.observe(recovery.num_given_up, max(0, recovery.num_full - num_found))

    def _tell_policy(self, recovery: Recovery) -> None:
        self.recovery.note_actual(recovery.request_id, recovery.seconds, fell_back=recovery.fell_back)

    def _take_in_what_came(self, seq: Sequence) -> None:
        """Count a sequence's loaded blocks as computed, once they are there and so is everything before them."""
        loading = seq.loading
        if loading is not None and not loading.op_ids and seq.num_computed_tokens == loading.start:
            self.kv.end_load(seq)
            self._forget_in_runner(seq)  # it knows the blocks before them alone

    def _find_prefix(self, seq: Sequence) -> list[int]:
        # Logits of prompt tokens exist only where those tokens are computed.
        wants_prompt = seq.request.sampling_params.prompt_logprobs is not None and seq.num_output_tokens == 0
        return self.kv.find_prefix(seq, limit=0 if wants_prompt else None)

    def _emit(
        self, seq: Sequence, num_new: int, placed: tuple[list[int], BlockTransfer | None], out: SchedulerOutput
    ) -> None:
        new_blocks, transfer = placed
        if transfer is not None:
            out.transfers.append(transfer)
        seq_id = seq.seq_id
        start = seq.num_computed_tokens - num_new
        self._shape.add(start, num_new)
        if start < seq.num_lost_tokens:
            self._note_recomputed(seq, start, num_new)
        out.seq_ids.append(seq_id)
        out.num_scheduled_tokens.append(num_new)
        out.total_tokens += num_new
        if not seq.is_in_runner:
            seq.is_in_runner = True
            out.new_sequences.append(self._describe(seq, num_new))
            return
        if seq_id in self._appended:
            out.new_tokens[seq_id] = self._appended.pop(seq_id)
        if new_blocks:
            out.new_blocks[seq_id] = new_blocks
        if transfer is not None:
            position = (seq.num_computed_tokens - num_new) // self.config.block_size
            out.replaced_blocks.append((seq_id, position, seq.block_table[position]))

    def _note_recomputed(self, seq: Sequence, start: int, num_new: int) -> None:
        count = min(num_new, seq.num_lost_tokens - start)
        self.counts.recomputed_tokens += count
        self.recovery_log.note_recomputed(seq.request.request_id, start, count)

    def _describe(self, seq: Sequence, num_new: int) -> NewSequence:
        request = seq.request
        table = seq.block_table
        if seq.loading is not None:  # what is on its way is not there to be cleared or read
            table = table[: seq.loading.start // self.config.block_size]
        is_fresh = seq.num_output_tokens == 0
        return NewSequence(
            seq_id=seq.seq_id,
            index=seq.index,
            token_ids=list(seq.token_ids),
            num_prompt_tokens=seq.num_prompt_tokens,
            num_computed_tokens=seq.num_computed_tokens - num_new,
            block_table=list(table),
            sampling_params=request.sampling_params,
            seed=request.seed,
            stop_token_ids=tuple(request.stop_token_ids),
            num_samples=request.sampling_params.n if is_fresh and request.beam is None else 1,
            num_candidates=request.beams.num_candidates if request.beams is not None else 0,
        )

    # -- room --------------------------------------------------------------------------------------------------------

    def _fits(self, request: Request, promised: int) -> bool:
        """Whether a waiting request can run with all the tokens that it knows, beside those that run already."""
        if self._num_running_seqs + request.width > self.config.max_num_seqs:
            return False
        if not self.running:
            return True  # alone, it runs in turns if need be
        pool = self.kv.pool
        room = pool.num_available - promised - self.config.watermark_blocks
        first = request.unfinished[0]
        need = self.kv.blocks_for(len(first.token_ids)) + request.width - 1
        if need > room:
            found = self._find_prefix(first)
            need -= sum(1 for block in found if pool.ref_counts[block] > 0)
        for sibling in request.unfinished[1:]:  # resumed: what follows the prompt is each one's own
            need += self.kv.blocks_for(sibling.num_output_tokens)
        return need <= room and self._leaves_in_peace(request)

    def _leaves_in_peace(self, request: Request) -> bool:
        """Whether with this one too nobody will be preempted who may not be any more."""
        together = [*self.running, request]
        if all(each.num_preemptions < MAX_PREEMPTIONS for each in together):
            return True
        left = self.kv.pool.num_blocks - sum(self._most_blocks(each) for each in together)
        if left < 0:
            return False
        held = {block for running in self.running for seq in running.unfinished for block in seq.block_table}
        return self.kv.pool.num_used - len(held) <= left  # pinned, or loaded for one that has left

    def _most_blocks(self, request: Request) -> int:
        """What a request may ask for in the course of its life, even if its sequences share nothing.

        Two that share a block ask for one each when they part, though the second may keep the old one.
        """
        longest = len(request.prompt_token_ids) + request.max_tokens
        return request.width * self.kv.blocks_for(longest) + request.width // 2

    def _admit(self, request: Request) -> None:
        self.num_preempted -= request.status is RequestStatus.PREEMPTED
        request.status = RequestStatus.RUNNING
        self._num_running_seqs += request.width
        insort(self.running, request, key=_ORDER)

    def _preempt_for(self, request: Request) -> bool:
        """Preempt someone so that `request` can go on. False where there is nobody, or it was itself the one chosen."""
        # Those before it have their place in this step already, and the oldest is never preempted.
        later = self.running[max(1, self.running.index(request)) :]
        candidates = [r for r in later if self._has_something_to_give(r)]
        if not candidates:
            return False
        choice = self.recovery.choose([self._candidate(r) for r in candidates[-MAX_CANDIDATES:]], self._system_state())
        victim = choice.victim
        assert victim in candidates, "only a candidate may be preempted"
        self._give_up(victim, choice)
        self.running.remove(victim)
        self._num_running_seqs -= victim.width
        victim.status = RequestStatus.PREEMPTED
        self.eviction_stats.observe_preemption(is_repeated=victim.num_preemptions > 0)
        victim.num_preemptions += 1
        self.num_preempted += 1
        self.counts.preemptions += 1
        insort(self.waiting, victim, key=_ORDER)
        return victim is not request

    def _give_up(self, victim: Request, choice: Preemption) -> None:
        """Take a request's blocks, and have the swap tier keep those by which it is to come back."""
        given_up = self._given_up_by(victim)
        save_ids: list[int] = []
        for seq in victim.unfinished:
            self.kv.release_kept(seq)
        if choice.mode is not RecoveryMode.RECOMPUTE:
            keep_from = choice.keep_from if choice.mode is RecoveryMode.MIXED else 0
            save_ids = self.kv.keep(victim.unfinished, keep_from, given_up)
        num_tokens = max(max(seq.num_computed_tokens, seq.num_lost_tokens) for seq in victim.unfinished)
        recovery = self.recovery_log.give_up(self._step_id, victim.request_id, num_tokens, choice, save_ids)
        if victim.width == 1 and not _is_loading(victim):  # of what is on its way it is not known whether it stays
            full = self.kv.full_blocks(victim.unfinished[0])
            recovery.num_full = len(full)
            recovery.num_given_up = sum(1 for block in full if block in given_up)
        for seq in victim.unfinished:
            self._drop(seq)

    def _has_something_to_give(self, request: Request) -> bool:
        """Not where it only waits for its blocks, before they are there, or for room to begin."""
        if _is_loading(request):
            return bool(self._given_up_by(request))
        return any(seq.block_table for seq in request.unfinished)

    def _given_up_by(self, request: Request) -> set[int]:
        """The blocks that nobody holds any more once a request has given up its own."""
        holds: dict[int, int] = {}
        for seq in request.unfinished:
            for block in seq.block_table:
                holds[block] = holds.get(block, 0) + 1
        ref_counts = self.kv.pool.ref_counts
        return {block for block, count in holds.items() if ref_counts[block] == count}

    def _candidate(self, request: Request) -> Candidate:
        kv = self.kv
        given_up = self._given_up_by(request)
        full: dict[int, bytes] = {}  # the distinct full blocks, with their keys
        coming: set[int] = set()  # of these, those that are not there yet
        partial = 0
        for seq in request.unfinished:
            full |= kv.filled_blocks(seq)
            if seq.loading is None:
                partial += seq.num_computed_tokens % kv.block_size
            else:
                coming.update(seq.block_table[seq.num_computed_tokens // kv.block_size :])
        first = kv.filled_blocks(request.unfinished[0])
        num_shared = next((at for at, block in enumerate(first) if block in given_up), len(first))
        to_save = (block in given_up and block not in coming and key not in kv.tier for block, key in full.items())
        return Candidate(
            request=request,
            num_tokens=len(full) * kv.block_size + partial,
            num_freed=len(given_up),
            num_shared=num_shared,
            to_save_from=_count_from(to_save),
            idle_from=_count_from(kv.tier.is_idle(key) for key in full.values()),
            gap=_gap(request.unfinished[0], kv.block_size) if request.width == 1 else range(0),
        )

    def _system_state(self) -> SystemState:
        config = self.config
        return SystemState(
            block_size=config.block_size,
            block_bytes=config.block_bytes,
            chunk=config.max_num_batched_tokens,
            free_slots=self.kv.tier.num_available,
            queued_bytes=self.kv.num_under_way * config.block_bytes,
            beside=self._last_shape,
            now_step=self._step_id,
            eviction_stats=self.eviction_stats,
        )

    def _park_sibling(self, seq: Sequence) -> bool:
        """Take the blocks of a sibling that can wait: one that has its candidates, else the last one.

        Siblings are served in order, so neither has a place in this step yet.
        """
        siblings = [s for s in seq.request.unfinished if s.block_table]
        idle = [s for s in siblings if s.candidates is not None]
        later = [s for s in siblings if s.index > seq.index]
        if not idle and not later:
            return False
        self._drop((idle or later)[-1])
        return True

    # -- what a step brought -----------------------------------------------------------------------------------------

    def update(self, result: StepOutput) -> list[SequenceUpdate]:
        """Take in a step's tokens: append, stop, fork.

        Returns:
            The sequences that got tokens, with these. A request whose last sequence has ended is gone from
            `requests`; the caller may end further sequences by `finish_sequence` (for a stop string).
        """
        assert self._in_flight is not None, "no step is under way"
        assert self._in_flight.step_id == result.step_id, "this result is not of the step under way"
        self._in_flight = None
        self.kv.end_transfers(result.transfers)
        self.recovery_log.note_transfers(result.transfers)
        for recovery in self.recovery_log.open_recoveries():
            if _is_back(self.requests[recovery.request_id]):
                self.recovery_log.complete(recovery.request_id)
        for seq_id, why in result.failed.items():
            self._fail_sequence(seq_id, why)
        updates: list[SequenceUpdate] = []
        sequences = self._sequences
        logprobs = result.logprobs
        self.counts.sampled_tokens += len(result.seq_ids)
        for seq_id, sampled in zip(result.seq_ids, result.sampled, strict=True):
            seq = sequences.get(seq_id)
            if seq is None or seq.finish_reason is not None or not seq.is_in_runner:
                continue  # ended while the step was under way
            entries = logprobs.get(seq_id) if logprobs else None
            request = seq.request
            if request.beam is not None:
                assert entries is not None
                seq.candidates = list(zip(entries[0].top_ids, entries[0].top_logprobs, strict=True))
                if all(beam.candidates is not None for beam in request.unfinished):
                    self._advance_beams(request, updates)
            elif len(sampled) == 1:
                self._append(seq, sampled[0], entries, updates)
            else:
                self._fork(seq, sampled, entries, updates)
        return updates

    def fail_step(self, error: str) -> list[Request]:
        """The step under way did not happen: nothing that it was to write is trusted, and its requests fail.

        Returns:
            The requests that failed, finished.
        """
        out, self._in_flight = self._in_flight, None
        assert out is not None, "no step is under way"
        self.kv.fail_step()
        self._removed = out.removed_seq_ids + self._removed  # forgetting twice is harmless
        touched = {self._sequences[seq_id].request.request_id for seq_id in out.seq_ids if seq_id in self._sequences}
        failed = (
            self.finish_request(request_id, RequestStatus.FINISHED_ERROR, error) for request_id in sorted(touched)
        )
        return [request for request in failed if request is not None]

    def _append(
        self, seq: Sequence, token_id: int, entries: list[TokenLogprobs] | None, updates: list[SequenceUpdate]
    ) -> None:
        seq.token_ids.append(token_id)
        if entries is not None:
            seq.cumulative_logprob += entries[0].logprob
        updates.append(SequenceUpdate(seq, [token_id], entries))
        request = seq.request
        num_output_tokens = len(seq.token_ids) - seq.num_prompt_tokens
        if token_id in request.stop_token_ids and num_output_tokens >= request.sampling_params.min_tokens:
            is_models_own = token_id in request.eos_token_ids
            self.finish_sequence(seq, RequestStatus.FINISHED_STOPPED, None if is_models_own else token_id)
        elif num_output_tokens >= request.max_tokens:
            self.finish_sequence(seq, RequestStatus.FINISHED_LENGTH)

    def _fork(
        self, seq: Sequence, tokens: list[int], entries: list[TokenLogprobs] | None, updates: list[SequenceUpdate]
    ) -> None:
        """The prompt is computed: n sequences go on from it, each with its own first token."""
        request = seq.request
        self.counts.sampled_tokens += len(tokens) - 1
        for index in range(1, len(tokens)):
            child = self._new_sequence(request, index, list(seq.token_ids))
            self.kv.fork(seq, child)
            request.sequences.append(child)
            request.unfinished.append(child)
        for i, (sibling, token_id) in enumerate(zip(list(request.sequences), tokens, strict=True)):
            self._append(sibling, token_id, None if entries is None else [entries[i]], updates)

    def _advance_beams(self, request: Request, updates: list[SequenceUpdate]) -> None:
        search, beams = request.beams, request.unfinished
        assert search is not None
        going_on = search.advance(
            [(beam.output_token_ids, beam.cumulative_logprob, beam.candidates or []) for beam in beams]
        )
        if search.is_done:
            updates.append(SequenceUpdate(beams[0], []))
            stopped = any(h.stopped for h in search.finished)
            for beam in list(beams):
                self.finish_sequence(beam, RequestStatus.FINISHED_STOPPED if stopped else RequestStatus.FINISHED_LENGTH)
            return
        next_unfinished: list[Sequence] = []
        continued: set[int] = set()
        for candidate in going_on:  # forks first: they need the parents' tables as they are
            if candidate.beam in continued:
                parent = beams[candidate.beam]
                child = self._new_sequence(request, parent.index, list(parent.token_ids))
                self.kv.fork(parent, child)
            else:
                continued.add(candidate.beam)
                child = beams[candidate.beam]
            child.cumulative_logprob = candidate.sum_logprob
            next_unfinished.append(child)
        for at, beam in enumerate(beams):
            if at not in continued:
                self._drop(beam)
                self.kv.abandon_kept(beam)
                del self._sequences[beam.seq_id]
        for index, (beam, candidate) in enumerate(zip(next_unfinished, going_on, strict=True)):
            if beam.is_in_runner:
                self._appended[beam.seq_id] = [candidate.token_id]
            beam.token_ids.append(candidate.token_id)
            beam.candidates = None
            beam.index = index
        request.sequences = next_unfinished
        request.unfinished = list(next_unfinished)

    def _fail_sequence(self, seq_id: int, why: str) -> None:
        seq = self._sequences.get(seq_id)
        if seq is not None and seq.finish_reason is None:
            self.kv.distrust(seq)
            self.finish_request(seq.request.request_id, RequestStatus.FINISHED_ERROR, why)

    # -- checks ------------------------------------------------------------------------------------------------------

    def pin_prefix(self, request_id: str) -> int:
        """Keep the full blocks of a running request for good. Returns how many.

        Raises:
            ValueError: what they leave of the pool would not hold the longest sequence.
        """
        seq = self.requests[request_id].sequences[0]
        left = self.config.num_blocks - self.kv.count_pinned_with(seq)
        if left * self.config.block_size < self.config.max_model_len:
            raise ValueError(
                f"the pool would have {left} blocks left beside the pinned ones, too few for "
                f"max_model_len={self.config.max_model_len}; lower it or enlarge the pool"
            )
        return self.kv.pin(seq)

    def sequences(self) -> Iterable[Sequence]:
        return self._sequences.values()

    def check_integrity(self) -> None:
        """Raise AssertionError where blocks leak, queues are out of order, or counts have drifted."""
        self.kv.check_integrity([seq for request in self.requests.values() for seq in request.unfinished])
        for queue in (self.running, self.waiting):
            orders = [request.order for request in queue]
            assert orders == sorted(orders)
        for request in self.requests.values():
            indices = [seq.index for seq in request.unfinished]
            assert indices == sorted(set(indices)), "siblings are out of order"
        assert len(self.running) + len(self.waiting) == len(self.requests)
        assert self.num_preempted == sum(request.status is RequestStatus.PREEMPTED for request in self.waiting)
        assert all(not seq.block_table for request in self.waiting for seq in request.unfinished)
        assert self._num_running_seqs == sum(request.width for request in self.running) <= self.config.max_num_seqs
        assert set(self._sequences) >= {seq.seq_id for request in self.requests.values() for seq in request.unfinished}
        if not self.requests:
            assert not self._sequences, "sequences outlive their requests"
            num_loading = self.kv.num_under_way
            assert self.kv.pool.num_used - self.kv.num_pinned <= num_loading, "blocks leak"
        for request in self.running:
            assert not any(seq.kept_keys for seq in request.unfinished if seq.block_table), "kept for one that goes on"
