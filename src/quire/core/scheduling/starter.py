"""Start sequences with the KV that exists: on the device, in the swap tier, on disk."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby

from quire.core.admission import Admission
from quire.core.decisions.lookahead import Lookahead
from quire.core.decisions.prefix_loader import PrefixLoader
from quire.core.kv_cache_manager import KVCacheManager
from quire.core.request import Loading, Request, Sequence
from quire.core.scheduling.counts import SchedulerCounts
from quire.core.scheduling.document_prefill import DocumentPrefill
from quire.outputs import OTHER_PROCESS


@dataclass(frozen=True, slots=True)
class SequenceStarter:
    """Starts sequences, adopts their blocks that have been loaded, and counts the hits."""

    kv: KVCacheManager
    admission: Admission
    prefixes: PrefixLoader
    lookahead: Lookahead
    documents: DocumentPrefill
    counts: SchedulerCounts

    def count_missing(self, seq: Sequence, found: list[int]) -> int:
        """Count the blocks to allocate for all of `seq`'s tokens, beside a cached prefix and loads under way."""
        num_found = len(found)
        return self.kv.count_missing(seq, num_found) - self.admission.count_coming(seq, num_found)

    def adopt(self, seq: Sequence, found: list[int]) -> None:
        request = seq.request
        if request.sources is None:
            request.sources = []
            self.counts.begun_requests += 1
            self.counts.prefix_queries += len(seq.token_ids)
            loaded_ahead = self.lookahead.pop_loaded_ahead(request, len(found))
            if loaded_ahead:
                self.prefixes.ways["ahead"] += 1
            num_computed = self.documents.pop_computed(request)  # for it while it waited: no hit
            start = self._count_cached(request, "device", 0, len(found) - loaded_ahead.total() - num_computed)
            for tier, count in loaded_ahead.items():
                start = self._count_cached(request, tier, start, count)
        self.kv.adopt_prefix(seq, found)

    def load(self, seq: Sequence) -> None:
        """Begin to load what other tiers have after the cached prefix, if that is worth it."""
        self.prefixes.begin(seq)

    def adopt_loaded(self, seq: Sequence, loaded: Loading) -> None:
        """Count blocks that have arrived, and adopt following ones that other requests have computed meanwhile."""
        request = seq.request
        # A request that has begun before gets its own blocks back: no hits.
        is_first_start = not (request.num_preemptions or request.num_promotions or request.outputs)
        if is_first_start:
            start = loaded.start // self.kv.block_size
            for source, blocks in groupby(loaded.sources[: loaded.end // self.kv.block_size - start]):
                start = self._count_cached(request, source, start, len(list(blocks)))
        if not seq.must_compute:
            num_more = self.kv.adopt_following(seq)
            if is_first_start:
                self._count_cached(request, "device", loaded.end // self.kv.block_size, num_more)

    def _count_cached(self, request: Request, source: str, start: int, num_blocks: int) -> int:
        """Count the blocks from `start` on as found in a tier or by another process. Returns their end."""
        if num_blocks <= 0:
            return start
        num_tokens = num_blocks * self.kv.block_size
        request.add_found(source, start * self.kv.block_size, num_tokens)
        self.counts.prefix_hits += num_tokens
        self.counts.hits_by_tier["disk" if source == OTHER_PROCESS else source] += num_tokens
        return start + num_blocks
