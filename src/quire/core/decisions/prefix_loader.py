"""Begin or resume sequences with blocks from other tiers: the KV directory and swapped blocks are the same case."""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass, field, replace

from quire.core.decisions.load_or_compute import LoadOrCompute
from quire.core.decisions.recovery import Recovery
from quire.core.kv_cache_manager import KVCacheManager
from quire.core.request import Sequence
from quire.core.swap_manager import SwapManager
from quire.outputs import OTHER_PROCESS

_NUM_DECISIONS = 8


@dataclass(slots=True)
class PrefixDecision:
    """How a request read a prefix that other tiers had."""

    request_id: str
    num_tokens: int
    way: str  #: load, compute or both
    predicted: dict[str, float] = field(default_factory=dict)  #: seconds to the first token, by pure way
    seconds: float | None = None  #: measured; None before the request ends


class PrefixLoader:
    """Begins and resumes sequences as `LoadOrCompute` decides. `ways` counts prefixes in other tiers by decision: load,
    compute, both, or ahead (`Lookahead`). `decisions` has the latest ones."""

    def __init__(self, kv: KVCacheManager, swap: SwapManager, decider: LoadOrCompute, recovery: Recovery) -> None:
        self._kv = kv
        self._swap = swap
        self._decider = decider
        self._recovery = recovery
        self._loading: dict[int, Sequence] = {}  #: by seq_id, sequences whose loads may be cancelled
        self.ways: Counter[str] = Counter()
        self.decisions: deque[PrefixDecision] = deque(maxlen=_NUM_DECISIONS)

    def begin_step(self) -> None:
        """Before a step is made, cancel loads that computing would overtake."""
        size = self._kv.block_size
        for seq_id, seq in list(self._loading.items()):
            if seq.loading is None:
                del self._loading[seq_id]
            elif (rest := self._swap.unloaded(seq)) is not None:
                first = seq.loading.start // size
                sources = seq.loading.sources[rest.start - first : rest.end - first]
                tiers = ["disk" if source == OTHER_PROCESS else source for source in sources]
                is_late = self._decider.is_load_late(seq.num_computed_tokens, rest.end * size, tiers)
                if is_late and self._swap.cancel_loads(seq, rest):
                    self._recovery.log.record_fallback(seq.request.request_id)
                    seq.request.num_chosen_tokens += (rest.end - rest.start) * size

    def begin(self, seq: Sequence) -> None:
        """Load what other tiers have after the blocks found on the device, if that is sooner. The pool has room."""
        swap, first = self._swap, len(seq.block_table)
        was_swapped = bool(seq.swapped_keys)
        record = self._recovery.resume(seq, first)
        span = swap.find_loadable(seq, first)
        if span is None:
            if was_swapped and record is not None and first < record.num_full:
                record.fell_back = True  # the tier has lost the blocks
            swap.release(seq)
            return
        tiers = swap.tiers(seq, span)
        is_forced = was_swapped and self._recovery.policy.always_loads
        if is_forced:
            split = span.start
        elif record is not None and record.is_probe:
            split = span.end - 1
        elif was_swapped:
            split = self._decider.split_saved(span.start, tiers)
        else:
            split = self._decider.split(first, span.start, tiers, len(seq.token_ids))
        has_room = self._swap.has_room_for(seq, first, replace(span, start=split))
        if has_room and not was_swapped:
            way = "compute" if split == span.end else "load" if split == span.start else "both"
            self.ways[way] += 1
            predicted = self._decider.predict_ways(first, span.start, tiers, len(seq.token_ids))
            self.decisions.append(
                PrefixDecision(seq.request.request_id, len(tiers) * self._kv.block_size, way, predicted)
            )
            seq.request.num_chosen_tokens += (split - span.start) * self._kv.block_size
        if has_room and split < span.end:
            op_ids = swap.swap_in(seq, replace(span, start=split))
            self._recovery.log.record_loads(record, op_ids)
            if not is_forced:
                self._loading[seq.seq_id] = seq
        if record is not None and was_swapped and (split > span.start or not has_room):
            record.fell_back = True
        swap.release(seq)

    def record_first_token(self, request_id: str, seconds: float | None) -> None:
        """Record the measured seconds for a decision, if it is among the latest."""
        for decision in self.decisions:
            if decision.request_id == request_id:
                decision.seconds = seconds
