"""Make many like decode steps at once: most of a simulated run, and so most of its speed.

While every running sequence decodes one token a step, and no request arrives, ends or waits for blocks, the scheduler
has nothing to decide.
"""

from __future__ import annotations

from collections.abc import Sequence as Seq

from quire.core.request import Sequence
from quire.core.scheduler import Scheduler


class SteadySteps:
    """The steps of one scheduler that follow from the last one."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._ids: Seq[int] = []  #: the runner's, at the last call
        self._seqs: list[Sequence] = []  #: the sequences with these ids, where all of them only decode
        self._first_end = 0  #: the step in which the first of them ends

    def ahead(self, ids: Seq[int], most: int) -> tuple[list[Sequence], int]:
        """Return the sequences of the following steps, and the number of these steps.

        Args:
            ids: sequences in the runner's batch; the same list while the batch is the same.
            most: maximum number of steps.
        """
        scheduler = self._scheduler
        if len(ids) != len(scheduler.queue.running) or not self._may_follow():
            return [], 0
        if ids is not self._ids:
            self._ids, self._seqs, self._first_end = ids, [], 0
            seqs = self._decoding()
            # A request that was just admitted may precede others from the next step on.
            if seqs is not None and [seq.seq_id for seq in seqs] == ids:
                left = min([seq.num_tokens_at_end - len(seq.token_ids) for seq in seqs])
                self._seqs, self._first_end = seqs, scheduler.num_steps + left
        most = min(most, self._first_end - scheduler.num_steps - 1)
        return (self._seqs, most) if most > 1 else ([], 0)

    def _may_follow(self) -> bool:
        """Whether no request moves, or waits for blocks, before a running one ends."""
        scheduler, queue = self._scheduler, self._scheduler.queue
        config, running, waiting = scheduler.config, queue.running, queue.waiting
        if not running or queue.blocked or scheduler.disk is not None or scheduler.stages.older is not None:
            return False
        if scheduler.swap.num_under_way or scheduler.has_pending_changes:
            return False
        if len(running) > config.max_num_batched_tokens:
            return False
        if not waiting:
            return True
        # Admission looks at seats first; and nothing is to be loaded ahead.
        is_full = queue.num_running_seqs + waiting[0].width > config.max_num_seqs
        return is_full and waiting[0].is_settled and not scheduler.swap.has_blocks

    def _decoding(self) -> list[Sequence] | None:
        """Return the running sequences, if each of them decodes one token a step until it ends."""
        seqs = []
        for request in self._scheduler.queue.running:
            seq = request.unfinished[0]
            is_decoding = seq.is_in_runner and len(seq.token_ids) == seq.num_computed_tokens + 1
            if not (request.is_single and is_decoding):
                return None
            seqs.append(seq)
        return seqs

    def make(self, seqs: list[Sequence], num_steps: int, token_id: int) -> int:
        """Make steps, each of which brings every sequence the same token.

        Args:
            seqs: the sequences that `ahead` returned.
            num_steps: none of the sequences ends within them.
            token_id: ends none of them.

        Returns:
            The number of steps made: fewer where the pool has no room for more.
        """
        kv = self._scheduler.kv
        num_steps = self._steps_with_room(seqs, num_steps)
        if num_steps:
            num_context = sum([seq.num_computed_tokens for seq in seqs])
            for seq in seqs:
                seq.token_ids += [token_id] * num_steps
                kv.append_slots(seq, num_steps)
            self._scheduler.record_steps(num_steps, len(seqs), num_context + (num_steps - 1) * len(seqs))
        return num_steps

    def _steps_with_room(self, seqs: list[Sequence], num_steps: int) -> int:
        """Return for how many of these steps the pool has room."""
        kv, num_available = self._scheduler.kv, self._scheduler.kv.pool.num_available
        if len(seqs) * kv.blocks_for(num_steps + 1) <= num_available:
            return num_steps
        low, high = 0, num_steps
        while low < high:
            middle = (low + high + 1) // 2
            need = sum(kv.blocks_for(seq.num_computed_tokens + middle) - len(seq.block_table) for seq in seqs)
            low, high = (middle, high) if need <= num_available else (low, middle - 1)
        return low
