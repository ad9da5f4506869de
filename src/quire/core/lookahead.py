"""What waiting requests will begin with is loaded before their turn, while the link has nothing else to do.

    a waiting prompt     found | coming | in another tier | what nobody has

In the order of the queue and from each prompt's front on, so that whatever has arrived when its turn comes is a prefix
that is on the device; the rest is then loaded or computed, as `prefix_loader` decides. Nobody waits for these loads:

- The link gets no more at once than it brings within the next steps, by the cost model. A load that somebody waits for
  goes first: it cancels those that have not begun (`SwapManager.swap_in`), and they are begun anew behind it.
- They take blocks that nobody holds, beyond what running and earlier waiting requests need. What has arrived is a
  cached block. While its request waits it is evicted after all others, but like them.
- What no request that waits wants any more is cancelled.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence as Seq
from itertools import islice

from quire.config import SchedulerConfig
from quire.core.admission import Admission, needs_peace
from quire.core.costs.interface import StepShape
from quire.core.kv_cache_manager import KVCacheManager
from quire.core.prefix_loader import PrefixLoader
from quire.core.request import Request, RequestStatus
from quire.core.swap_manager import SwapManager

_MAX_REQUESTS = 16  #: that are looked at, from the head of the queue on
_MAX_BLOCKS = 1024  #: of theirs: looking takes part of a microsecond for each, in every step
_LEAST_S = 0.04  #: of the link, that are given to it at once: two of its pieces
_STEPS = 2.0  #: as many steps' seconds, where these are more: the link must not run dry before the next step is made


class Lookahead:
    """Args:
    config: of the scheduler.
    kv: block tables and pool.
    swap: the tiers.
    prefixes: its costs say what the link brings.
    admission: says what there is room for.

    Attributes:
        is_enabled: may be changed between two steps.
    """

    def __init__(
        self,
        config: SchedulerConfig,
        kv: KVCacheManager,
        swap: SwapManager,
        prefixes: PrefixLoader,
        admission: Admission,
    ) -> None:
        self.is_enabled = config.enable_lookahead
        self._config = config
        self._kv = kv
        self._swap = swap
        self._prefixes = prefixes
        self._admission = admission
        self._brought: dict[
            str, dict[bytes, str]
        ] = {}  #: by request that waits: keys begun for it, and from which tier

    def end_step(self, waiting: Seq[Request], running: Seq[Request], promised: int, shape: StepShape) -> None:
        """All requests of the step that is being made have their places: load for those that have none.

        Args:
            waiting: in their order.
            running: those that have one, and those that wait for blocks.
            promised: blocks that they will need for tokens which they know already.
            shape: of the step.
        """
        swap = self._swap
        if not (waiting and self.is_enabled and swap.has_blocks) or needs_peace([*running, waiting[0]]):
            swap.cancel_ahead()
            return
        growth = sum(request.width for request in running)  # a block each, while loads are under way
        look = _Look(self, self._admission.room(promised) - growth, shape)
        for request in islice(waiting, _MAX_REQUESTS):
            look.at(request)
            if look.room <= 0 or look.num_seen >= _MAX_BLOCKS:
                break
        swap.cancel_ahead(look.coming)
        for block in reversed(look.cached):
            self._kv.pool.touch(block)

    def take_brought(self, request: Request, num_found: int) -> Counter[str]:
        """A request begins with a prefix that was found: how many of its blocks were loaded for it, by tier."""
        brought = self._brought.pop(request.request_id, None)
        if not brought:
            return Counter()
        keys = self._kv.keys_of(request.unfinished[0], num_found)
        return Counter(brought[key] for key in keys if key in brought)

    def leave(self, request: Request) -> None:
        """A request has ended."""
        self._brought.pop(request.request_id, None)


class _Look:
    """At the queue, once a step."""

    def __init__(self, lookahead: Lookahead, room: int, shape: StepShape) -> None:
        self.room = room  #: blocks that are left for those that come later
        self.num_seen = 0  #: blocks that were looked at
        self.coming: set[bytes] = set()  #: keys of blocks that are on their way to a waiting request
        self.cached: dict[int, None] = {}  #: blocks that nobody holds and a waiting request wants
        self._lookahead = lookahead
        self._shape = shape
        self._left: dict[str, int] = {}  #: by tier, blocks that may still be given to its link

    def at(self, request: Request) -> None:
        """Begin loads for a waiting request, as far as there is room and its prefix is anywhere."""
        ahead = self._lookahead
        need = ahead._admission.count_needed(request)
        first = request.unfinished[0]
        if request.status is RequestStatus.WAITING and not first.must_compute and not first.swapped_keys:
            need -= self._follow(request)
        self.room -= need

    def _follow(self, request: Request) -> int:
        """Along a request's prefix, to the first block that it will have to compute or to load in its turn. Returns how
        many blocks it was: all of them have been taken off the room."""
        kv, swap = self._lookahead._kv, self._lookahead._swap
        if not request.is_settled:
            request.is_settled = kv.begin_public(request, swap.can_load)
        seq, pool = request.unfinished[0], kv.pool
        num_full = (len(seq.token_ids) - 1) // kv.block_size
        for at, key in enumerate(kv.keys_of(seq, num_full)):
            if (block := pool.find(key)) is not None:
                if pool.ref_counts[block] == 0 and block not in self.cached:
                    self.cached[block] = None
                    self.room -= 1
            elif swap.is_coming(key):
                self.coming.add(key)
            elif self.room > 0 and swap.can_load(key) and self._take_turn(swap.tier_of(key)):
                self._begin(request, key)
            else:
                self.num_seen += at + 1
                return at
        self.num_seen += num_full
        return num_full

    def _begin(self, request: Request, key: bytes) -> None:
        ahead = self._lookahead
        ahead._brought.setdefault(request.request_id, {})[key] = ahead._swap.load_ahead(key)
        self.coming.add(key)
        self.room -= 1

    def _take_turn(self, tier: str) -> bool:
        """Whether a tier's link takes one more block."""
        if tier not in self._left:
            self._left[tier] = self._count_turns(tier)
        self._left[tier] -= 1
        return self._left[tier] >= 0

    def _count_turns(self, tier: str) -> int:
        """How many more blocks a tier's link brings within the next steps; one at least where it stands still."""
        ahead = self._lookahead
        costs, size, queued = ahead._prefixes.costs, ahead._config.block_bytes, ahead._swap.num_queued(tier)
        if costs is None:
            return self.room
        seconds = max(_LEAST_S, _STEPS * costs.step(self._shape))
        counts = range(1, queued + self.room + 1)
        most = bisect_right(counts, seconds, key=lambda count: costs.load(count * size, tier))
        return max(most - queued, 0 if queued else 1)
