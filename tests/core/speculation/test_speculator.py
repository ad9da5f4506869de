"""How many draft tokens a step takes, by cost and by what was accepted before."""

from __future__ import annotations

from emulated_runner import EmulatedRunner
from quire.config import SchedulerConfig
from quire.core.decisions.costs import StepShape
from quire.core.request import EndRules, Request, Sequence
from quire.core.scheduler import Scheduler
from quire.core.speculation.drafts import Draft
from quire.outputs import SchedulerOutput
from quire.sampling_params import SamplingParams
from schedule_player import Adversary


class StepCosts:
    """A step takes a second, and each token beyond `free` adds `token_s`."""

    is_link_usable = False

    def __init__(self, token_s: float, free: int = 0) -> None:
        self.token_s, self.free = token_s, free

    def step(self, shape: StepShape) -> float:
        return 1.0 + max(0, shape.num_tokens - self.free) * self.token_s

    def recompute(self, num_tokens: int, *, start: int = 0, chunk: int = 512, beside: StepShape | None = None) -> float:
        return num_tokens * self.token_s

    def save(self, num_bytes: int, tier: str = "host") -> float:
        return 1.0

    load = save


class Bench:
    """Requests that decode on a scheduler, with drafts of which `num_right` of four are right."""

    def __init__(self, costs: StepCosts, num_requests: int = 1, num_right: int = 4, num_blocks: int = 200) -> None:
        config = SchedulerConfig(num_blocks, block_size=4, max_model_len=200, num_speculative_tokens=6)
        self.scheduler = Scheduler(config, costs=costs)
        self.runner = EmulatedRunner(config)
        adversary = Adversary(1, num_right, 4)
        self.scheduler.speculator.make_sources = lambda seq: (Six(adversary),)
        for number in range(num_requests):
            params = SamplingParams(max_tokens=150, temperature=0)
            self.scheduler.add(Request(f"r{number}", [number % 8, 1, 2], params, ends=EndRules(150)))
        self.step()  # the prompts

    def step(self) -> SchedulerOutput:
        out = self.scheduler.schedule()
        self.scheduler.update(self.runner.execute(out))
        while self.scheduler.update_next():
            pass
        self.scheduler.check_integrity()
        return out


class Six:
    """Always proposes six tokens."""

    def __init__(self, adversary: Adversary) -> None:
        self.adversary = adversary

    def propose(self, seq: Sequence, most: int) -> Draft | None:
        while (draft := self.adversary.propose(seq, most)) is None or len(draft.token_ids) < most:
            pass
        return draft


def test_drafts_are_verified_while_rows_are_cheap() -> None:
    bench = Bench(StepCosts(0.01))
    assert bench.step().num_scheduled_tokens[0] > 4
    for _ in range(5):
        bench.step()
    assert bench.step().num_scheduled_tokens == [7]
    counts = bench.scheduler.speculator.counts
    assert counts.drafts == 7
    assert counts.accepted.total() == counts.draft_tokens


def test_none_are_verified_where_each_row_takes_a_step() -> None:
    bench = Bench(StepCosts(100.0))
    assert [bench.step().num_scheduled_tokens for _ in range(20)] == [[1]] * 20


def test_none_are_verified_beside_many_streams() -> None:
    bench = Bench(StepCosts(0.1, free=8), num_requests=60)
    assert bench.step().drafts == {}


def test_few_streams_share_the_cheap_rows() -> None:
    bench = Bench(StepCosts(10.0, free=8), num_requests=4)
    for _ in range(10):
        assert sum(bench.step().num_scheduled_tokens) == 8


def test_wrong_drafts_are_given_up_and_right_ones_noticed_without_verifying_them() -> None:
    bench = Bench(StepCosts(0.5), num_right=0)
    for _ in range(60):
        bench.step()
    assert [bench.step().drafts for _ in range(20)] == [{}] * 20
    bench.scheduler.speculator._streams.clear()
    right = Adversary(1, 4, 4)
    bench.scheduler.speculator.make_sources = lambda seq: (Six(right),)
    assert any(bench.step().drafts for _ in range(60))


def test_more_rows_than_decoded_together_are_not_taken_to_be_cheap() -> None:
    for num_requests, num_tokens in ((4, 16), (20, 20)):
        bench = Bench(StepCosts(0.0), num_requests)
        assert [sum(bench.step().num_scheduled_tokens) for _ in range(8)] == [num_tokens] * 8


def test_a_prompt_in_the_step_makes_no_row_cheaper() -> None:
    bench = Bench(StepCosts(100.0), num_requests=3)
    bench.scheduler.add(Request("long", [*range(8)] * 10, SamplingParams(max_tokens=5), ends=EndRules(5)))
    out = bench.step()
    assert (sum(out.num_scheduled_tokens), out.drafts) == (3 + 80, {})
