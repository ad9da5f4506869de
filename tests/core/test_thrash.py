"""No thrashing: every request finishes, and wasted computation stays under the bound stated in `core.scheduler`.

A wasted token is one whose KV a sequence had and computes again. The test counts them from the steps, not from the
scheduler's counters.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence as Seq

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from emulated_runner import mix
from quire.config import SchedulerConfig
from quire.core.decisions.costs import Costs
from quire.core.decisions.load_or_compute import LoadOrCompute, RecoveryMode, RecoveryPlan, Victim
from quire.core.decisions.recovery_policy import MAX_PREEMPTIONS, RecoveryPolicy
from quire.core.request import Request
from quire.outputs import SchedulerOutput
from quire.sampling_params import BeamSearchParams
from quire.simulate.paper_policies import make_compared_policy
from schedule_player import Plan, Player, Schedule, check_outcomes, note
from simulate.machines import machine


class Worst(RecoveryPolicy):
    """Preempts the request with the largest loss, by a fixed mode, as often as possible."""

    def __init__(self, mode: RecoveryMode) -> None:
        self.mode = mode

    def choose_victim(self, running: Seq[Request]) -> Request:
        def loss(request: Request) -> tuple[int, int]:
            return request.num_preemptions, sum(seq.num_computed_tokens for seq in request.unfinished)

        return max(running, key=loss)

    def plan(self, victim: Victim, decider: LoadOrCompute) -> RecoveryPlan:
        return RecoveryPlan(self.mode, victim.num_full_blocks // 2)


class Mixed(RecoveryPolicy):
    """Preempts the youngest, half of it by each mode."""

    def plan(self, victim: Victim, decider: LoadOrCompute) -> RecoveryPlan:
        return RecoveryPlan(RecoveryMode.MIXED, victim.num_full_blocks // 2)


class Accountant(Player):
    """Counts recomputed tokens by request, and the tokens at each preemption."""

    def __init__(self, schedule: Schedule, recovery: RecoveryPolicy, costs: Costs) -> None:
        super().__init__(schedule, recovery, costs)
        self.in_vain: Counter[str] = Counter()
        self.lost: Counter[str] = Counter()
        self._had: dict[int, int] = {}  #: seq_id -> number of its tokens that ever had KV

    def _schedule(self) -> SchedulerOutput:
        scheduler = self.scheduler
        before = {
            seq: (seq.num_computed_tokens, seq.request.num_preemptions) for seq in scheduler.queue.sequences.values()
        }
        self._look()
        out = super()._schedule()
        new_tokens = dict(zip(out.seq_ids, out.num_scheduled_tokens, strict=True))
        for seq, (num_computed, num_preemptions) in before.items():
            request_id, count = seq.request.request_id, new_tokens.get(seq.seq_id, 0)
            start = seq.num_computed_tokens - count
            # Preempted; or it made room for its siblings, since the oldest request runs them in turns.
            if seq.request.num_preemptions > num_preemptions or start < num_computed:
                self.lost[request_id] += len(seq.token_ids) - 1
            if count:
                self.in_vain[request_id] += max(0, min(seq.num_computed_tokens, self._had[seq.seq_id]) - start)
        self._look()
        return out

    def _look(self) -> None:
        for seq in self.scheduler.queue.sequences.values():
            self._had[seq.seq_id] = max(self._had.get(seq.seq_id, 0), seq.num_computed_tokens)


def audit(schedule: Schedule, policy: RecoveryPolicy, costs: Costs) -> Accountant:
    """Play to the end and check the bound of wasted computation."""
    accountant = Accountant(schedule, policy, costs)
    accountant.play()
    check_outcomes(schedule, accountant)
    for request in accountant.requests:
        in_vain = accountant.in_vain[request.request_id]
        note(f"preempted {request.num_preemptions} times")
        assert in_vain <= accountant.lost[request.request_id]
        if request.width == 1:
            num_tokens = len(request.sequences[0].token_ids)
            assert in_vain <= MAX_PREEMPTIONS * (num_tokens - 1)
    assert accountant.in_vain.total() == accountant.scheduler.counts.recomputed_tokens
    return accountant


@st.composite
def policies(draw: st.DrawFn) -> RecoveryPolicy:
    name = draw(st.sampled_from(("recompute", "swap", "threshold", "cost", "mixed", "worst")))
    note(name)
    if name == "mixed":
        return Mixed()
    if name == "worst":
        return Worst(draw(st.sampled_from(tuple(RecoveryMode))))
    if name == "threshold":
        name = f"threshold:{draw(st.integers(0, 40))}{draw(st.sampled_from(('', ':swap-above')))}"
    return make_compared_policy(name)


@st.composite
def loads(draw: st.DrawFn) -> Schedule:
    """Requests that outgrow the pool together, but not alone."""
    block_size = draw(st.sampled_from((2, 1, 4)))
    max_model_len = draw(st.integers(16, 40))
    least = -(-max_model_len // block_size)
    config = SchedulerConfig(
        num_blocks=least + draw(st.integers(0, 2 * least)),
        block_size=block_size,
        max_num_seqs=draw(st.sampled_from((16, 8, 3))),
        max_num_batched_tokens=draw(st.sampled_from((64, 16, 5, 1))),
        max_model_len=max_model_len,
        enable_prefix_caching=draw(st.booleans()),
        watermark_blocks=draw(st.sampled_from((0, 0, 2))),
        num_swap_slots=draw(st.sampled_from((200, 200, 6, 0))),
        block_bytes=1024,
    )
    chosen = draw(st.lists(plans(config), min_size=4, max_size=12))
    return Schedule(
        config, tuple(chosen), link_seed=draw(st.integers(1, 1000)), link_fails=draw(st.sampled_from((0, 7)))
    )


@st.composite
def plans(draw: st.DrawFn, config: SchedulerConfig) -> Plan:
    length = draw(st.integers(1, config.max_model_len - 2))
    own = draw(st.sampled_from((0, 0, 1, 2, 3, 4, 5)))  # some prompts have a common start
    max_tokens = draw(st.integers(2, config.max_model_len - length))
    plan = Plan(
        prompt=tuple(mix(own, i) % 8 for i in range(length)),
        arrives=draw(st.sampled_from((0, 0, 0, 1, 5, 20))),
        max_tokens=max_tokens,
        stops=False,
        priority=draw(st.sampled_from((0, 0, 0, 1, -1))),
    )
    blocks = -(-(length + max_tokens) // config.block_size) + 1
    width = min(draw(st.sampled_from((1, 1, 2, 3))), config.max_num_seqs, config.num_blocks // blocks)
    if width < 2:
        return plan
    if draw(st.booleans()):
        return Plan(**{**vars(plan), "beam": BeamSearchParams(width, max_tokens)})
    return Plan(**{**vars(plan), "n": width})


@st.composite
def storms(draw: st.DrawFn) -> Schedule:
    """A long request of low priority, beside bursts of short ones that start small and grow."""
    length, room, width = draw(st.integers(8, 24)), draw(st.integers(16, 30)), draw(st.sampled_from((1, 1, 2)))
    config = SchedulerConfig(
        num_blocks=length + width * room,
        block_size=1,
        max_num_seqs=16,
        max_num_batched_tokens=64,
        max_model_len=length + room,
        enable_prefix_caching=draw(st.sampled_from((False, False, True))),
        num_swap_slots=draw(st.sampled_from((200, 6, 0))),
        block_bytes=1024,
    )
    flock, lasts, every = draw(st.integers(4, 7)), draw(st.integers(5, 9)), draw(st.integers(8, 14))
    long = Plan(tuple(mix(1, i) % 8 for i in range(length)), max_tokens=room, stops=False, priority=1, n=width)
    arrivals = [1 + every * number for number in range(draw(st.integers(10, 16))) for _ in range(flock)]
    short = [Plan((own % 8,), arrives=at, max_tokens=lasts, stops=False) for own, at in enumerate(arrivals)]
    return Schedule(config, (long, *short), link_seed=draw(st.integers(1, 1000)))


def deep(max_examples: int) -> settings:
    return settings(max_examples=max_examples, deadline=None, suppress_health_check=list(HealthCheck))


@deep(10)
@given(
    loads() | storms(),
    policies(),
    st.sampled_from((0.125, 0.01, 1.0)),  # seconds per block: near the crossing, in favour of swapping, and against it
)
def test_every_request_finishes_and_what_is_computed_in_vain_stays_under_its_bound(
    schedule: Schedule, policy: RecoveryPolicy, block_s: float
) -> None:
    audit(schedule, policy, machine(save_s=block_s, load_s=block_s).costs)
