"""The scheduling discipline of vLLM 0.2.4, for experiments that were published with it.

    swapped out   loaded before any prompt begins, if no request was preempted in the step
    waiting       whole prompts in steps of their own; a recomputed request is a prompt
    running       one token each, oldest first; without a free block the youngest is preempted

Copies stop the step that they belong to. The recovery policy chooses the mode of each preemption. (Source of the rules:
vllm/core/scheduler.py and block_manager.py of that version.)
"""

from __future__ import annotations

from quire.config import SchedulerConfig
from quire.core.decisions.costs import Costs
from quire.core.decisions.load_or_compute import LoadOrCompute, RecoveryMode, RecoveryPlan, Victim
from quire.core.decisions.recovery_policy import Cost, RecoveryPolicy
from quire.core.request import Request
from quire.core.scheduler import Scheduler
from quire.core.scheduling.step_results import SequenceUpdate
from quire.outputs import BlockTransfer, SchedulerOutput, StepOutput

MAX_PADDING = 256  #: tokens by which the prompts of a step may fall short of its longest, together


class CheaperWhole(RecoveryPolicy):
    """`cost` on this discipline: copy all blocks out and in, or compute all tokens in a step of their own."""

    def __init__(self, costs: Costs, block_bytes: int) -> None:
        self._costs = costs
        self._block_bytes = block_bytes

    def plan(self, victim: Victim, decider: LoadOrCompute) -> RecoveryPlan:
        costs, num_bytes = self._costs, victim.num_full_blocks * self._block_bytes
        num_tokens = victim.num_tokens + 1  # the last token has no KV yet
        predicted = {RecoveryMode.RECOMPUTE: costs.recompute(num_tokens, chunk=num_tokens)}
        if victim.can_keep(0):
            predicted[RecoveryMode.SWAP] = costs.save(num_bytes) + costs.load(num_bytes)
        best = min(predicted, key=predicted.__getitem__)
        return RecoveryPlan(best, predicted={mode.value: seconds for mode, seconds in predicted.items()})


class VllmScheduler(Scheduler):
    """Schedules requests with one sequence each, without prefix caching. Raises ValueError for limits at which a
    request could wait for ever."""

    def __init__(self, config: SchedulerConfig, recovery: RecoveryPolicy, costs: Costs) -> None:
        longest = (config.num_blocks - 1 - config.watermark_blocks) * config.block_size
        if config.max_model_len > longest:
            raise ValueError(
                f"vllm-0.2.4 needs a free block beside the longest request; lower max_model_len={config.max_model_len} "
                f"to {longest}, or enlarge the pool"
            )
        if config.max_num_batched_tokens < config.max_model_len:
            raise ValueError(
                f"vllm-0.2.4 computes prompts whole; raise max_num_batched_tokens={config.max_num_batched_tokens} to "
                f"max_model_len={config.max_model_len}"
            )
        if config.enable_prefix_caching or config.has_disk_tier:
            raise ValueError("vllm-0.2.4 has no prefix caching and no disk tier; leave them out")
        if isinstance(recovery, Cost):
            recovery = CheaperWhole(costs, config.block_bytes)
        super().__init__(config, recovery, costs)
        self.swapped: dict[str, int] = {}  #: computed tokens of swapped-out requests
        self.num_free_slots = config.num_swap_slots
        self._copies: list[BlockTransfer] = []  #: of the step being made

    def schedule(self) -> SchedulerOutput:
        assert self._in_flight is None, "the last step has neither been updated nor failed"
        self.num_steps += 1
        self.kv.begin_step()
        self.recovery.log.begin_step()
        self._step.begin(self.num_steps)
        self._copies = []
        if (self.swapped or not self._start_prompts()) and not self._decode():
            self._swap_in()
        self._in_flight = self._step.finish(self._copies, [])
        return self._in_flight

    def update(self, result: StepOutput, *, only_ended: bool = False) -> list[SequenceUpdate]:
        self.recovery.log.record_transfers(result.transfers)
        result.transfers.clear()  # whole requests have moved, of which the swap manager knows nothing
        return super().update(result, only_ended=only_ended)

    def _start_prompts(self) -> bool:
        """Fill the step with waiting prompts, in order. False if not even one fits."""
        queue, most, lengths = self.queue, self.config.max_num_batched_tokens, list[int]()
        while queue.waiting and queue.num_running_seqs < self.config.max_num_seqs:
            lengths.append(len(queue.waiting[0].unfinished[0].token_ids))
            num_padded = len(lengths) * max(lengths)
            is_too_much = num_padded > most or num_padded - sum(lengths) > MAX_PADDING
            if is_too_much or not self._has_room(lengths[-1]):
                break
            self._compute(queue.waiting[0], lengths[-1])
        return self._step.num_seqs > 0

    def _has_room(self, num_tokens: int) -> bool:
        return self.kv.blocks_for(num_tokens) + self.config.watermark_blocks <= self.kv.pool.num_available

    def _decode(self) -> bool:
        """Compute a token of each running request. Returns whether it preempted any."""
        running, pool, at, has_preempted = self.queue.running, self.kv.pool, 0, False
        while at < len(running):
            if not pool.num_available:
                self._preempt(running[-1])
                has_preempted = True
                continue
            seq_ids, num_context, new_blocks = self.kv.append_decodes(running[at : at + pool.num_available])
            self._step.add_decodes(seq_ids, num_context, new_blocks)
            at += len(seq_ids)
        return has_preempted

    def _preempt(self, victim: Request) -> None:
        seq = victim.unfinished[0]
        num_tokens, num_blocks = seq.num_computed_tokens, len(seq.block_table)
        plan = self.recovery.policy.plan(
            Victim(victim, num_tokens, 0, [True] * num_blocks, self.num_free_slots), self.decider
        )
        saves = list[BlockTransfer]()
        if plan.mode is not RecoveryMode.RECOMPUTE:
            saves = [BlockTransfer(next(self.kv.op_ids), "save", block, -1) for block in seq.block_table]
            self.swapped[victim.request_id] = num_tokens
            self.num_free_slots -= num_blocks
        self.recovery.log.open(victim.request_id, self.num_steps, num_tokens, plan, [save.op_id for save in saves])
        self._copies += saves
        self.swap.release_blocks(seq)
        self._step.remove(seq)
        victim.num_preemptions += 1
        self.counts.preemptions += 1
        self.queue.wait(victim)

    def _swap_in(self) -> None:
        """Load swapped-out requests while they fit with a free block each, oldest first, and go on with them."""
        queue, kv, log = self.queue, self.kv, self.recovery.log
        for request in [each for each in queue.waiting if each.request_id in self.swapped]:
            num_tokens = self.swapped[request.request_id]
            if queue.num_running_seqs >= self.config.max_num_seqs or not self._has_room(num_tokens + kv.block_size):
                break
            del self.swapped[request.request_id]
            self.num_free_slots += kv.blocks_for(num_tokens)
            appended = kv.append_slots(request.unfinished[0], num_tokens)
            assert appended is not None
            loads = [BlockTransfer(next(kv.op_ids), "load", -1, block) for block in appended[0]]
            log.record_loads(log.open_record(request.request_id), [load.op_id for load in loads])
            self._copies += loads
            self._compute(request, 1)

    def _compute(self, request: Request, num_new: int) -> None:
        """Run a request with its next tokens, for which the caller has checked the room."""
        seq = request.unfinished[0]
        self.queue.run(request)
        if num_lost := min(num_new, seq.num_lost_tokens - seq.num_computed_tokens):
            self.counts.recomputed_tokens += num_lost
            self.recovery.log.record_recomputed(request.request_id, 0, num_lost)
        appended = self.kv.append_slots(seq, num_new)
        assert appended is not None
        self._step.add(seq, num_new, appended)
