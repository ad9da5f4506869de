"""The disk tier in the scheduler: which blocks are there, which to save, and which process computes a document.

Other processes change the store too. Changes arrive before each step (`StoreChanges`), so that steps can be replayed.
A document that is nowhere is computed once, however many requests and processes wait for it. A request that is about
to compute it asks for a claim on the document's last key. It is blocked until the claim is granted, the document has
arrived, or it has waited too long. A claim ends when the block of its key has been saved.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from quire.core.decisions.costs import Costs
from quire.core.kv_cache_manager import KVCacheManager
from quire.core.request import Request, Sequence
from quire.core.swap_manager import SwapManager
from quire.outputs import SchedulerOutput, StoreChanges

_PATIENCE = 3.0  #: times the predicted seconds to compute a document
_LEAST_PATIENCE_S = 5.0
_MAX_SAVING_BYTES = 256 * 2**20  #: maximum bytes staged in memory on their way to disk


class DiskTier:
    """Block saves, claims and store changes of one scheduler. Without `costs`, requests wait for a fixed time."""

    def __init__(self, kv: KVCacheManager, swap: SwapManager, costs: Costs | None, block_bytes: int) -> None:
        self._kv = kv
        self._swap = swap
        self._costs = costs
        self._block_bytes = block_bytes
        self._max_saving = max(1, _MAX_SAVING_BYTES // max(1, block_bytes))
        self._keeping: dict[str, Request] = {}  #: requests with blocks to save, by id
        self._asked: dict[bytes, list[Request]] = {}  #: requests that wait for each claim
        self._claimed: dict[bytes, Request] = {}  #: owner of each granted claim
        self._unclaimed: set[str] = set()  #: ids of requests that have waited too long
        self._claims: list[tuple[bytes, float]] = []  #: to send with the next step
        self._dropped: list[bytes] = []
        self._invalidated: list[bytes] = []
        self._is_closed = False
        self._has_listed = False  #: the first change, which lists the blocks on disk, was applied

    @property
    def has_messages(self) -> bool:
        return bool(self._claims or self._dropped or self._invalidated)

    def add_messages(self, out: SchedulerOutput) -> None:
        out.claims, self._claims = self._claims, []
        out.dropped_claims, self._dropped = self._dropped, []
        out.invalidated, self._invalidated = self._invalidated, []

    def close(self) -> None:
        """Neither load from the disk nor save to it any more."""
        self._is_closed = True
        self._swap.on_disk.clear()

    def add_request(self, request: Request) -> None:
        """Save the blocks of a new request that are to be kept."""
        if not self._is_closed and request.num_to_keep >= self._kv.block_size:
            self._keeping[request.request_id] = request

    def remove_request(self, request: Request) -> None:
        """Stop saving a request's blocks, and drop its claims."""
        self._keeping.pop(request.request_id, None)
        self._unclaimed.discard(request.request_id)
        for key, waiting in list(self._asked.items()):
            if request in waiting:
                waiting.remove(request)
                if not waiting:
                    del self._asked[key]
                    self._dropped.append(key)
        for key, owner in list(self._claimed.items()):
            if owner is request and not self._swap.is_saving_to_disk(key):
                self._drop(key)

    def must_wait(self, request: Request) -> bool:
        """Whether a request that is about to begin must wait for a claim; asks for it."""
        if not request.documents or request.request_id in self._unclaimed:
            return False
        size = self._kv.block_size
        keys = self._kv.keys_of(request.unfinished[0], request.documents[-1] // size)
        num_found = next((at for at, key in enumerate(keys) if not self._is_found(key)), len(keys))
        for end in request.documents:
            if num_found >= end // size:
                continue
            key = keys[end // size - 1]
            if key in self._claimed:
                continue  # by an earlier request of this process, which computes it first
            if key not in self._asked:
                self._asked[key] = []
                self._claims.append((key, self._patience(num_found * size, end)))
            self._asked[key].append(request)
            return True
        return False

    def _is_found(self, key: bytes) -> bool:
        return self._kv.pool.find(key) is not None or self._swap.can_load(key)

    def _patience(self, start: int, end: int) -> float:
        seconds = 0.0 if self._costs is None else self._costs.recompute(end - start, start=start)
        return _LEAST_PATIENCE_S + _PATIENCE * seconds

    def _drop(self, key: bytes) -> None:
        del self._claimed[key]
        self._dropped.append(key)

    def apply_changes(self, changes: StoreChanges, requests: Iterable[Request]) -> list[Request]:
        """Apply changes in the store. Returns the requests that need not wait any more."""
        if changes.deleted:
            self._delete(set(changes.deleted), requests)
        on_disk = self._swap.on_disk
        on_disk.difference_update(changes.removed)
        self._swap.by_others.difference_update(changes.removed)
        if not self._is_closed:
            if self._has_listed:
                self._swap.by_others.update(key for key in changes.added if not self._swap.is_on_disk(key))
            on_disk.update(changes.added)
            self._has_listed = True
        woken: list[Request] = []
        for key in changes.granted:
            waiting = self._asked.pop(key, [])
            if waiting:
                self._claimed[key] = waiting[0]
                woken += waiting
            else:
                self._dropped.append(key)
        for key in changes.added:
            woken += self._asked.pop(key, [])
        for key in changes.expired:
            waiting = self._asked.pop(key, [])
            self._unclaimed.update(request.request_id for request in waiting)
            woken += waiting
        return woken

    def _delete(self, keys: set[bytes], requests: Iterable[Request]) -> None:
        """Remove these blocks, and those computed after them, from all tiers. Their requests get private keys."""
        deleted, users = set(keys), list[Request]()
        for request in requests:
            if any(not keys.isdisjoint(seq.block_keys) for seq in request.unfinished):
                users.append(request)
                for seq in request.unfinished:
                    first = next((at for at, key in enumerate(seq.block_keys) if key in keys), len(seq.block_keys))
                    deleted.update(seq.block_keys[first:])
        self._swap.delete(deleted)
        pool = self._kv.pool
        for key in deleted:
            block = pool.find(key)
            if block is not None:
                pool.invalidate(block)
        for request in users:
            self._keeping.pop(request.request_id, None)
            self._kv.rename(request)

    def keep_computed(self) -> None:
        """Save the blocks to keep that the last step has computed, in order."""
        for request in list(self._keeping.values()):
            seq = request.sequences[0]
            if not seq.block_table:
                continue
            end = min(seq.num_computed_tokens, request.num_to_keep) // self._kv.block_size
            if end > request.num_kept:
                self._keep(request, seq, end)
            if request.num_kept == request.num_to_keep // self._kv.block_size:
                del self._keeping[request.request_id]

    def keep_answer(self, seq: Sequence) -> None:
        """Save the computed blocks of an answer that ends between two steps, for the next turn of its conversation."""
        request = seq.request
        if request.keeps_answer and seq.is_in_runner and not request.is_renamed and not self._is_closed:
            request.num_to_keep = seq.num_computed_tokens
            self._keep(request, seq, seq.num_computed_tokens // self._kv.block_size)

    def keep_ahead(self, seq: Sequence) -> None:
        """Save the blocks to keep of a sequence that the last step computed for a waiting request."""
        request, end = seq.request, seq.num_computed_tokens // self._kv.block_size
        if request.request_id in self._keeping and end > request.num_kept:
            self._keep(request, seq, end)

    def _keep(self, request: Request, seq: Sequence, end: int) -> None:
        """Save the blocks before position `end`, unless too many are being saved."""
        swap, first = self._swap, request.num_kept
        keys = self._kv.keys_of(seq, end)
        missing = [at for at in range(first, end) if not swap.is_on_disk(keys[at])]
        if not self._kv.num_state_records and self._kv.pool.has_thin(seq.block_table[at] for at in missing):
            # later blocks are useless without them
            request.num_kept = request.num_to_keep // self._kv.block_size
            return
        states = self._states_to_keep(request, seq, first, end)
        cost_s = self._compute_seconds(first, end) / (end - first) if missing else 0.0
        for at in sorted({*missing, *states}):
            if swap.num_saving_to_disk >= self._max_saving:
                return
            if at in states:  # first: the document is complete once its last block is there
                swap.save_state_to_disk(seq.block_table[at], keys[at], states[at])
            if not swap.is_on_disk(keys[at]):
                swap.save_to_disk(seq.block_table[at], keys[at], keys[at - 1] if at else request.root, cost_s)
            request.num_kept = at + 1
        request.num_kept = end

    def _states_to_keep(self, request: Request, seq: Sequence, first: int, end: int) -> dict[int, float]:
        """Return the positions of blocks from `first` to `end` whose states to save, with the seconds of each."""
        saved_s = self._worthwhile_states((*request.documents, request.num_to_keep), end)
        return {
            at: seconds
            for at, seconds in saved_s.items()
            if at >= first
            and not self._kv.pool.has_thin((seq.block_table[at],))
            and not self._swap.has_state_on_disk(seq.block_keys[at])
        }

    def missing_states(self, documents: Iterable[int], keys: list[bytes]) -> list[int]:
        """Return the positions of blocks whose states are to be kept and are not on disk."""
        saved_s = self._worthwhile_states(documents, len(keys))
        return [at for at in saved_s if not self._swap.has_state_on_disk(keys[at])]

    def _worthwhile_states(self, ends: Iterable[int], num_blocks: int) -> dict[int, float]:
        """Return the positions of the first `num_blocks` blocks whose states to keep, at ends of documents and of what
        is kept, with the seconds that each saves: those to compute from the one before, if a load takes fewer."""
        num_records, size = self._kv.num_state_records, self._kv.block_size
        if not num_records:
            return {}
        load_s = 0.0 if self._costs is None else self._costs.load(num_records * self._block_bytes, "disk")
        states: dict[int, float] = {}
        before = 0
        for end in sorted({tokens // size for tokens in ends}.intersection(range(1, num_blocks + 1))):
            saved_s = self._compute_seconds(before, end)
            if saved_s >= load_s:
                before, states[end - 1] = end, saved_s
        return states

    def _compute_seconds(self, first: int, end: int) -> float:
        size = self._kv.block_size
        return 0.0 if self._costs is None else self._costs.recompute((end - first) * size, start=first * size)

    def invalidate(self, keys: Iterable[bytes]) -> None:
        """Remove blocks whose content is not finite."""
        found = [key for key in keys if self._swap.is_on_disk(key)]
        self._swap.on_disk.difference_update(found)
        self._invalidated += found

    def end_saves(self, keys: Iterable[bytes]) -> None:
        """End the claims on keys whose saves have ended, successfully or not."""
        for key in keys:
            if key in self._claimed:
                self._drop(key)

    def check_integrity(self, is_blocked: Callable[[Request], bool]) -> None:
        for waiting in self._asked.values():
            assert waiting
            assert all(is_blocked(request) for request in waiting)
        assert not set(self._asked) & set(self._claimed)
