"""Load blocks or compute without them: the only module that decides between the two.

    on the device | computed meanwhile | loaded          | rest of the prompt
    first blocks  | .. split           | split .. end    | end ..

For a prefix, a way costs the seconds until the next token, plus a share of the seconds by which its computing delays
other sequences. A longer front makes computing longer and loading shorter, so the best split is where they meet;
bisection finds it. Loads under way are reconsidered before each step. Computing one end of a prefix while the other
loads is the idea of Cake (Jin et al., 2024, arXiv:2410.03065). For a preempted request, a way costs the seconds of the
link and of steps that it takes from all requests.

The same predictions tell how many blocks a link can load in time, and which requests finish on their stage at a
promotion.
"""

from __future__ import annotations

import enum
import math
from bisect import bisect_left, bisect_right
from collections.abc import Sequence as Seq
from dataclasses import dataclass, field
from statistics import fmean

from quire.config import SchedulerConfig
from quire.core.decisions.costs import TIERS, Costs, StepShape, decoding_beside
from quire.core.decisions.evictions import EvictionStats
from quire.core.decisions.step_budget import StepBudget
from quire.core.request import Request
from quire.core.swap_manager import SwapManager

SPLIT_GAIN = 0.05  #: share of the time that a split must save over the better pure way: it keeps step and link busy
DELAY_WEIGHT = 0.3  #: of a second by which computing delays other sequences; loading only occupies the link
AHEAD_SHARE = 0.1  #: of the time of decoding that documents of waiting requests may take
AHEAD_GAIN = 0.75  #: share of a later prefill's seconds that count as saved: the request may end without it
NEAR = 0.02  #: share by which the recovery that ends soonest may spend more than the cheapest
LATE = 1.2  #: a transfer that takes this many times as long as computing is cancelled
PIN_LIMIT_S = 10.0  #: maximum life of an older stage; its remaining requests are recomputed then


class RecoveryMode(enum.Enum):
    """How a preempted request resumes, as planned when it is preempted."""

    RECOMPUTE = "recompute"  #: drop its blocks and compute its tokens again
    SWAP = "swap"  #: save its full blocks in the swap tier and load them
    MIXED = "mixed"  #: save its last full blocks only


@dataclass(frozen=True, slots=True)
class Victim:
    """A request to preempt. Its distinct full blocks are numbered in the order of its tables."""

    request: Request
    num_tokens: int  #: computed tokens of all its sequences, shared ones once
    num_shared: int  #: full blocks at the front that other requests hold too: they stay on the device
    is_unsaved: Seq[bool]  #: per full block: preemption frees it, and neither swap tier nor disk has it
    free_slots: int  #: of the swap tier
    lost: Seq[int] = ()  #: equally likely numbers of freed full blocks that are evicted before it resumes; () for all
    probe_s: float = 0.0  #: seconds that a probe of the swap link may take
    is_link_fresh: bool = True  #: the link has been measured lately
    num_state_records: int = 0  #: records of its states to save, beside the blocks

    @property
    def num_full_blocks(self) -> int:
        return len(self.is_unsaved)

    @property
    def saved_from(self) -> int:
        """The first block of a saved back."""
        return next((at for at in range(self.num_full_blocks, 0, -1) if self.is_unsaved[at - 1]), 0)

    @property
    def expected_lost(self) -> Seq[int]:
        return self.lost or [self.num_full_blocks - self.num_shared]

    def can_keep(self, keep_from: int) -> bool:
        """Whether blocks from `keep_from` on would be freed, and the swap tier has room for the unsaved ones."""
        is_freed = max(keep_from, self.num_shared) < self.num_full_blocks
        return is_freed and self.num_to_save(keep_from) <= self.free_slots

    def num_to_save(self, keep_from: int) -> int:
        """Count the records that the swap tier would have to take to keep blocks from `keep_from` on."""
        return sum(self.is_unsaved[keep_from:]) + (self.num_state_records if keep_from < self.num_full_blocks else 0)


@dataclass(frozen=True, slots=True)
class RecoveryPlan:
    """Blocks of a victim to save."""

    mode: RecoveryMode
    keep_from: int = 0  #: the first full block to save; RECOMPUTE saves none
    predicted: dict[str, float] = field(default_factory=dict)  #: seconds of link and steps by `RecoveryMode.value`
    is_probe: bool = False  #: it saves a block to measure the link


@dataclass(frozen=True, slots=True)
class _Option:
    keep_from: int
    spent_s: float  #: of the link and of steps
    cost_s: float  #: the same, less the value of its saves for later preemptions
    wait_s: float  #: until the next token


class LoadOrCompute:
    """The decider of one scheduler. Without `costs`, which may be replaced at any time, it loads all a tier has."""

    def __init__(self, config: SchedulerConfig, swap: SwapManager, costs: Costs | None, budget: StepBudget) -> None:
        self.costs = costs
        self.evictions = EvictionStats()
        self._config = config
        self._block_size = config.block_size
        self._block_bytes = config.block_bytes
        self._num_state_records = swap.kv.num_state_records
        self._swap = swap
        self._budget = budget
        self._beside: StepShape | None = None
        self._chunk: int | None = None

    def begin_step(self, last_shape: StepShape) -> None:
        """Predict for computing beside the sequences that decoded in the last step."""
        self._beside = decoding_beside(last_shape)
        self._chunk = None

    @property
    def _known_costs(self) -> Costs:
        assert self.costs is not None
        return self.costs

    @property
    def _chunk_beside(self) -> int:
        if self._chunk is None:
            self._chunk = self._budget.chunk_beside(self._beside)
        return self._chunk

    def _compute_s(self, start: int, end: int) -> float:
        """Seconds that computing tokens [start, end) adds to steps."""
        if end <= start:
            return 0.0
        return self._known_costs.recompute(end - start, start=start, chunk=self._chunk_beside, beside=self._beside)

    def _compute_wait_s(self, start: int, end: int) -> float:
        """Seconds until tokens [start, end) are computed, including the decoding in the same steps."""
        if end <= start:
            return 0.0
        return self._compute_s(start, end) - (start - end) // self._chunk_beside * self._step_s

    @property
    def _step_s(self) -> float:
        return 0.0 if self._beside is None else self._known_costs.step(self._beside)

    def _load_s(self, tiers: Seq[str], *, is_queued: bool = True) -> float:
        """Seconds until blocks arrive, one link per tier; `is_queued` counts the transfers that wait on the links."""
        costs, size, longest = self._known_costs, self._block_bytes, 0.0
        for tier in TIERS:
            num_blocks = tiers.count(tier) + (self._num_state_records if tiers and tiers[-1] == tier else 0)
            if num_blocks:
                seconds = costs.load(num_blocks * size, tier)
                if is_queued and (num_queued := self._swap.transfers.num_queued(tier, is_waited_for=True)):
                    seconds += costs.load(num_queued * size, tier)
                longest = max(longest, seconds)
        return longest

    def _load_wait_s(self, tiers: Seq[str]) -> float:
        """Seconds until a step can use blocks from these tiers: arrivals are seen between steps."""
        seconds, step_s = self._load_s(tiers), self._step_s
        return math.ceil(seconds / step_s) * step_s if step_s > 0.0 else seconds

    def _delay_s(self, start: int, end: int) -> float:
        """Weighted seconds by which computing tokens [start, end) delays the sequences decoding in the same steps."""
        return 0.0 if self._beside is None else DELAY_WEIGHT * self._compute_s(start, end)

    def _compute_cost_s(self, start: int, end: int) -> float:
        return self._compute_wait_s(start, end) + self._delay_s(start, end)

    def _cost_s(self, first: int, split: int, tiers: Seq[str], num_tokens: int) -> float:
        """Seconds until the next token, and of delay for others: blocks [0, first) are on the device, [first, split)
        are computed meanwhile, and the rest is loaded from `tiers`."""
        size, end = self._block_size, split + len(tiers)
        delay_s = self._delay_s(first * size, split * size)
        if not tiers:
            return delay_s + self._compute_wait_s(first * size, num_tokens)
        front_s = self._compute_wait_s(first * size, split * size)
        return delay_s + max(front_s, self._load_wait_s(tiers)) + self._compute_wait_s(end * size, num_tokens)

    def split(self, first: int, start: int, tiers: Seq[str], num_tokens: int) -> int:
        """Choose the first block to load, with `first` blocks on the device and loadable ones from `start` on
        (`tiers`). `start + len(tiers)` computes everything."""
        end = start + len(tiers)
        if self.costs is None:
            return start

        def cost_s(split: int) -> float:
            return self._cost_s(first, split, tiers[split - start :], num_tokens)

        pure_s, pure = min((cost_s(start), start), (cost_s(end), end))
        if self._num_state_records:  # a computed front would need a state for each of its steps
            return pure
        meeting = self._meeting(first, start, tiers)
        options = [(cost_s(at), at) for at in (meeting - 1, meeting) if start < at < end]
        best_s, best = min(options, default=(math.inf, end))
        return best if best_s < (1.0 - SPLIT_GAIN) * pure_s else pure

    def predict_ways(self, first: int, start: int, tiers: Seq[str], num_tokens: int) -> dict[str, float]:
        """Predict the seconds until the first token if all blocks of `split` are loaded, and if none is; {} without
        costs."""
        if self.costs is None:
            return {}
        size, end = self._block_size, start + len(tiers)
        load_s = max(self._compute_wait_s(first * size, start * size), self._load_wait_s(tiers))
        return {
            "load": load_s + self._compute_wait_s(end * size, num_tokens),
            "compute": self._compute_wait_s(first * size, num_tokens),
        }

    def _meeting(self, first: int, start: int, tiers: Seq[str]) -> int:
        """The first split at which computing the front takes at least as long as loading the back."""
        size = self._block_size

        def is_front_longer(split: int) -> bool:
            return self._compute_wait_s(first * size, split * size) >= self._load_wait_s(tiers[split - start :])

        low = start + 1
        return low + bisect_left(range(low, start + len(tiers) - 1), True, key=is_front_longer)

    def is_load_late(self, start: int, end: int, tiers: Seq[str]) -> bool:
        """Whether to compute tokens [start, end) instead of pending loads, whose link's queue does not count."""
        return self.costs is not None and self._load_s(tiers, is_queued=False) > LATE * self._compute_cost_s(start, end)

    def count_loadable(self, seconds: float, tier: str, most: int) -> int:
        """How many of `most` more blocks a link can load within `seconds`; at least one if it is idle."""
        costs, size, num_queued = self.costs, self._block_bytes, self._swap.transfers.num_queued(tier)
        if costs is None:
            return most
        counts = range(1, num_queued + most + 1)
        in_time = bisect_right(counts, seconds, key=lambda count: costs.load(count * size, tier))
        return max(in_time - num_queued, 0 if num_queued else 1)

    def choose_ahead(self, step: StepShape, start: int, end: int, most: int, most_s: float) -> tuple[int, float]:
        """Choose how many tokens of a waiting request's document [start, end) to compute in a step: whole blocks, at
        most `most`, that save most against computing them when the request runs, and add at most `most_s` seconds.
        Returns their number and the seconds that they add; 0 if none saves."""
        costs = self._known_costs
        alone_s, later_s = costs.step(step), AHEAD_GAIN * self._compute_s(start, end) / (end - start)
        best, best_s, most_saved_s = 0, 0.0, 0.0
        for count in range(self._block_size, most + 1, self._block_size):
            added_s = costs.step(step.plus_chunk(start, count)) - alone_s
            if added_s > most_s:
                break
            if count * later_s - added_s > most_saved_s:
                best, best_s, most_saved_s = count, added_s, count * later_s - added_s
        return best, best_s

    def split_saved(self, start: int, tiers: Seq[str]) -> int:
        """`split` for a preempted request, whose blocks from `start` on are loaded if that takes fewer seconds."""
        end, size = start + len(tiers), self._block_size
        if self.costs is None or self._load_s(tiers, is_queued=False) <= self._compute_s(start * size, end * size):
            return start
        return end

    def plan_recovery(self, victim: Victim) -> RecoveryPlan:
        """Choose which full blocks of a victim to save, if any: those that save seconds of link and steps; of ways that
        are `NEAR` the cheapest, the soonest. Blocks that will still be cached count for no way (`EvictionStats`). Saved
        blocks stay in the tier."""
        options = [(RecoveryMode.RECOMPUTE, self._option(victim, victim.num_full_blocks))]
        if victim.can_keep(0):
            options.append((RecoveryMode.SWAP, self._option(victim, victim.num_shared)))
        is_link_usable = self._known_costs.is_link_usable
        if is_link_usable and not self._num_state_records:
            options += self._mixed(victim)
        least_s = min(option.cost_s for _, option in options) * (1.0 + NEAR)
        near = [each for each in options if each[1].cost_s <= least_s]
        mode, best = min(near, key=lambda each: each[1].wait_s) if is_link_usable else options[0]
        predicted = {each.value: option.spent_s for each, option in [*options, (mode, best)]}
        return RecoveryPlan(mode, best.keep_from if mode is RecoveryMode.MIXED else 0, predicted)

    def plan_probe(self, victim: Victim) -> RecoveryPlan | None:
        """Save the victim's last block to measure the link; None if that is not due, not paid for or impossible. On a
        synchronous link every request would wait for it, and a block without the state after it is of no use."""
        costs, last = self._known_costs, victim.num_full_blocks - 1
        is_due = not (victim.is_link_fresh and costs.is_link_usable) and not self._config.swap_is_synchronous
        if (
            not is_due
            or self._num_state_records
            or victim.request.width > 1
            or not victim.can_keep(last)
            or not victim.is_unsaved[last]
        ):
            return None
        if costs.save(self._block_bytes) + costs.load(self._block_bytes) > victim.probe_s:
            return None
        mode = RecoveryMode.MIXED if last > victim.num_shared else RecoveryMode.SWAP
        return RecoveryPlan(mode, last, {mode.value: self._option(victim, last).spent_s}, is_probe=True)

    def _mixed(self, victim: Victim) -> list[tuple[RecoveryMode, _Option]]:
        """Ways that save only a part: what will be evicted, what is unsaved, or the back of a split."""
        first, end = victim.num_shared, victim.num_full_blocks
        if victim.request.width > 1 or first + 1 >= end:  # several tables have no common front and back
            return []
        meeting = self._meeting(first, first, ["host"] * (end - first))
        places = {end - lost for lost in victim.expected_lost} | {meeting - 1, meeting, victim.saved_from}
        possible = [at for at in sorted(places) if first < at < end and victim.can_keep(at)]
        return [(RecoveryMode.MIXED, self._option(victim, at)) for at in possible]

    def _option(self, victim: Victim, keep_from: int) -> _Option:
        """Costs of saving the blocks from `keep_from` on; of computing, if there are none."""
        end, size, costs = victim.num_full_blocks, self._block_size, self._known_costs
        num_tokens = victim.num_tokens + 1  # the last token has no KV yet
        save_s = costs.save(victim.num_to_save(keep_from) * self._block_bytes)
        again = self.evictions.again
        wait_s, spent_s, gain_s = [], [], []
        for lost in victim.expected_lost:
            first = end - lost
            split = max(first, keep_from)
            tiers = ["host"] * (end - split)
            wait_s.append(self._cost_s(first, split, tiers, num_tokens))
            load_s = self._load_s(tiers, is_queued=False)
            computed_s = self._compute_s(first * size, split * size) + self._compute_s(end * size, victim.num_tokens)
            spent_s.append(save_s + load_s + computed_s)
            each_s = max(0.0, self._compute_s(split * size, end * size) - load_s)  # gained by each later preemption
            gain_s.append(min(again * save_s, again / (1.0 - again) * each_s))
        spent = fmean(spent_s)
        return _Option(keep_from, spent, spent - fmean(gain_s), save_s + fmean(wait_s))

    def is_save_late(self, start: int, end: int) -> bool:
        """Whether to cancel saves under way of blocks [start, end) of a preempted request."""
        costs, num_bytes, size = self.costs, (end - start) * self._block_bytes, self._block_size
        if costs is None:
            return False
        swap_s = costs.save(num_bytes) * (1.0 - self.evictions.again) + costs.load(num_bytes)
        return swap_s > LATE * self._compute_s(start * size, end * size)

    def choose_pinned(self, running: Seq[Request]) -> list[Request]:
        """Choose the requests that finish on the current stage when the next one arrives: those with the fewest tokens
        left (at most), as many as minimise extra steps plus recomputed tokens, none beyond `PIN_LIMIT_S`."""
        policy = self._config.promotion_policy
        if policy != "cost" or self.costs is None:
            return list(running) if policy == "pin" else []
        begun = [request for request in running if any(seq.num_computed_tokens for seq in request.unfinished)]
        by_rest = sorted(begun, key=self._num_steps_left)
        recompute = [self._restart_s(request) for request in by_rest]
        best, least_s = 0, sum(recompute)
        for count in range(1, len(by_rest) + 1):
            extra_s, whole_s = self._pinning_s(by_rest[:count], by_rest[count:])
            if whole_s > PIN_LIMIT_S:
                break
            seconds = extra_s + sum(recompute[count:])
            if seconds < least_s:
                best, least_s = count, seconds
        return by_rest[:best]

    def _restart_s(self, request: Request) -> float:
        """Seconds of computing all tokens of a request in steps of its own."""
        num_prompt = len(request.prompt_token_ids)
        total = num_prompt + sum(len(seq.token_ids) - num_prompt for seq in request.unfinished)  # one prompt for all
        return self._known_costs.recompute(total, chunk=self._config.max_num_batched_tokens)

    def _num_steps_left(self, request: Request) -> int:
        """Maximum steps until its last sequence ends, at least one."""
        fewest = min((seq.num_output_tokens for seq in request.unfinished), default=0)
        missing = sum(len(seq.token_ids) - seq.num_computed_tokens for seq in request.unfinished)
        return max(1, request.max_tokens - fewest) + missing // self._config.max_num_batched_tokens

    def _pinning_s(self, pinned: Seq[Request], others: Seq[Request]) -> tuple[float, float]:
        """Predict the extra seconds of separate steps, and the seconds until the last pinned request ends."""
        step = self._known_costs.step
        alone = _decoding(others)
        extra_s = whole_s = 0.0
        num_done = 0
        for at, request in enumerate(pinned):
            num_steps = self._num_steps_left(request) - num_done
            num_done += num_steps
            own = _decoding(pinned[at:])
            own_s, others_s = step(own), step(alone)
            extra_s += num_steps * max(0.0, own_s + others_s - step(own.plus(alone)))
            whole_s += num_steps * (own_s + others_s)
        return extra_s, whole_s


def _decoding(requests: Seq[Request]) -> StepShape:
    """The shape of a step that decodes one token of each sequence."""
    lengths = [len(seq.token_ids) for request in requests for seq in request.unfinished]
    return StepShape(len(lengths), len(lengths), 0.0, sum(lengths))
