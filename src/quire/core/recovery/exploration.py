"""When a mode has not been taken for long, a small part of a victim is sent along it, so that a change is noticed.

A probe is a mixed mode: a few blocks at the back are swapped where the rest is computed, or a few at the front computed
where the rest is swapped. Where somebody may soon have to give way, and nothing has used the link lately, a sample says
beforehand how fast it is: some blocks are saved ahead of time. What is spent on telling about the link, by probes and
samples together, stays under a share of the engine's seconds; and, since it has to be worth it, under a share of those
that recovery itself has taken and what surprises have cost. So do probes of computing. Deterministic: counts decisions
and the engine's seconds, asks no clock, and draws from its own generator.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from random import Random

from quire.core.costs.cost_model import CostModel
from quire.core.recovery.interface import RecoveryMode
from quire.core.recovery.recovery_cost import CandidateCosts, RecoveryCost

_LARGEST_PART = 8  #: a probe moves at most one block in so many
_SHARE_OF_RECOVERY = 0.02
_SAMPLE_EVERY_S = 1.0  #: of the engine's seconds, at most
_SAMPLE_S = 5e-3  #: of the link's, at least
_LARGEST_SAMPLE = 16  #: blocks


@dataclass(frozen=True, slots=True)
class Probe:
    probes: RecoveryMode  #: what it tells about
    cost: RecoveryCost  #: the mode to take
    modes: CandidateCosts
    num_blocks: int  #: of it that are there for the probe alone
    charged: float  #: seconds that these were predicted to take

    def price(self) -> float:
        """Seconds that they take by what is known now."""
        return _price(self.modes, self.probes, self.num_blocks)


def _price(modes: CandidateCosts, probes: RecoveryMode, num_blocks: int) -> float:
    return modes.link_seconds(num_blocks) if probes is RecoveryMode.SWAP else modes.compute_seconds(num_blocks)


class _Account:
    """Probes of one mode: when the next is due, and what they have cost."""

    def __init__(self, interval: int) -> None:
        self.seconds = 0.0
        self.num_samples = 0  #: when last looked at
        self.due_in = interval


class Prober:
    """Args:
    model: which samples it has, and how many seconds the engine has run.
    share: of the engine's seconds, for probes and samples of the link; and as much for probes of computing.
    every: decisions without a sample after which a mode is probed, on average.
    seed: of the jitter, which keeps probes from falling into step with a load's own rhythm.
    """

    def __init__(self, model: CostModel, share: float, every: int, seed: int) -> None:
        self._model = model
        self._share = share
        self._every = every
        self._random = Random(seed)
        self.sampling_seconds = 0.0  #: of the link, for samples
        self._charged = 0.0  #: of these, for the last one
        self._charged_bytes = 0  #: of it, as long as it is not back
        self._link_before = (0, 0.0)  #: bytes and seconds of the link when it was begun
        self._num_seen = 0  #: transfers
        self._looked_at = 0.0  #: the engine's seconds at the last of them, or when the last sample was begun
        self.surprise_seconds = 0.0  #: by which recoveries took longer than predicted, where it was much
        self.recovery_seconds = 0.0  #: predicted, of all decisions so far
        self._accounts = {mode: _Account(self._interval()) for mode in (RecoveryMode.SWAP, RecoveryMode.RECOMPUTE)}

    def sample_size(self, block_bytes: int) -> int:
        """How many blocks should be saved now, only to see how fast the link is: mostly none.

        To be asked before a step where it matters and the link is idle. A sample is just so large that more than the
        time it takes to wake a thread is seen.
        """
        model = self._model
        num_samples = self._num_transfers
        if num_samples != self._num_seen:
            self._num_seen, self._looked_at = num_samples, model.engine_seconds
            self._settle_sample()
        if model.is_failing("load"):
            return 0  # only a probe tells whether blocks come back
        if not model.is_save_telling and model.engine_seconds - self._looked_at < _SAMPLE_EVERY_S:
            return 0
        slowness = model.suspected_slowness
        per_block = slowness * model.save(_LARGEST_SAMPLE * block_bytes).seconds / _LARGEST_SAMPLE
        num_blocks = min(_LARGEST_SAMPLE, math.ceil(_SAMPLE_S / max(per_block, 1e-9)))
        price = slowness * model.save(num_blocks * block_bytes).seconds
        return num_blocks if price <= self._budget(self._link_seconds) else 0

    def note_surprise(self, seconds: float) -> None:
        """A recovery took so much longer than predicted: worth looking more often, unless blocks are lost anyway."""
        if self._model.is_link_usable:
            self.surprise_seconds += seconds

    def note_sample(self, num_bytes: int) -> None:
        """So many are on their way."""
        self._charged_bytes, self._charged = num_bytes, self._model.save(num_bytes).seconds
        self.sampling_seconds += self._charged
        self._looked_at = self._model.engine_seconds
        self._link_before = self._model.link_bytes, self._model.link_seconds

    def _settle_sample(self) -> None:
        """The sample is back: it is charged with its share of what the link has done since it was begun."""
        if self._charged_bytes and self._model.link_bytes > self._link_before[0]:
            num_bytes, seconds = self._link_before
            moved, took_s = self._model.link_bytes - num_bytes, self._model.link_seconds - seconds
            self.sampling_seconds += took_s * min(1.0, self._charged_bytes / moved) - self._charged
            self._charged_bytes = 0

    def _budget(self, spent: float) -> float:
        """Seconds that may still be spent on telling about a mode, of which so many are gone."""
        worth = _SHARE_OF_RECOVERY * self.recovery_seconds + self.surprise_seconds
        return min(self._share * self._model.engine_seconds, worth) - spent

    @property
    def _num_transfers(self) -> int:
        """That have told how fast the link is."""
        return self._model.saves.num_observed + self._model.loads.num_observed

    @property
    def _link_seconds(self) -> float:
        """Spent on the link to tell about it."""
        return self.sampling_seconds + self._accounts[RecoveryMode.SWAP].seconds

    def seconds(self, mode: RecoveryMode) -> float:
        """Spent on probes of a pure mode so far."""
        return self._accounts[mode].seconds

    def propose(self, modes: CandidateCosts, mode: RecoveryMode, seconds: float) -> Probe | None:
        """The mode to take instead of one that spends `seconds`, with a probe in it.

        None where none is due or can be paid for, and where the mode is mixed, which tells about both.

        Called once a decision.
        """
        model = self._model
        self.recovery_seconds += seconds
        is_swap_due = self._count_down(RecoveryMode.SWAP, self._num_transfers)
        is_recompute_due = self._count_down(RecoveryMode.RECOMPUTE, model.steps.num_prefills)
        if not modes.has_parts:
            return None
        # A surprise is followed up at once: the next probe tells whether it was one. So is ignorance; and whether
        # blocks come back again, no sample tells.
        has_to_tell = model.is_link_suspect or model.is_failing("load") or not model.is_link_calibrated
        if mode is RecoveryMode.RECOMPUTE and (is_swap_due or has_to_tell):
            return self._probe(RecoveryMode.SWAP, modes)
        if mode is RecoveryMode.SWAP and is_recompute_due:
            return self._probe(RecoveryMode.RECOMPUTE, modes)
        return None

    def settle(self, probe: Probe) -> None:
        """A probe is over: it is charged with what it would be known to cost now."""
        self._accounts[probe.probes].seconds += probe.price() - probe.charged

    def _count_down(self, mode: RecoveryMode, num_samples: int) -> bool:
        account = self._accounts[mode]
        if num_samples != account.num_samples:
            account.num_samples = num_samples
            account.due_in = self._interval()
        account.due_in -= 1
        return account.due_in <= 0

    def _interval(self) -> int:
        return self._random.randint(self._every - self._every // 4, self._every + self._every // 4)

    def _probe(self, probes: RecoveryMode, modes: CandidateCosts) -> Probe | None:
        """The largest probe that can be paid for, of at least a block."""
        account = self._accounts[probes]
        model = self._model
        budget = self._budget(self._link_seconds if probes is RecoveryMode.SWAP else account.seconds)
        num_blocks = modes.num_lost  # those that have to come back
        part = min(max(1, num_blocks // _LARGEST_PART), num_blocks - 1)
        if probes is RecoveryMode.SWAP and not model.is_link_calibrated:
            part = min(part, 1 << model.saves.num_observed)  # it may be dearer than any guess: begin with a block
        while part > 0:
            charged = _price(modes, probes, part)
            keep_from = modes.num_full - part if probes is RecoveryMode.SWAP else modes.num_full - num_blocks + part
            cost = modes.mixed(keep_from) if charged <= budget else None
            if cost is not None:
                account.seconds += charged
                account.due_in = self._interval()
                return Probe(probes, cost, modes, part, charged)
            part //= 2
        return None
