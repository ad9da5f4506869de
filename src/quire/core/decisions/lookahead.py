"""What waiting requests will begin with is loaded before their turn, while the link has nothing else to do.

    a waiting prompt     found | coming | in another tier | what nobody has

In the order of the queue and from each prompt's front on, so that whatever has arrived when its turn comes is a prefix
that is on the device; the rest is then loaded or computed, as `prefix_loader` decides. Nobody waits for these loads:

- The link gets no more at once than it brings until the next look, by the cost model. A load that somebody waits for
  goes first: it cancels those that have not begun (`SwapManager.swap_in`), and they are begun anew behind it.
- They take blocks that nobody holds, beyond what running and earlier waiting requests need. What has arrived is a
  cached block. While its request waits it is evicted after all others, but like them.
- What no request that waits wants any more is cancelled.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence as Seq
from itertools import islice

from quire.config import SchedulerConfig
from quire.core.admission import Admission, has_exhausted
from quire.core.decisions.costs import StepShape
from quire.core.decisions.load_or_compute import LoadOrCompute
from quire.core.kv_cache_manager import KVCacheManager
from quire.core.request import Request, RequestStatus
from quire.core.swap_manager import SwapManager

_MAX_REQUESTS = 16  #: that are looked at, from the head of the queue on
_MAX_BLOCKS = 512  #: of theirs: looking takes half a microsecond for each, and naming it ten, once
_LEAST_S = 0.04  #: that the link is given work for: two of its pieces. The next look is after half of it
_STEPS = 2.0  #: where these take longer, so many steps: the link must not run dry before the next look


class Lookahead:
    """Args:
    config: of the scheduler.
    kv: block tables and pool.
    swap: the tiers.
    decider: says what a link can load in time.
    admission: says what there is room for.

    Attributes:
        is_enabled: may be changed between two steps.
    """

    def __init__(
        self,
        config: SchedulerConfig,
        kv: KVCacheManager,
        swap: SwapManager,
        decider: LoadOrCompute,
        admission: Admission,
    ) -> None:
        self.is_enabled = config.enable_lookahead
        self._config = config
        self._kv = kv
        self._swap = swap
        self._decider = decider
        self._admission = admission
        self._head: Request | None = None  #: of the queue, at the last look
        self._pause_s = 0.0  #: of steps, until the next look
        self._brought: dict[str, dict[bytes, str]] = {}  #: by id of who waits: keys begun for it, and their tiers

    def end_step(self, waiting: Seq[Request], running: Seq[Request], promised: int, shape: StepShape) -> None:
        """All requests of the step that is being made have their places: load for those that have none.

        Args:
            waiting: in their order.
            running: those that have one, and those that wait for blocks.
            promised: blocks that they will need for tokens which they know already.
            shape: of the step.
        """
        swap = self._swap
        if not (waiting and self.is_enabled and swap.has_blocks) or has_exhausted([*running, waiting[0]]):
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
        growth = sum(request.width for request in running)  # a block each, while loads are under way
        look = _Look(self, self._admission.room(promised) - growth, seconds)
        for request in islice(waiting, _MAX_REQUESTS):
            look.at(request)
            if look.room <= 0 or look.num_seen >= _MAX_BLOCKS:
                break
        swap.cancel_ahead(look.coming)
        self._kv.pool.touch(reversed(look.cached))  # before loads take the place of the oldest
        for request, key in look.to_load:
            self._brought.setdefault(request.request_id, {})[key] = swap.load_ahead(key)

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
    """At the queue.

    Args:
        lookahead: whose.
        room: blocks that there are for what is loaded.
        seconds: that the link is given work for.
    """

    def __init__(self, lookahead: Lookahead, room: int, seconds: float) -> None:
        self.room = room  #: blocks that are left for those that come later
        self.num_seen = 0  #: blocks that were looked at
        self.coming: set[bytes] = set()  #: keys of blocks that are on their way, or will be
        self.to_load: list[tuple[Request, bytes]] = []  #: of these, those to begin, and for whom
        self.cached: dict[int, None] = {}  #: blocks that nobody holds and a waiting request wants
        self._lookahead = lookahead
        self._seconds = seconds
        self._left: dict[str, int] = {}  #: by tier, blocks that may still be given to its link

    def at(self, request: Request) -> None:
        """See what a waiting request will begin with, and how much of it is to be loaded now."""
        ahead = self._lookahead
        need = ahead._admission.count_needed(request)
        first = request.unfinished[0]
        if request.status is RequestStatus.WAITING and not first.must_compute and not first.swapped_keys:
            need -= self._follow(request)
        self.room -= need

    def _follow(self, request: Request) -> int:
        """Along a request's prefix, to the first block that it will have to compute or to load in its turn. Returns how
        many blocks it was; they have been taken off the room."""
        kv, swap = self._lookahead._kv, self._lookahead._swap
        if not request.is_settled:
            request.is_settled = kv.share_public_prefix(request, swap.can_load)
        seq = request.unfinished[0]
        num_full = (len(seq.token_ids) - 1) // kv.block_size
        self.num_seen += 1
        if not any(kv.pool.find(key) is not None or swap.can_load(key) for key in kv.keys_of(seq, min(1, num_full))):
            return 0  # of a prompt that begins with nothing known, the other keys need not be known yet
        self.num_seen += num_full
        found = kv.find_prefix(seq)
        self._keep([block for block in found if kv.pool.ref_counts[block] == 0])
        num_there = len(found)
        for key in kv.keys_of(seq, num_full)[num_there:]:
            if key in self.coming or swap.is_loading(key):
                self.coming.add(key)
            elif (block := kv.pool.find(key)) is not None:  # there was a gap, which is being loaded
                self._keep([block] if kv.pool.ref_counts[block] == 0 else [])
            elif self.room > 0 and swap.can_load(key) and self._take_turn(swap.tier_of(key)):
                self.to_load.append((request, key))
                self.coming.add(key)
                self.room -= 1
            else:
                break
            num_there += 1
        return num_there

    def _keep(self, cached: list[int]) -> None:
        before = len(self.cached)
        self.cached.update(dict.fromkeys(cached))
        self.room -= len(self.cached) - before

    def _take_turn(self, tier: str) -> bool:
        """Whether a tier's link takes one more block."""
        if tier not in self._left:
            self._left[tier] = self._lookahead._decider.count_loadable(self._seconds, tier, self.room)
        self._left[tier] -= 1
        return self._left[tier] >= 0
