"""Runs every step on all ranks of a model: the executor that an engine sees as one runner.

The first rank lives where the engine does, and draws the tokens. The others get each step as it is, with the tokens of
the step before: what they need to know of sampling is what it chose, so grammars, penalties and random numbers are one
rank's work, and ranks on unlike machines cannot disagree.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NoReturn

from quire.models.stages import ServableStage
from quire.outputs import SchedulerOutput, StepOutput, StoreChanges, TransferReport
from quire.runner.model_runner import ModelRunner, RunnerLost
from quire.runner.ranks.interface import GRACE_S, RankHandle, RankLost
from quire.runner.ranks.joint_store import JointStore
from quire.runner.ranks.joint_transfers import JointTransfers
from quire.tiers.store.block_store import BlockStore


class JointRunner:
    """See `Runner`.

    A step that raises on every rank, or after the ranks had done with each other, has failed, as on one rank. Where a
    rank ends, or waits for another that has given the step up, all are lost.

    Args:
        first: this process's rank.
        others: the other ranks, in order.
    """

    def __init__(self, first: ModelRunner, others: Sequence[RankHandle]) -> None:
        self.first = first
        self.batch, self.device = first.batch, first.device
        self.disk = None if first.disk is None else JointDisk(first.disk.store, self.call)
        self.transfer_worker = first.transfer_worker
        self._others = tuple(others)
        self._transfers = JointTransfers(1 + len(others))
        self._store = JointStore(1 + len(others))
        self._told: list[Callable[[float | None], Any]] = []  #: what the other ranks' stores will say
        self._drawn: dict[int, list[int]] = {}  #: by sequence, tokens of the last step that the others do not know
        self._ended: list[TransferReport] = []  #: transfers that ended with a step that failed
        self._lost: str | None = None
        self._end = weakref.finalize(self, _end_all, self._others)

    @property
    def num_moving(self) -> int:
        return self.first.num_moving + self._transfers.num_outstanding

    def execute(self, out: SchedulerOutput) -> StepOutput:
        waits = self._ask("execute", self._for_others(out))
        if self.disk is not None:
            self._store.note_claims((key for key, _ in out.claims), out.dropped_claims)
            self._told = self._told or self._ask("poll_store")  # answered by the time that it is read
        results, error = self._wait_for_all(out, waits)
        if any(result.transfers for result in results):
            self._ended += self._transfers.join([result.transfers for result in results])
        if error is not None:
            self._check_alive(error)
            self.tell("pause")  # whoever failed hears that all have ended the step
            raise error
        result = results[0]
        self._drawn = {seq_id: drawn[:1] for seq_id, drawn in zip(result.seq_ids, result.sampled, strict=True) if drawn}
        result.transfers, self._ended = self._ended, []
        result.stall_s = max(each.stall_s for each in results)
        return result

    def _wait_for_all(
        self, out: SchedulerOutput, waits: Sequence[Callable[[float | None], Any]]
    ) -> tuple[list[StepOutput], Exception | None]:
        """Run the step here, and wait for the other ranks. Returns each rank's result, an empty one where it raised,
        and the first error."""
        results: list[StepOutput] = []
        error: Exception | None = None
        for run in (lambda _: self.first.execute(out), *waits):
            try:
                results.append(run(None if error is None else GRACE_S))
            except (RankLost, TimeoutError) as lost:
                self._give_up(lost, error)
            except Exception as raised:
                error = error or raised
                results.append(StepOutput(out.step_id))
            except BaseException:  # a second Ctrl-C: the others wait in the midst of the step
                self._lost = "a step was interrupted"
                self._end()
                raise
        return results, error

    def _for_others(self, out: SchedulerOutput) -> SchedulerOutput:
        """A step as the ranks get it that draw no tokens."""
        drawn, self._drawn = self._drawn, {}
        for seq_id in out.removed_seq_ids:
            drawn.pop(seq_id, None)
        if not drawn and not out.claims and not out.dropped_claims:
            return out
        return replace(out, new_tokens={**drawn, **out.new_tokens}, claims=[], dropped_claims=[])

    def poll_store(self) -> StoreChanges | None:
        if self.disk is None:
            return None
        told, self._told = self._told or self._ask("poll_store"), []
        return self._store.join([self.first.poll_store(), *self._take(told)])

    # -- stages --------------------------------------------------------------------------------------------------------

    def add_stage(self, stage: ServableStage) -> None:
        waits = self._ask("add_stage", stage.number)
        self.first.add_stage(stage)
        self._take(waits)

    def drop_stage(self, number: int) -> None:
        self.first.drop_stage(number)
        self.tell("drop_stage", number)

    # -- the other ranks -----------------------------------------------------------------------------------------------

    def call(self, method: str, *args: Any) -> list[Any]:
        """Have all other ranks call a method. Returns their results.

        Raises:
            RunnerLost: a rank has ended.
            Exception: what one of them raised.
        """
        return self._take(self._ask(method, *args))

    def tell(self, method: str, *args: Any) -> None:
        """As `call`, without waiting, and whatever comes of it."""
        self._ask(method, *args)

    def watch(self, on_end: Callable[[str], None]) -> None:
        for rank in self._others:
            rank.watch(on_end)

    def close(self) -> None:
        """End the other ranks."""
        self._end()

    def _ask(self, method: str, *args: Any) -> list[Callable[[float | None], Any]]:
        if self._lost is not None:
            raise RunnerLost(self._lost)
        try:
            return [rank.call(method, *args) for rank in self._others]
        except RankLost as lost:
            self._give_up(lost, None)

    def _take(self, waits: Sequence[Callable[[float | None], Any]]) -> list[Any]:
        try:
            return [wait(None) for wait in waits]
        except RankLost as lost:
            self._give_up(lost, None)

    def _check_alive(self, error: Exception) -> None:
        """Where a rank has ended, what the others raise is a consequence of that."""
        for rank in self._others:
            if (why := rank.why_lost()) is not None:
                self._give_up(RankLost(why), error)

    def _give_up(self, lost: Exception, error: Exception | None) -> NoReturn:
        """The ranks do not agree any more on where they are."""
        known = next((why for rank in self._others if (why := rank.why_lost()) is not None), None)
        if known is None and error is not None:
            known = f"a step failed on one rank, and others wait for it: {type(error).__name__}: {error}"
        self._lost = known or str(lost)
        self._end()
        raise RunnerLost(self._lost) from error


class JointDisk:
    """The disk tier of all ranks, for whoever looks after documents; see `DiskLink`.

    Args:
        store: of the first rank, which also has the documents' names.
        call: see `JointRunner.call`.
    """

    def __init__(self, store: BlockStore, call: Callable[..., list[Any]]) -> None:
        self.store = _JointBlockStore(store, call)


class _JointBlockStore:
    def __init__(self, first: BlockStore, call: Callable[..., list[Any]]) -> None:
        self._first = first
        self._call = call

    def delete(self, keys: set[bytes]) -> int:
        """See `BlockStore.delete`: every rank's slices."""
        num_deleted = self._first.delete(keys)
        self._call("forget", keys)
        return num_deleted

    def label(self, name: str, first_key: bytes, last_key: bytes, num_tokens: int = 0, domain: str = "") -> None:
        """See `BlockStore.label`: the first rank's has the names."""
        self._first.label(name, first_key, last_key, num_tokens, domain)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._first, name)


def _end_all(ranks: Sequence[RankHandle]) -> None:
    for rank in ranks:
        rank.end()
