"""Preemption and resumption of one scheduler's requests, as the recovery policy decides. `PrefixLoader` resumes."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from collections.abc import Sequence as Seq

from quire.core.decisions.evictions import forecast_evictions
from quire.core.decisions.load_or_compute import LoadOrCompute, RecoveryMode, RecoveryPlan, Victim
from quire.core.decisions.recovery_log import RecoveryLog, RecoveryRecord
from quire.core.decisions.recovery_policy import RecoveryPolicy
from quire.core.kv_cache_manager import KVCacheManager
from quire.core.request import Request, RequestStatus, Sequence
from quire.core.swap_manager import SwapManager
from quire.outputs import TransferReport


class Recovery:
    """Preempts and resumes; `policy` may be replaced between steps."""

    def __init__(
        self, policy: RecoveryPolicy, kv: KVCacheManager, swap: SwapManager, decider: LoadOrCompute, log: RecoveryLog
    ) -> None:
        self.policy = policy
        self.log = log
        self._kv, self._swap, self._decider = kv, swap, decider

    def begin_step(self, requests: Mapping[str, Request]) -> None:
        """Before a step is made, cancel saves that are late by what has been measured since."""
        self.log.begin_step()
        if self.policy.always_loads or not self._swap.transfers:
            return
        for record in self.log.open_records():
            if not record.num_saving:
                continue
            for seq in requests[record.request_id].unfinished:
                span = self._swap.unsaved(seq) if seq.swapped_keys else None
                if span is None or not self._decider.is_save_late(span.start, span.end):
                    continue
                if self._swap.cancel_saves(seq, span):
                    record.fell_back = True

    def end_step(self, reports: Iterable[TransferReport], requests: Mapping[str, Request]) -> None:
        """Record the transfers of a step, and the requests that are back where they were."""
        self.log.record_transfers(reports)
        for record in self.log.open_records():
            if _is_back(requests[record.request_id]):
                self.log.complete(record.request_id)

    def choose_victim(self, running: Seq[Request]) -> Request | None:
        """The request to preempt, from those that may be (oldest first); None if none holds blocks."""
        candidates = [request for request in running if self._has_blocks(request)]
        return self.policy.choose_victim(candidates) if candidates else None

    def save(self, request: Request, step_id: int, running: Seq[Request]) -> None:
        """Have the swap tier keep what a victim needs to resume; one that is still loading saves nothing new. `running`
        includes the victim."""
        freed = self._freed_by(request)
        forecast = self._forecast_evictions(request, running)
        is_loading = any(seq.loading is not None for seq in request.unfinished)
        if is_loading:
            before = self.log.open_record(request.request_id)
            was_swapped = before is not None and before.mode is not RecoveryMode.RECOMPUTE
            plan = RecoveryPlan(RecoveryMode.SWAP if was_swapped else RecoveryMode.RECOMPUTE)
        elif not self._can_be_saved(request):
            plan = RecoveryPlan(RecoveryMode.RECOMPUTE)
        else:
            plan = self.policy.plan(self._describe(request, freed, forecast), self._decider)
        for seq in request.unfinished:
            self._swap.release(seq)
        save_ids: list[int] = []
        if plan.mode is not RecoveryMode.RECOMPUTE:
            save_ids = self._swap.swap_out(request.unfinished, plan.keep_from, set() if is_loading else freed)
        num_tokens = max(max(seq.num_computed_tokens, seq.num_lost_tokens) for seq in request.unfinished)
        record = self.log.open(request.request_id, step_id, num_tokens, plan, save_ids)
        self._decider.evictions.observe_preemption(is_repeated=request.num_preemptions > 0)
        if request.width == 1 and not is_loading:
            full = self._kv.full_blocks(request.unfinished[0])
            record.num_full, record.num_freed = len(full), len(freed.intersection(full))
            record.forecast_evictions = forecast

    def resume(self, seq: Sequence, num_found: int) -> RecoveryRecord | None:
        """Record how many blocks a sequence has found on the device. Returns its request's open record."""
        record = self.log.open_record(seq.request.request_id)
        if record is not None and record.num_freed > 0:
            num_lost = max(0, record.num_full - num_found)
            self._decider.evictions.observe(record.num_freed, num_lost, record.forecast_evictions)
        return record

    def _has_blocks(self, request: Request) -> bool:
        """Whether preempting a request would free blocks now, also if some of its blocks are being loaded."""
        if any(seq.loading is not None for seq in request.unfinished):
            return bool(self._freed_by(request))
        return any(seq.block_table for seq in request.unfinished)

    def _freed_by(self, request: Request) -> set[int]:
        """The blocks that only this request holds."""
        holds: dict[int, int] = {}
        for seq in request.unfinished:
            for block in seq.block_table:
                holds[block] = holds.get(block, 0) + 1
        ref_counts = self._kv.pool.ref_counts
        return {block for block, count in holds.items() if ref_counts[block] == count}

    def _forecast_evictions(self, victim: Request, running: Seq[Request]) -> float:
        """Blocks that other requests take before a victim resumes; without prefix caching, they take all at once."""
        if not self._kv.enable_prefix_caching:
            return math.inf
        others = (seq for request in running if request is not victim for seq in request.unfinished)
        return forecast_evictions(others, self._kv.block_size)

    def _can_be_saved(self, request: Request) -> bool:
        """Whether all blocks have all KV: behind a window they may not. States are saved at the last token only. A mean
        needs the hidden states of all tokens again."""
        if request.sampling_params.pooling == "mean":
            return False
        tables = [seq.block_table for seq in request.unfinished]
        return self._kv.num_state_records > 0 or not any(self._kv.pool.has_thin(table) for table in tables)

    def _describe(self, request: Request, freed: set[int], forecast: float) -> Victim:
        kv, swap = self._kv, self._swap
        full: dict[int, bytes] = {}  # distinct full blocks, with their keys
        for seq in request.unfinished:
            full |= kv.filled_blocks(seq)
        first_table = kv.full_blocks(request.unfinished[0])
        num_shared = next((at for at, block in enumerate(first_table) if block in freed), len(first_table))
        return Victim(
            request=request,
            num_tokens=len(full) * kv.block_size
            + sum(seq.num_computed_tokens % kv.block_size for seq in request.unfinished),
            num_shared=num_shared,
            is_unsaved=[block in freed and not swap.is_kept(key) for block, key in full.items()],
            free_slots=swap.tier.num_available,
            lost=self._decider.evictions.expect(len(full) - num_shared, forecast) if request.width == 1 else (),
            probe_s=self.log.probe_budget_s,
            is_link_fresh=self.log.is_link_fresh,
            num_state_records=sum(len(swap.unsaved_state(seq)) for seq in request.unfinished),
        )


def _is_back(request: Request) -> bool:
    """Whether a preempted request has the KV of all tokens again that it had."""
    return request.status is RequestStatus.RUNNING and all(
        seq.loading is None and seq.num_computed_tokens >= seq.num_lost_tokens
        for seq in request.unfinished
        if seq.candidates is None
    )
