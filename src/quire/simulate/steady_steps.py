"""Steps that are all alike, made at once: most of a simulated run, and so most of its speed.

Where every running sequence goes on by one token a step, and nobody comes, goes or waits for blocks, all that the
scheduler would decide is to go on. What it would have come to is done here in a small part of the time.
"""

from __future__ import annotations

from collections.abc import Sequence as Seq

from quire.core.request import Sequence
from quire.core.scheduler import Scheduler


class SteadySteps:
    """The steps of one scheduler that follow from the last one."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._ids: Seq[int] = []  #: the runner's, at the last look
        self._seqs: list[Sequence] = []  #: these sequences, where nothing of them is to be decided
        self._first_end = 0  #: the step in which the first of them ends

    def ahead(self, ids: Seq[int], most: int) -> tuple[list[Sequence], int]:
        """The sequences of the steps that follow, and how many of these steps there are, of at most so many.

        Args:
            ids: of the sequences that the runner has in its batch; the same list for as long as that is the same.
            most: steps.
        """
        scheduler = self._scheduler
        if len(ids) != len(scheduler.running) or not self._may_follow():
            return [], 0
        if ids is not self._ids:  # another batch than at the last look
            self._ids, self._seqs, self._first_end = ids, [], 0
            seqs = self._sequences()
            # A request that was just let in may stand before others from the next step on.
            if seqs is not None and [seq.seq_id for seq in seqs] == ids:
                left = min([seq.num_tokens_at_end - len(seq.token_ids) for seq in seqs])
                self._seqs, self._first_end = seqs, scheduler.num_steps + left
        most = min(most, self._first_end - scheduler.num_steps - 1)
        return (self._seqs, most) if most > 1 else ([], 0)

    def _may_follow(self) -> bool:
        """Whether nobody comes, goes, waits for blocks or is admitted before one of the running requests ends."""
        scheduler = self._scheduler
        config, running, waiting = scheduler.config, scheduler.running, scheduler.waiting
        if not running or scheduler.aside or scheduler.disk is not None or scheduler.stages.older is not None:
            return False
        if scheduler.swap.num_under_way or scheduler.has_news or len(running) > config.max_num_batched_tokens:
            return False
        if not waiting:
            return True
        # All seats are taken, which is looked at before all else; and nothing is to be loaded meanwhile.
        is_full = scheduler.num_running_seqs + waiting[0].width > config.max_num_seqs
        return is_full and waiting[0].is_settled and not scheduler.swap.has_blocks

    def _sequences(self) -> list[Sequence] | None:
        """The running sequences, where each of them goes on by one token a step until it ends; None where one may not.

        That stays so for as long as they run together and get a token each.
        """
        seqs = []
        for request in self._scheduler.running:
            seq = request.stream
            if seq is None or len(seq.token_ids) != seq.num_computed_tokens + 1:
                return None
            seqs.append(seq)
        return seqs

    def make(self, seqs: list[Sequence], num_steps: int, token_id: int) -> int:
        """Make so many steps at once, each of which brings every one of these sequences the same token.

        Args:
            seqs: what `ahead` has said.
            num_steps: none of them ends within.
            token_id: ends none of them.

        Returns:
            How many steps there were: fewer where the pool has no room for more.
        """
        context = sum([seq.num_computed_tokens for seq in seqs])
        more = [token_id] * num_steps
        for seq in seqs:
            seq.token_ids += more
        num_made = self._append_in_turns(seqs, num_steps)
        if num_made < num_steps:
            for seq in seqs:
                del seq.token_ids[num_made - num_steps :]
        if num_made:
            self._scheduler.count_steps(num_made, len(seqs), context + (num_made - 1) * len(seqs))
        return num_made

    def _append_in_turns(self, seqs: list[Sequence], num_steps: int) -> int:
        """As `append_to_stream` for each of these in their order, so many times, with the same outcome.

        Returns:
            The number of steps for which the pool has room.
        """
        kv, size, num_seqs = self._scheduler.kv, self._scheduler.kv.block_size, len(seqs)
        turns: list[int] = []  # of those that need a block, or fill one: by their step, and by their place in it
        starts = [seq.num_computed_tokens for seq in seqs]
        for place, start in enumerate(starts):
            turns += range(-start % size * num_seqs + place, num_steps * num_seqs, size * num_seqs)
            if size > 1:
                turns += range(-(start + 1) % size * num_seqs + place, num_steps * num_seqs, size * num_seqs)
        turns.sort()
        left = kv.pool.num_available
        if len(turns) > left:  # are there so many that need one?
            for step, place in (divmod(turn, num_seqs) for turn in turns):
                if (starts[place] + step) % size == 0:
                    left -= 1
                    if left < 0:
                        num_steps = step
                        break
        num_appended = 0
        for turn in turns:
            step, place = divmod(turn, num_seqs)
            if step >= num_steps:
                break
            seqs[place].num_computed_tokens = starts[place] + step
            kv.append_to_stream(seqs[place])
            num_appended += 1
        for seq, start in zip(seqs, starts, strict=True):
            seq.num_computed_tokens = start + num_steps
        kv.num_kv_tokens += num_steps * num_seqs - num_appended
        return num_steps
