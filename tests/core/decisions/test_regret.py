"""The regret of `cost`: recovery seconds beyond those of the best static policy in hindsight, on the same victims."""

from __future__ import annotations

from collections.abc import Sequence as Seq
from dataclasses import dataclass, replace

from hypothesis import example, given, settings
from hypothesis import strategies as st

from quire.core.decisions.cost_model import CostModel
from quire.core.decisions.costs import StepShape
from quire.core.decisions.load_or_compute import RecoveryMode
from quire.core.decisions.recovery_log import PROBE_SHARE, STALE_AFTER, RecoveryLog
from quire.core.decisions.recovery_policy import Cost
from quire.outputs import TransferReport
from victims import BLOCK, decider_of, victim_of

BLOCK_BYTES = 200_000
BESIDE = StepShape(8, 8, 0.0, 4000)
WRONG_VICTIMS = STALE_AFTER + 8  #: victims that a wrong profile may cost


@dataclass(frozen=True)
class Machine:
    """Exact costs of a machine."""

    token_s: float
    latency_s: float
    block_s: float  #: of the link, each way

    def step(self, shape: StepShape) -> float:
        return 5e-3 + self.token_s * shape.num_tokens

    def compute(self, num_tokens: int) -> float:
        return self.token_s * num_tokens

    def transfer(self, num_blocks: int) -> float:
        return self.latency_s + num_blocks * self.block_s

    def swap(self, num_tokens: int, keep_from: int = 0) -> float:
        num_blocks = num_tokens // BLOCK - keep_from
        return 2 * self.transfer(num_blocks) + self.compute(num_tokens - num_blocks * BLOCK)

    def best_static(self, lengths: Seq[int]) -> float:
        """Seconds of the best threshold, either way round, in hindsight; all or none swapped are thresholds too."""
        return min(
            sum(self.swap(n) if (n > limit) is swaps_above else self.compute(n) for n in lengths)
            for limit in {0, *lengths}
            for swaps_above in (False, True)
        )


class Profile(CostModel):
    """A machine's steps, and what has been measured of its link: at first, `link_factor` times its seconds."""

    def __init__(self, machine: Machine, link_factor: float) -> None:
        super().__init__()
        self._machine = machine
        for count in (1, 2, 4, 8, 16, 32, 64, 128) * 6:
            for kind in ("save", "load"):
                self.observe_transfer(kind, count * BLOCK_BYTES, link_factor * machine.transfer(count))

    def step(self, shape: StepShape) -> float:
        return self._machine.step(shape)

    def recompute(self, num_tokens: int, *, start: int = 0, chunk: int = 512, beside: StepShape | None = None) -> float:
        return self._machine.compute(num_tokens)


MACHINES = st.builds(Machine, st.floats(5e-6, 5e-4), st.floats(0, 2e-4), st.floats(5e-5, 1e-2))
LENGTHS = st.lists(st.integers(8 * BLOCK, 128 * BLOCK), min_size=6, max_size=60)
MANY_LENGTHS = st.lists(st.integers(8 * BLOCK, 128 * BLOCK), min_size=60, max_size=120)


def recover(machine: Machine, lengths: Seq[int], model: CostModel) -> tuple[float, float]:
    """Seconds of recovery of these victims under `cost`, and those of its probes. Every transfer ends as planned."""
    decider, policy, log = decider_of(model, block_bytes=BLOCK_BYTES, beside=BESIDE), Cost(), RecoveryLog()
    for count, num_tokens in enumerate(lengths):
        name = str(count)
        victim = replace(victim_of(num_tokens, name=name), probe_s=log.probe_budget_s, is_link_fresh=log.is_link_fresh)
        plan = policy.plan(victim, decider)
        num_blocks = 0 if plan.mode is RecoveryMode.RECOMPUTE else victim.num_full_blocks - plan.keep_from
        decider.evictions.observe_preemption(is_repeated=False)
        record = log.open(name, count, num_tokens, plan, range(num_blocks))
        log.record_compute(name, machine.compute(num_tokens - num_blocks * BLOCK))
        if num_blocks:
            op_ids, num_bytes, seconds = list(range(num_blocks)), num_blocks * BLOCK_BYTES, machine.transfer(num_blocks)
            for kind in ("save", "load"):
                if kind == "load":
                    log.record_loads(record, op_ids)
                model.observe_transfer(kind, num_bytes, seconds)
                log.record_transfers([TransferReport(kind, op_ids, num_bytes, seconds)])
        log.complete(name)
    return log.spent_s, log.probed_s


@settings(max_examples=25, deadline=None)
@given(MACHINES, LENGTHS)
def test_a_right_profile_costs_at_most_a_twentieth_more_than_the_best_static_policy(
    machine: Machine, lengths: list[int]
) -> None:
    spent_s, probed_s = recover(machine, lengths, Profile(machine, 1.0))
    assert spent_s <= 1.05 * machine.best_static(lengths)
    assert probed_s <= 1.01 * PROBE_SHARE * spent_s


@settings(max_examples=25, deadline=None)
@example(Machine(3e-4, 1e-4, 5e-4), [1024] * 100, 20.0)
@given(MACHINES, MANY_LENGTHS, st.sampled_from((0.05, 0.125, 0.3, 3.0, 8.0, 20.0)))
def test_a_wrong_profile_costs_as_much_again_as_a_few_victims(
    machine: Machine, lengths: list[int], link_factor: float
) -> None:
    spent_s, _ = recover(machine, lengths, Profile(machine, link_factor))
    dearest = sorted((max(machine.swap(n), machine.compute(n)) for n in lengths), reverse=True)
    assert spent_s <= 1.05 * machine.best_static(lengths) + sum(dearest[:WRONG_VICTIMS])
