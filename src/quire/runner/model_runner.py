"""Run one step on one device. Only this file turns the scheduler's lists into arrays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import compress
from pathlib import Path
from typing import Protocol
from weakref import WeakValueDictionary

import numpy as np

from quire.attention.interface import AttentionBackend
from quire.models.base import CausalLM
from quire.models.layers import select_rows
from quire.models.request_adapters import RequestAdapters
from quire.models.stages import ServableStage
from quire.ops.arrays import Array, as_numpy, as_tensor, is_numpy, to_host, widen
from quire.outputs import BlockDifference, BlockTransfer, NewSequence, SchedulerOutput, StepOutput, StoreChanges
from quire.runner.batch import Batch, InputBatch
from quire.runner.drafter import Drafter
from quire.runner.kv_cache import KVCache
from quire.runner.row_state import RowState
from quire.runner.sampler import Sampler, attempt, describe_failure, token_logprobs
from quire.runner.sampling_rules import SamplingRules
from quire.structured.matcher import Grammars
from quire.tiers.disk_link import DiskLink
from quire.tiers.streams import Done
from quire.tiers.transfer_worker import TransferWorker

_IDLE_WAIT_S = 0.05  # longest wait for transfers if there is nothing to compute
_LOGITS_BYTES = 64 * 2**20  # limit of float32 logits at once, for long prompts' logprobs and wide batches


class RunnerLost(RuntimeError):
    """The runner is lost with the KV of all requests; the engine must be made again."""


class KVStore(Protocol):
    """The disk tier's store, for document management."""

    def delete(self, keys: set[bytes]) -> int:
        """See `BlockStore.delete`."""
        ...

    def label(self, name: str, first_key: bytes, last_key: bytes, num_tokens: int = 0, domain: str = "") -> None:
        """See `BlockStore.label`."""
        ...


class DiskAccess(Protocol):
    """The disk tier, as the engine sees it."""

    @property
    def store(self) -> KVStore: ...


class Runner(Protocol):
    """Executes the engine's steps."""

    @property
    def disk(self) -> DiskAccess | None:
        """The disk tier, if there is one."""
        ...

    def watch(self, on_end: Callable[[str], None]) -> None:
        """Call `on_end` with a reason, from any thread, if a rank ends by itself."""
        ...

    def execute(self, out: SchedulerOutput) -> StepOutput:
        """Save, clear, copy, start loads, cancel, compute: in this order. Saves have read their blocks on return; loads
        end later. Finished transfers are reported with this step, or a later one if it fails; a step without sequences
        waits briefly for one. RunnerLost if no step can be executed any more; after another error, the step's sequences
        must be removed before they are sent again."""
        ...

    def poll_store(self) -> StoreChanges | None:
        """Return the disk tier's changes since the last call; None if there are none, or no disk tier."""
        ...

    def compare_blocks(self, pairs: Sequence[tuple[int, int, bool]]) -> list[BlockDifference | None]:
        """Compare pairs of KV blocks bit by bit, on all ranks: whole (True), or without the KV of layers with a window
        and states. None for equal ones."""
        ...


class ModelRunner:
    """See `Runner`. Only one rank `draws` tokens; the others get them in `SchedulerOutput.new_tokens`."""

    def __init__(
        self,
        model: CausalLM,
        cache: KVCache,
        attention: AttentionBackend,
        batch: InputBatch,
        vocab_size: int,
        transfer_worker: TransferWorker | None = None,
        disk: DiskLink | None = None,
        grammars: Grammars | None = None,
        *,
        draws: bool = True,
    ) -> None:
        self.model = model
        self.cache = cache
        self.attention = attention
        self.batch = batch
        self.transfer_worker = transfer_worker
        self.disk = disk
        self._is_numpy = is_numpy(model.dtype)
        self.device = cache.device
        self.stages: dict[int, ServableStage] = {}  #: stages in use by number; empty for a model without stages
        self.adapters = RequestAdapters(model)
        self.grammars = grammars
        self.sampler = Sampler(vocab_size, grammars)
        self.drafter: Drafter | None = None
        self._states: list[RowState | None] = [None] * len(batch.info)
        self._rules: WeakValueDictionary[int, SamplingRules] = WeakValueDictionary()  #: by id of their parameters
        self._unsampled: dict[int, np.ndarray] = {}  #: logits of sequences whose masks take long, by id
        self._sums: dict[int, np.ndarray] = {}  #: of a row's hidden states, for a mean
        self._draws = draws
        self._max_logits_rows = max(1, _LOGITS_BYTES // (4 * vocab_size))
        if cache.records is not None:
            of = cache.records.of
            for link in self._links():
                link.row_of = lambda block, part: int(of[block, part])

    @property
    def num_moving(self) -> int:
        """Pending transfers from and to the swap tier."""
        return 0 if self.transfer_worker is None else self.transfer_worker.num_outstanding

    def add_stage(self, stage: ServableStage) -> None:
        """Add a stage; steps may now use it, alternating with others."""
        self.stages[stage.number] = stage

    def drop_stage(self, number: int) -> None:
        """Drop an unused stage. Its own layers are freed at the next step of another stage."""
        del self.stages[number]

    def load_adapter(self, number: int, directory: str) -> str:
        """See `RequestAdapters.load`."""
        return self.adapters.load(number, Path(directory))

    def drop_adapter(self, number: int) -> None:
        """See `RequestAdapters.drop`."""
        self.adapters.drop(number)

    def execute(self, out: SchedulerOutput) -> StepOutput:
        for seq_id in out.removed_seq_ids:
            self._unsampled.pop(seq_id, None)
        try:
            work = self.batch.apply(out)
            self.cache.copy_states(self.batch.pop_state_moves())
            self.cache.clear_slots(work.rejected)
        finally:
            staged = self._begin("save", out)
        try:
            copies = self.cache.read(work.copy_src)  # which may be taken by others in this step
            self.cache.give_back(out.returned)
            self.cache.clear(work.fresh)
            self.cache.write(work.copy_dst, copies)
            if self.drafter is not None:
                self.drafter.apply(work, out)
        finally:  # requests need their blocks even if this step fails
            self.cache.prepare_loads(each for each in out.transfers if each.kind == "load")
            self._begin("load", out)
            for link in self._links():
                link.cancel(out.cancelled)  # some may belong to this step
            if self.disk is not None:
                self.disk.apply_requests(out)
        result = StepOutput(out.step_id)
        unsampled, self._unsampled = self._unsampled, {}
        if out.seq_ids:
            self._compute(out, result)
        if unsampled:
            self._draw([*unsampled], np.stack([*unsampled.values()]), result)
        if out.wants_forced and self.grammars is not None:
            self._find_forced(result)
        self._collect_reports(result, wait=not (out.seq_ids or unsampled))
        result.stall_s = sum(wait() for wait in staged) + self.model.take_waited_s()
        return result

    def compare_blocks(self, pairs: Sequence[tuple[int, int, bool]]) -> list[BlockDifference | None]:
        return [self.cache.compare(*pair) for pair in pairs]

    def poll_store(self) -> StoreChanges | None:
        return None if self.disk is None else self.disk.poll()

    def watch(self, on_end: Callable[[str], None]) -> None:
        """Do nothing: this rank ends with its engine."""

    def _links(self) -> list[TransferWorker]:
        links = (self.transfer_worker, None if self.disk is None else self.disk.worker)
        return [link for link in links if link is not None]

    def _begin(self, kind: str, out: SchedulerOutput) -> list[Done]:
        """Submit the transfers of one kind to their links. Returns waits for the staged ones."""
        staged: list[Done] = []
        if not out.transfers:
            return staged
        by_tier: dict[str, list[BlockTransfer]] = {}
        for transfer in out.transfers:
            if transfer.kind == kind:
                by_tier.setdefault(transfer.tier, []).append(transfer)
        if self.transfer_worker is not None and "host" in by_tier:
            staged.append(self.transfer_worker.submit(by_tier["host"]))
        if self.disk is not None and "disk" in by_tier:
            staged.append(self.disk.submit(by_tier["disk"], must_code=out.codes_saves))
        return staged

    def _collect_reports(self, result: StepOutput, *, wait: bool) -> None:
        if self.transfer_worker is not None:
            wait_here = wait and self.disk is None
            result.transfers = self.transfer_worker.poll(wait=wait_here, timeout_s=_IDLE_WAIT_S)
        if self.disk is not None:
            result.transfers += self.disk.worker.poll()
            if wait and not result.transfers and self.disk.has_reports.wait(_IDLE_WAIT_S):
                self._collect_reports(result, wait=False)
            self.disk.has_reports.clear()

    def _compute(self, out: SchedulerOutput, result: StepOutput) -> None:
        if self.stages:
            self.model.switch_to(self.stages[out.stage])
        if self.drafter is not None:
            result.drafting = self.drafter.propose(self.batch, out.drafts, self._states.__getitem__)
        out = self.batch.by_adapter(out)
        batch = self.batch.build(out)
        self.attention.plan(batch.attention)
        infos = [(i, info) for i, row in enumerate(batch.rows.tolist()) if (info := self.batch.info[row]) is not None]
        scored = [
            (i, info) for i, info in infos if info.sampling_params.prompt_logprobs is not None and info.index == 0
        ]
        pooled = [(i, info.sampling_params.pooling) for i, info in infos if info.sampling_params.pooling is not None]
        rows = batch.logit_rows() if len(batch.sampled) < len(batch.token_ids) else None
        needs_all = self.drafter is not None and self.drafter.reads_hidden_states
        needs_all = needs_all or bool(scored) or any(pooling == "mean" for _, pooling in pooled)
        computed = None if needs_all else rows
        hidden = self._hidden_states(batch, computed)
        if self.drafter is not None:
            self.drafter.end_step(batch, hidden)
        self._score_prompts(scored, batch, out, hidden, result)
        for i, pooling in pooled:
            if (vector := self._pool(i, pooling, batch, hidden, computed)) is not None:
                result.pooled[out.seq_ids[i]] = vector.astype("<f4").tobytes()
        if rows is not None and computed is None:
            hidden = select_rows(hidden, self._to_device(rows))
        self._sample(batch, out, hidden, result)

    def _hidden_states(self, batch: Batch, rows: np.ndarray | None) -> Array:
        """Run the model. Returns the hidden states of all tokens, or of `rows`."""
        ids, positions = self._to_device(batch.token_ids), self._to_device(batch.positions)
        wanted = None if rows is None else self._to_device(rows)
        numbers = self.batch.adapters[batch.rows]
        if not numbers.any():
            return self.model(ids, positions, self.attention.attend, rows=wanted)
        with self.adapters.on(np.repeat(numbers, np.diff(batch.attention.query_start_loc)), rows):
            return self.model(ids, positions, self.attention.attend, rows=wanted)

    def _to_device(self, array: np.ndarray) -> Array:
        return array if self._is_numpy else as_tensor(array).to(self.device, non_blocking=True)

    def _sample(self, batch: Batch, out: SchedulerOutput, hidden: Array, result: StepOutput) -> None:
        """Draw the next tokens of sequences whose last known token was computed; `hidden` has a row for each, and for
        each of its draft tokens."""
        seq_ids = [out.seq_ids[i] for i in batch.sampled.tolist()]
        counts = [1 + len(out.drafts.get(seq_id, ())) for seq_id in seq_ids] if out.drafts else [1] * len(seq_ids)
        at = row = 0
        while at < len(seq_ids):
            end, num_rows = at + 1, counts[at]
            while end < len(seq_ids) and num_rows + counts[end] <= self._max_logits_rows:
                num_rows += counts[end]
                end += 1
            logits = self.model.compute_logits(hidden[row : row + num_rows])
            if self._draws:
                host = as_numpy(logits) if self.device == "cpu" else logits
                if num_rows == end - at:
                    self._draw(seq_ids[at:end], host, result)
                else:
                    rows = (np.cumsum(counts[at:end]) - counts[at:end]).tolist()
                    self._verify(dict(zip(seq_ids[at:end], rows, strict=True)), out.drafts, host, result)
            at, row = end, row + num_rows

    def _verify(self, row_of: dict[int, int], drafts: dict[int, list[int]], logits: Array, result: StepOutput) -> None:
        """Draw for sequences with the rows of their last known tokens in `logits`, and go on to the next row of those
        that have drawn their next draft token."""
        drawn: dict[int, list[int]] = {}
        at = StepOutput(result.step_id)
        self._draw([*row_of], logits[[*row_of.values()]], at)
        while at.seq_ids or at.failed:
            for seq_id, tokens in zip(at.seq_ids, at.sampled, strict=True):
                drawn.setdefault(seq_id, []).extend(tokens)
            for seq_id, entries in at.logprobs.items():
                result.logprobs.setdefault(seq_id, []).extend(entries)
            result.failed |= at.failed
            right = [each for each in at.seq_ids if each in drafts and self._is_right(each, drawn[each], drafts[each])]
            at = StepOutput(result.step_id)
            if right:
                self._draw(right, logits[[row_of[each] + len(drawn[each]) for each in right]], at, is_draft=True)
        for seq_id, tokens in drawn.items():
            result.seq_ids.append(seq_id)
            result.sampled.append(tokens)
            if seq_id in drafts:
                self.batch.end_drafts(self.batch.row_of[seq_id], len(tokens) - 1)
        self.cache.copy_states(self.batch.pop_state_moves())

    def _is_right(self, seq_id: int, drawn: list[int], draft: list[int]) -> bool:
        """Whether the last drawn token is a draft token, and others may follow."""
        info = self.batch.info[self.batch.row_of[seq_id]]
        length, last = len(drawn), drawn[-1]
        return (
            length <= len(draft) and last == draft[length - 1] and info is not None and last not in info.stop_token_ids
        )

    def _draw(self, seq_ids: list[int], logits: Array, result: StepOutput, *, is_draft: bool = False) -> None:
        """Draw from logits, except for sequences whose masks take long: they sit out until a later step. With
        `is_draft`, a row that fails or takes long is left for the next step, when its sequence may have ended."""
        rows = [self.batch.row_of[seq_id] for seq_id in seq_ids]
        states = [self._state(row, seq_id, result.failed) for row, seq_id in zip(rows, seq_ids, strict=True)]
        matched = [(i, state.matcher) for i, state in enumerate(states) if state is not None and state.matcher]
        if matched and self.grammars is not None:
            self.grammars.begin_masks([matcher for _, matcher in matched if not (is_draft and matcher.is_slow)])
            for i, matcher in matched:
                if matcher.words is None:
                    states[i] = None
                    if not is_draft:
                        self._unsampled[seq_ids[i]] = to_host(logits[i]).copy()
        if len(ready := [state for state in states if state is not None]) < len(states):
            is_ready = [state is not None for state in states]
            logits, seq_ids, rows = logits[is_ready], [*compress(seq_ids, is_ready)], [*compress(rows, is_ready)]
        drawn_by_row = zip(seq_ids, rows, ready, *self.sampler.sample(logits, ready), strict=True)
        for seq_id, row, state, drawn, entries, error in drawn_by_row:
            if error is not None:
                if is_draft:
                    continue
                result.failed[seq_id] = error
            elif drawn:
                self.batch.append_token(row, drawn[0])
                try:  # not `attempt`: a call for every row and step
                    state.append(drawn[0])
                except Exception as failure:
                    result.failed[seq_id] = describe_failure(failure)
            if seq_id in result.failed:
                continue
            result.seq_ids.append(seq_id)
            result.sampled.append(drawn)
            if entries is not None:
                result.logprobs[seq_id] = entries

    def _find_forced(self, result: StepOutput) -> None:
        for seq_id in result.seq_ids:
            state = self._states[self.batch.row_of[seq_id]]
            if state is not None and state.matcher is not None and (forced := state.matcher.forced()):
                result.forced[seq_id] = forced

    def _state(self, row: int, seq_id: int, failed: dict[int, str]) -> RowState | None:
        """Return the state of a row; None if its sequence is among the `failed`."""
        info = self.batch.info[row]
        assert info is not None
        state = self._states[row]
        if state is None or state.info is not info:
            state = self._states[row] = attempt(failed, seq_id, self._make_state, info)
        return None if seq_id in failed else state

    def _make_state(self, info: NewSequence) -> RowState:
        key = id(info.sampling_params)  # the rules hold them
        rules = self._rules.get(key) or SamplingRules(info)
        self._rules[key] = rules
        return RowState(info, self.grammars, rules)

    def _pool(self, i: int, pooling: str, batch: Batch, hidden: Array, rows: np.ndarray | None) -> np.ndarray | None:
        """Return the pooled hidden states of a prompt, None while its end is not computed. `hidden` has a row for each
        token, or of `rows`."""
        (first, end), row = batch.attention.query_start_loc[i : i + 2].tolist(), int(batch.rows[i])
        is_complete = i in batch.sampled
        if pooling == "last":
            at = end - 1 if rows is None else int(np.searchsorted(rows, end - 1))
            return widen(to_host(hidden[at])) if is_complete else None
        start, own = int(batch.positions[first]), widen(to_host(hidden[first:end])).astype(np.float64)
        # Row by row, so that chunks change no bit.
        self._sums[row] = np.add.reduce(np.vstack([self._sums[row], own]) if start else own)
        return self._sums[row] / (start + end - first) if is_complete else None

    def _score_prompts(
        self,
        scored: list[tuple[int, NewSequence]],
        batch: Batch,
        out: SchedulerOutput,
        hidden: Array,
        result: StepOutput,
    ) -> None:
        """Add log-probabilities of prompt tokens, in slices of bounded size; `hidden` has a row for each token."""
        for i, info in scored:
            first, end = batch.attention.query_start_loc[i : i + 2].tolist()
            position = int(batch.positions[first]) + 1  # the first token that these rows predict
            num_scored = min(end - first, info.num_prompt_tokens - position)
            entries = result.prompt_logprobs.setdefault(out.seq_ids[i], []) if num_scored > 0 else []
            for at in range(0, num_scored, self._max_logits_rows):
                size = min(self._max_logits_rows, num_scored - at)
                logits = self.model.compute_logits(hidden[first + at : first + at + size])
                if not self._draws:
                    continue
                targets = self.batch.token_ids[batch.rows[i], position + at : position + at + size].tolist()
                count = info.sampling_params.prompt_logprobs or 0
                found = attempt(result.failed, out.seq_ids[i], token_logprobs, to_host(logits), targets, count)
                entries.extend((position + at + j, entry) for j, entry in enumerate(found or ()))
