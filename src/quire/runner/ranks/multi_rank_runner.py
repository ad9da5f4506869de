"""Run every step on all ranks of a model, as one runner. The first rank, in the engine's process, draws the tokens; the
others get them with the next step, so unlike machines cannot disagree."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NoReturn

from quire.models.stages import ServableStage
from quire.outputs import BlockDifference, SchedulerOutput, StepOutput, StoreChanges, TransferReport
from quire.runner.model_runner import ModelRunner, RunnerLost
from quire.runner.ranks.interface import GRACE_S, RankHandle, RankLost
from quire.runner.ranks.merged_stores import MergedStores
from quire.runner.ranks.merged_transfers import MergedTransfers
from quire.tiers.store.block_store import BlockStore

_Wait = Callable[[float | None], Any]  # waits for a rank's answer, with a timeout in seconds


class MultiRankRunner:
    """See `Runner`. A step that raises on every rank, or after the last collective, fails as on one rank; if a rank
    ends, or waits for a failed one, all ranks are lost."""

    def __init__(self, first: ModelRunner, others: Sequence[RankHandle]) -> None:
        self.first = first
        self.batch, self.device = first.batch, first.device
        self.disk = None if first.disk is None else MultiRankDisk(first.disk.store, self.call)
        self.transfer_worker = first.transfer_worker
        self._others = tuple(others)
        self._transfers = MergedTransfers(1 + len(others))
        self._stores = MergedStores(1 + len(others))
        self._store_waits: list[_Wait] = []  #: pending answers of the other ranks' stores
        self._drawn: dict[int, list[int]] = {}  #: by sequence, tokens that the other ranks do not know yet
        self._ended: list[TransferReport] = []  #: transfers that ended with a failed step
        self._lost: str | None = None
        self._end = weakref.finalize(self, _end_all, self._others)

    @property
    def num_moving(self) -> int:
        return self.first.num_moving + self._transfers.num_outstanding

    def execute(self, out: SchedulerOutput) -> StepOutput:
        waits = self._start_calls("execute", self._for_others(out))
        if self.disk is not None:
            self._stores.update_claims((key for key, _ in out.claims), out.dropped_claims)
            self._store_waits = self._store_waits or self._start_calls("poll_store")  # answered by the next poll
        results, error = self._execute_all(out, waits)
        if any(result.transfers for result in results):
            self._ended += self._transfers.merge([result.transfers for result in results])
        if error is not None:
            if any(rank.why_lost() is not None for rank in self._others):
                self._give_up(error, error)  # which may be a consequence
            self.notify("pause")  # a failed rank learns that all ranks have ended the step
            raise error
        result = results[0]
        sampled = zip(result.seq_ids, result.sampled, strict=True)
        # Of a prompt that forks, the others are new sequences.
        self._drawn = {seq_id: drawn if seq_id in out.drafts else drawn[:1] for seq_id, drawn in sampled if drawn}
        result.transfers, self._ended = self._ended, []
        result.stall_s = max(each.stall_s for each in results)
        return result

    def _execute_all(self, out: SchedulerOutput, waits: Sequence[_Wait]) -> tuple[list[StepOutput], Exception | None]:
        """Run the step on all ranks. Returns each rank's result (empty after an error) and the first error."""
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
            except BaseException:  # a second Ctrl-C: the other ranks wait in the middle of the step
                self._lost = "a step was interrupted"
                self._end()
                raise
        return results, error

    def _for_others(self, out: SchedulerOutput) -> SchedulerOutput:
        drawn, self._drawn = self._drawn, {}
        if not drawn and not out.claims and not out.dropped_claims:
            return out
        return replace(out, new_tokens={**drawn, **out.new_tokens}, claims=[], dropped_claims=[])

    def poll_store(self) -> StoreChanges | None:
        if self.disk is None:
            return None
        waits, self._store_waits = self._store_waits or self._start_calls("poll_store"), []
        return self._stores.merge([self.first.poll_store(), *self._wait_for(waits)])

    def compare_blocks(self, pairs: Sequence[tuple[int, int, bool]]) -> list[BlockDifference | None]:
        waits = self._start_calls("compare_blocks", pairs)
        of_ranks = [self.first.compare_blocks(pairs), *self._wait_for(waits)]
        return [next(filter(None, each), None) for each in zip(*of_ranks, strict=True)]

    # -- stages --------------------------------------------------------------------------------------------------------

    def add_stage(self, stage: ServableStage) -> None:
        waits = self._start_calls("add_stage", stage.number)
        self.first.add_stage(stage)
        self._wait_for(waits)

    def drop_stage(self, number: int) -> None:
        self.first.drop_stage(number)
        self.notify("drop_stage", number)

    # -- adapters ------------------------------------------------------------------------------------------------------

    def load_adapter(self, number: int, directory: str) -> str:
        """Load an adapter on all ranks, or on none."""
        try:
            waits = self._start_calls("load_adapter", number, directory)
            digests = {self.first.load_adapter(number, directory), *self._wait_for(waits)}
            if len(digests) > 1:
                raise ValueError(f"{directory} changed while it was loaded, or differs on another machine")
        except ValueError:
            self.drop_adapter(number)
            raise
        return digests.pop()

    def drop_adapter(self, number: int) -> None:
        self.first.drop_adapter(number)
        self.notify("drop_adapter", number)

    # -- the other ranks -----------------------------------------------------------------------------------------------

    def call(self, method: str, *args: Any) -> list[Any]:
        """Call a method on all other ranks; raises a rank's error, or RunnerLost if one has ended."""
        return self._wait_for(self._start_calls(method, *args))

    def notify(self, method: str, *args: Any) -> None:
        """As `call`, without waiting; results and errors are dropped."""
        self._start_calls(method, *args)

    def watch(self, on_end: Callable[[str], None]) -> None:
        for rank in self._others:
            rank.watch(on_end)

    def close(self) -> None:
        """End the other ranks."""
        self._end()

    def _start_calls(self, method: str, *args: Any) -> list[_Wait]:
        if self._lost is not None:
            raise RunnerLost(self._lost)
        try:
            return [rank.call(method, *args) for rank in self._others]
        except RankLost as lost:
            self._give_up(lost, None)

    def _wait_for(self, waits: Sequence[_Wait]) -> list[Any]:
        try:
            return [wait(None) for wait in waits]
        except RankLost as lost:
            self._give_up(lost, None)

    def _give_up(self, lost: Exception, error: Exception | None) -> NoReturn:
        """End all ranks: they are no longer at the same step."""
        reason = next((reason for rank in self._others if (reason := rank.why_lost()) is not None), None)
        if reason is None and error is not None:
            reason = f"a step failed on one rank, and others wait for it: {type(error).__name__}: {error}"
        self._lost = reason or str(lost)
        self._end()
        raise RunnerLost(self._lost) from error


class MultiRankDisk:
    """The disk tier of all ranks (see `DiskLink`). The first rank's `store` also keeps the documents' labels."""

    def __init__(self, store: BlockStore, call: Callable[..., list[Any]]) -> None:
        self.store = _MultiRankBlockStore(store, call)


class _MultiRankBlockStore:
    def __init__(self, first: BlockStore, call: Callable[..., list[Any]]) -> None:
        self._first = first
        self._call = call

    def delete(self, keys: set[bytes]) -> int:
        """Delete blocks of all ranks; see `BlockStore.delete`."""
        num_deleted = self._first.delete(keys)
        self._call("forget", keys)
        return num_deleted

    def label(self, name: str, first_key: bytes, last_key: bytes, num_tokens: int = 0, domain: str = "") -> None:
        """See `BlockStore.label`."""
        self._first.label(name, first_key, last_key, num_tokens, domain)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._first, name)


def _end_all(ranks: Sequence[RankHandle]) -> None:
    for rank in ranks:
        rank.end()
