"""A prefix that another tier has: load it, compute it, or compute its front while its back loads.

    on the device | computed meanwhile | loaded                | the rest of the prompt
    found         | first .. split     | split .. end          | end ..

Whichever brings the first token soonest, by the cost model. A front that grows makes computing longer and loading
shorter, so the best split is where they meet. What is under way is asked about again before each step: blocks that are
late are computed after all.

Computing and loading both ends of a prefix at once is the idea of Cake (Jin et al., 2024, arXiv:2410.03065).
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from math import ceil

from quire.config import SchedulerConfig
from quire.core.decisions.costs import EMPTY_STEP, TIERS, Costs, StepShape, decoding_beside
from quire.core.decisions.step_budget import StepBudget
from quire.core.kv_cache_manager import KVCacheManager
from quire.core.request import Sequence
from quire.core.swap_manager import BlockSpan, SwapManager

_MARGIN = 0.95  #: of the better pure way, that doing both must stay below: it keeps the machine and the link busy
_LATE = 1.2  #: times what computing takes, that loading what is left must be worth to be given up


class PrefixLoader:
    """Args:
    config: of the scheduler.
    kv: block tables and pool.
    swap: the tiers.
    costs: None loads whatever there is. May be changed at any time.
    budget: of the steps that compute prefixes.
    """

    def __init__(
        self, config: SchedulerConfig, kv: KVCacheManager, swap: SwapManager, costs: Costs | None, budget: StepBudget
    ) -> None:
        self._config = config
        self._kv = kv
        self._swap = swap
        self.costs = costs
        self._beside: StepShape | None = None
        self._budget = budget
        self._known_chunk: int | None = None  #: of this step, once somebody has asked
        self._loading: dict[int, Sequence] = {}  #: by seq_id, those that wait for what was begun here
        #: Prefixes that were found, by what was decided: load, compute, both; also ahead, where some came before.
        self.ways: Counter[str] = Counter()

    def begin_step(self, last_shape: StepShape = EMPTY_STEP) -> None:
        """Before a step is made: give up loads that computing would overtake.

        Args:
            last_shape: of the step before: what computing would be added to.
        """
        self._beside = decoding_beside(last_shape)
        self._known_chunk = None
        for seq_id, seq in list(self._loading.items()):
            if seq.loading is None:
                del self._loading[seq_id]
            elif (rest := self._swap.unloaded(seq)) is not None and self._is_late(seq, rest):
                self._swap.cancel_loads(seq, rest)

    def begin(self, seq: Sequence) -> None:
        """A sequence begins with what the device has. Bring what other tiers have of the rest, if that is sooner.

        The caller has checked that the pool has room for all its tokens, or that it may do without.
        """
        first = len(seq.block_table)
        span = self._swap.find_loadable(seq, first)
        if span is None:
            return
        split = self._split(seq, first, span)
        if self._kv.pool.num_available < span.end - first - self._swap.count_coming(seq.block_keys[split : span.end]):
            return
        self.ways["compute" if split == span.end else "load" if split == span.start else "both"] += 1
        if split < span.end:
            self._swap.swap_in(seq, BlockSpan(split, span.end))
            self._loading[seq.seq_id] = seq

    def _split(self, seq: Sequence, first: int, span: BlockSpan) -> int:
        """From which block on to load; the end of the span computes all."""
        if self.costs is None:
            return span.start
        plan = _Plan(self, seq, first, span)
        compute, load = plan.seconds(span.end), plan.seconds(span.start)
        pure, at = min((load, span.start), (compute, span.end))
        low, high = span.start + 1, span.end - 1
        low += bisect_left(range(low, high), True, key=plan.is_computing_longer)
        both = [(plan.seconds(m), m) for m in (low - 1, low) if span.start < m < span.end]
        if both and min(both)[0] < _MARGIN * pure:
            return min(both)[1]
        return at

    def _is_late(self, seq: Sequence, rest: BlockSpan) -> bool:
        if self.costs is None:
            return False
        size = self._config.block_size
        keys = self._kv.keys_of(seq, rest.end)[rest.start :]
        load = self.load_seconds([self._swap.tier_of(key) for key in keys], is_queued=False)
        compute = self.compute_seconds(seq.num_computed_tokens, rest.end * size)
        return load > _LATE * compute

    # -- predictions -------------------------------------------------------------------------------------------------

    @property
    def _chunk(self) -> int:
        """Tokens of a prompt that a step takes beside what decodes."""
        if self._known_chunk is None:
            self._known_chunk = self._budget.chunk_beside(self._beside)
        return self._known_chunk

    def compute_seconds(self, start: int, end: int) -> float:
        """What tokens [start, end) take, beside what decodes."""
        assert self.costs is not None
        if end <= start:
            return 0.0
        return self.costs.recompute(end - start, start=start, chunk=self._chunk, beside=self._beside)

    def step_seconds(self) -> float:
        """What a step takes of what decodes alone."""
        assert self.costs is not None
        return 0.0 if self._beside is None else self.costs.step(self._beside)

    def count_steps(self, num_tokens: int) -> int:
        """Steps that take so many tokens."""
        return -(-num_tokens // self._chunk)

    def load_seconds(self, tiers: list[str], *, is_queued: bool = True) -> float:
        """What blocks take to come from these tiers, each tier by a link of its own, behind what it moves already."""
        assert self.costs is not None
        longest = 0.0
        for tier in TIERS:
            num_blocks = tiers.count(tier)
            if num_blocks:
                seconds = self.costs.load(num_blocks * self._config.block_bytes, tier)
                if is_queued and (num_queued := self._swap.num_queued(tier, is_waited_for=True)):
                    seconds += self.costs.load(num_queued * self._config.block_bytes, tier)
                longest = max(longest, seconds)
        return longest


class _Plan:
    """What it takes to have a sequence's first token, by where its prefix is split."""

    def __init__(self, loader: PrefixLoader, seq: Sequence, first: int, span: BlockSpan) -> None:
        self._loader = loader
        self._size = loader._config.block_size
        self._step_s = loader.step_seconds()
        self._first, self._start, self._end = first, span.start, span.end
        self._num_tokens = len(seq.token_ids)
        self._tiers = [loader._swap.tier_of(key) for key in seq.block_keys[span.start : span.end]]

    def seconds(self, split: int) -> float:
        """Until the first token, if blocks from `split` on are loaded."""
        if split == self._end:
            return self._compute(self._first * self._size, self._num_tokens)
        both = max(self._front(split), self._load(split))
        return both + self._compute(self._end * self._size, self._num_tokens)

    def is_computing_longer(self, split: int) -> bool:
        return self._front(split) >= self._load(split)

    def _front(self, split: int) -> float:
        return self._compute(self._first * self._size, split * self._size)

    def _compute(self, start: int, end: int) -> float:
        """What these tokens add to steps, and the steps that go on beside them."""
        return self._loader.compute_seconds(start, end) + self._loader.count_steps(end - start) * self._step_s

    def _load(self, split: int) -> float:
        """What arrives is noticed when the step beside it ends."""
        seconds = self._loader.load_seconds(self._tiers[split - self._start :])
        return ceil(seconds / self._step_s) * self._step_s if self._step_s > 0.0 else seconds
