"""Load prefixes for waiting requests while the links are idle.

    a waiting prompt     cached | loading | in another tier | nowhere

Loads follow the order of the queue, and each prompt from its front, so that whatever has arrived when the request is
admitted is a prefix on the device; `PrefixLoader` handles the rest. No request waits for these loads:

- A link gets no more blocks than it can load before the next check, by the cost model. A load that a sequence waits for
  goes first: it cancels loads ahead that have not begun (`SwapManager.swap_in`), and they begin again behind it.
- They use blocks that neither running nor earlier waiting requests need. An arrived block is cached; while its request
  waits, it is evicted after all others.
- Loads that no waiting request needs any more are cancelled.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence as Seq
from itertools import islice

from quire.config import SchedulerConfig
from quire.core.admission import Admission, has_exhausted
from quire.core.decisions.costs import StepShape
from quire.core.decisions.load_or_compute import LoadOrCompute
from quire.core.request import Request, RequestStatus
from quire.core.swap_manager import SwapManager

_MAX_REQUESTS = 16  #: checked from the head of the queue
_MAX_BLOCKS = 512  #: checked in total: 0.5 µs each, and 10 µs once for its key
_LEAST_S = 0.04  #: minimum work for a link, two of its pieces; the next check is after half of it
_STEPS = 2.0  #: minimum work in steps, so that the link does not run dry before the next check


class Lookahead:
    """Loads ahead for one scheduler; `is_enabled` may be changed between steps."""

    def __init__(
        self, config: SchedulerConfig, swap: SwapManager, decider: LoadOrCompute, admission: Admission
    ) -> None:
        self.is_enabled = config.enable_lookahead
        self._config = config
        self._kv, self._swap = swap.kv, swap
        self._decider = decider
        self._admission = admission
        self._head: Request | None = None  #: of the queue, at the last check
        self._pause_s = 0.0  #: seconds of steps until the next check
        self._loaded_ahead: dict[str, dict[bytes, str]] = {}  #: by request id: key -> tier

    def load_for_waiting(self, waiting: Seq[Request], running: Seq[Request], reserved: int, shape: StepShape) -> None:
        """Load for waiting requests in order, after a step is scheduled, beside `reserved` blocks of running ones."""
        swap = self._swap
        has_blocks = swap.kv.enable_prefix_caching and bool(swap.on_disk or swap.tier.num_slots)
        if not (waiting and self.is_enabled and has_blocks) or has_exhausted([*running, waiting[0]]):
            swap.cancel_ahead()
            self._head = None
            return
        costs = self._decider.costs
        step_s = 0.0 if costs is None else costs.step(shape)
        self._pause_s -= step_s
        if step_s > 0.0 and self._pause_s > 0.0 and self._head is waiting[0]:
            return
        seconds = max(_LEAST_S, _STEPS * step_s)
        self._head, self._pause_s = waiting[0], seconds / 2 - step_s
        growth = sum(request.width for request in running)  # a block each while loads are pending
        check = _QueueCheck(self, self._admission.room(reserved) - growth, seconds)
        for request in islice(waiting, _MAX_REQUESTS):
            check.add(request)
            if check.room <= 0 or check.num_seen >= _MAX_BLOCKS:
                break
        swap.cancel_ahead(check.loading)
        self._kv.pool.touch(reversed(check.cached))  # before loads evict the oldest
        for request, key in check.to_load:
            if not self._kv.pool.num_available:  # room is counted in whole blocks, and thin ones round it up
                break
            self._loaded_ahead.setdefault(request.request_id, {})[key] = swap.load_ahead(key)

    def pop_loaded_ahead(self, request: Request, num_found: int) -> Counter[str]:
        """Return how many blocks of a beginning request's prefix were loaded ahead, by tier."""
        loaded = self._loaded_ahead.pop(request.request_id, None)
        if not loaded:
            return Counter()
        keys = self._kv.keys_of(request.unfinished[0], num_found)
        return Counter(loaded[key] for key in keys if key in loaded)

    def remove(self, request: Request) -> None:
        """Drop what is recorded for a request."""
        self._loaded_ahead.pop(request.request_id, None)


class _QueueCheck:
    """One pass over the queue: `room` is free blocks for loads, `seconds` the work for each link."""

    def __init__(self, lookahead: Lookahead, room: int, seconds: float) -> None:
        self.room = room  #: free blocks for later requests
        self.num_seen = 0  #: checked blocks
        self.loading: set[bytes] = set()  #: keys of blocks that are loading, or will be
        self.to_load: list[tuple[Request, bytes]] = []  #: loads to begin, with their requests
        self.cached: dict[int, None] = {}  #: cached blocks that a waiting request needs
        self._lookahead = lookahead
        self._seconds = seconds
        self._left: dict[str, int] = {}  #: by tier, blocks that its link can still load in time

    def add(self, request: Request) -> None:
        """Reserve blocks for a waiting request, and load its prefix as far as the links can."""
        ahead = self._lookahead
        need = ahead._admission.count_needed(request)
        first = request.unfinished[0]
        if request.status is RequestStatus.WAITING and not first.must_compute and not first.swapped_keys:
            need -= self._follow(request)
        self.room -= need

    def _follow(self, request: Request) -> int:
        """Follow a prefix to its first block neither cached nor loading; subtract its blocks from the room."""
        kv, swap = self._lookahead._kv, self._lookahead._swap
        if not request.is_settled:
            request.is_settled = kv.share_public_prefix(request, swap.can_load)
        seq = request.unfinished[0]
        num_full = (len(seq.token_ids) - 1) // kv.block_size
        self.num_seen += 1
        if not any(kv.pool.find(key) is not None or swap.can_load(key) for key in kv.keys_of(seq, min(1, num_full))):
            return 0  # nothing known at the front: no need for the other keys
        self.num_seen += num_full
        found = kv.find_prefix(seq)
        self._keep([block for block in found if kv.pool.ref_counts[block] == 0])
        num_loaded = len(found)
        for key in kv.keys_of(seq, num_full)[num_loaded:]:
            if key in self.loading or swap.is_loading(key):
                self.loading.add(key)
            elif (block := kv.pool.find(key)) is not None:  # behind a gap that is loading
                self._keep([block] if kv.pool.ref_counts[block] == 0 else [])
            elif self.room > 0 and swap.can_load(key) and self._can_load_in_time(swap.tier_of(key)):
                self.to_load.append((request, key))
                self.loading.add(key)
                self.room -= 1
            else:
                break
            num_loaded += 1
        return num_loaded

    def _keep(self, cached: list[int]) -> None:
        before = len(self.cached)
        self.cached.update(dict.fromkeys(cached))
        self.room -= len(self.cached) - before

    def _can_load_in_time(self, tier: str) -> bool:
        if tier not in self._left:
            self._left[tier] = self._lookahead._decider.count_loadable(self._seconds, tier, self.room)
        self._left[tier] -= 1
        return self._left[tier] >= 0
