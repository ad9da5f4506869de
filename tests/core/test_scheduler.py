"""The scheduler, one rule at a time, on requests small enough to follow by hand."""

from __future__ import annotations

import math
import pickle
from collections.abc import Sequence as Seq

import pytest

from emulated_runner import EmulatedRunner, StepFailed
from quire.config import SchedulerConfig
from quire.core.decisions.cost_model import CostModel
from quire.core.decisions.costs import Costs, StepShape
from quire.core.decisions.load_or_compute import LoadOrCompute, RecoveryMode, RecoveryPlan, Victim
from quire.core.decisions.recovery_log import RecoveryRecord
from quire.core.decisions.recovery_policy import Recompute, RecoveryPolicy
from quire.core.request import BACKGROUND, Request, RequestStatus
from quire.core.scheduler import Scheduler
from quire.core.scheduling.step_results import SequenceUpdate
from quire.outputs import SchedulerOutput, StepOutput
from quire.sampling_params import BeamSearchParams
from schedule_player import EOS, STOP, Plan, Schedule, make_request, play, predict_samples


class Bench:
    """A scheduler and an emulated runner, driven step by step."""

    def __init__(self, costs: Costs | None = None, **limits: float) -> None:
        defaults: dict[str, float] = {"num_blocks": 32, "block_size": 4, "max_model_len": 64}
        self.config = SchedulerConfig(**{**defaults, **limits})  # type: ignore[arg-type]
        self.scheduler = Scheduler(self.config, costs=costs)
        self.runner = EmulatedRunner(self.config)
        self.out = SchedulerOutput(0)
        self._arrivals = 0

    def add(self, prompt: range | list[int], **options: object) -> Request:
        """Queue a request that only max_tokens ends."""
        plan = Plan(tuple(token % 8 for token in prompt), **{"max_tokens": 32, "stops": False, **options})  # type: ignore[arg-type]
        request = make_request(plan, self._arrivals)
        self._arrivals += 1
        self.scheduler.add(request)
        return request

    def step(self, times: int = 1) -> list[SequenceUpdate]:
        updates: list[SequenceUpdate] = []
        for _ in range(times):
            self.out = self.scheduler.schedule()
            updates = self.scheduler.update(self.runner.execute(self.out))
            self.scheduler.check_integrity()
        return updates

    def run(self) -> None:
        while self.scheduler.has_unfinished():
            self.step()

    def scheduled(self, request: Request) -> int:
        """Return the last step's tokens for a request."""
        pairs = zip(self.out.seq_ids, self.out.num_scheduled_tokens, strict=True)
        return sum(count for seq_id, count in pairs if seq_id in {seq.seq_id for seq in request.sequences})


# -- budget and order -------------------------------------------------------------------------------------------------


def test_a_long_prompt_is_computed_in_chunks_of_the_budget() -> None:
    bench = Bench(max_num_batched_tokens=8)
    request = bench.add(range(20))
    counts = []
    while not request.sequences[0].num_output_tokens:
        bench.step()
        counts.append(bench.scheduled(request))
    assert counts == [8, 8, 4]


def test_decoding_goes_on_beside_a_long_prompt() -> None:
    bench = Bench(max_num_batched_tokens=8)
    first = bench.add(range(4))
    bench.step()
    second = bench.add(range(20))
    bench.step()
    assert (bench.scheduled(first), bench.scheduled(second)) == (1, 7)


def test_a_prompt_alone_takes_larger_chunks_than_beside_streams() -> None:
    bench = Bench(max_num_batched_tokens=16, max_tokens_beside_streams=6)
    first = bench.add(range(20))
    bench.step()
    assert bench.scheduled(first) == 16
    second, third = bench.add([1, *range(20)]), bench.add([2, *range(20)])
    bench.step()  # no sequence decodes yet
    assert [bench.scheduled(each) for each in (first, second, third)] == [4, 12, 0]
    bench.step()
    assert [bench.scheduled(each) for each in (first, second, third)] == [1, 5, 0]


def test_who_comes_back_with_a_long_prompt_holds_up_no_stream() -> None:
    bench = Bench(max_num_batched_tokens=8)
    stream = bench.add(range(4), priority=1)
    bench.step()
    long = bench.add(range(20))
    while not long.sequences[0].num_output_tokens:
        bench.step()
        assert bench.scheduled(stream) == 1
        assert bench.scheduled(long) <= 7


class SecondAToken(CostModel):
    """A step takes a second per computed token, and one per ten tokens that a chunk attends to."""

    def step(self, shape: StepShape) -> float:
        return shape.num_tokens + shape.attended / 200


@pytest.mark.parametrize(("target_itl_s", "expected"), [(50.0, [32, 32, 16, 16, 20]), (1.0, [16] * 7 + [4])])
def test_chunks_beside_streams_keep_to_a_target_as_far_as_prompts_go_on_at_all(
    target_itl_s: float, expected: list[int]
) -> None:
    costs = SecondAToken()
    bench = Bench(costs, num_blocks=64, max_model_len=256, max_num_batched_tokens=128, target_itl_s=target_itl_s)
    stream = bench.add(range(4))
    bench.step()
    long = bench.add(range(120))  # its first four are found
    chunks = []
    while not long.sequences[0].num_output_tokens:
        bench.step()
        assert bench.scheduled(stream) == 1
        chunks.append(bench.scheduled(long))
    assert chunks == expected
    assert bench.scheduler.budget.chunk_beside(StepShape(1, 1)) == expected[0]
    assert bench.scheduler.budget.chunk_beside(None) == 128


def test_several_prompts_fit_into_one_step() -> None:
    bench = Bench(max_num_batched_tokens=64)
    requests = [bench.add([i] * 5) for i in range(4)]
    updates = bench.step()
    assert [bench.scheduled(request) for request in requests] == [5, 5, 5, 5]
    assert len(updates) == 4


def test_the_first_to_come_goes_first() -> None:
    bench = Bench(max_num_seqs=1)
    requests = [bench.add(range(4), max_tokens=2) for _ in range(3)]
    order = []
    while bench.scheduler.has_unfinished():
        bench.step()
        order += [r.request_id for r in requests if r.status.is_finished and r.request_id not in order]
    assert order == [request.request_id for request in requests]


def test_a_smaller_priority_goes_first() -> None:
    bench = Bench(max_num_seqs=1)
    late, early = bench.add(range(4), priority=1), bench.add(range(4), priority=-1)
    bench.step()
    assert (early.status, late.status) == (RequestStatus.RUNNING, RequestStatus.WAITING)


def test_background_requests_run_only_while_no_other_runs_or_waits() -> None:
    bench = Bench(max_num_seqs=2)
    idle = [bench.add([number] * 12, max_tokens=6, priority=BACKGROUND) for number in range(3)]
    bench.step()
    assert [bench.scheduled(each) for each in idle] == [12, 12, 0]
    first, second = bench.add(range(4), max_tokens=2), bench.add([7], n=2, max_tokens=2)
    while first.sequences[0].finish_reason is None or second.unfinished:
        bench.step()
        assert sum(map(bench.scheduled, idle)) == 0
    bench.step()
    assert [bench.scheduled(each) for each in idle] == [1, 1, 0], "whose blocks were kept"
    while bench.scheduler.has_unfinished():
        bench.step()
    assert {each.num_preemptions - each.num_yields for each in idle} == {0}


def test_who_does_not_fit_is_not_overtaken() -> None:
    bench = Bench(num_blocks=16, max_model_len=64)
    bench.add(range(40))
    large, small = bench.add(range(1, 41)), bench.add([1])
    bench.step()
    assert (large.status, small.status) == (RequestStatus.WAITING, RequestStatus.WAITING)


def test_no_more_sequences_run_than_there_are_places() -> None:
    bench = Bench(max_num_seqs=4)
    requests = [bench.add([i], n=2) for i in range(3)]
    bench.step(3)
    assert [request.status for request in requests[1:]] == [RequestStatus.RUNNING, RequestStatus.WAITING]


def test_the_watermark_is_left_free_at_admission_and_not_beyond() -> None:
    for watermark, is_running in ((0, True), (4, True), (5, False)):
        bench = Bench(num_blocks=16, watermark_blocks=watermark)
        bench.add(range(24))
        second = bench.add(range(1, 25))
        bench.step()
        assert (second.status is RequestStatus.RUNNING) == is_running
        alone = Bench(num_blocks=16, watermark_blocks=watermark)
        request = alone.add(range(60), max_tokens=4)
        alone.run()
        assert request.status is RequestStatus.FINISHED_LENGTH


def test_blocks_promised_to_a_prompt_in_chunks_are_not_given_to_others() -> None:
    bench = Bench(num_blocks=10, max_num_batched_tokens=16, max_model_len=40)
    first = bench.add(range(33), max_tokens=1)  # nine blocks, four of them taken by the first chunk
    bench.step()
    second = bench.add([1] * 8, max_tokens=1)
    bench.step()
    assert second.status is RequestStatus.WAITING
    bench.run()
    assert first.num_preemptions == second.num_preemptions == 0


# -- preemption -------------------------------------------------------------------------------------------------------


def test_the_youngest_gives_way_and_comes_back_with_its_tokens() -> None:
    bench = Bench(num_blocks=9, max_model_len=36)
    old, young = bench.add(range(15), max_tokens=20), bench.add(range(1, 16), max_tokens=20)
    while young.status is not RequestStatus.PREEMPTED:
        bench.step()
    made = young.sequences[0].output_token_ids
    assert made
    assert (young.num_preemptions, bench.scheduler.queue.num_preempted, bench.scheduler.counts.preemptions) == (1, 1, 1)
    assert old.status is RequestStatus.RUNNING
    bench.run()
    assert old.num_preemptions == 0
    assert young.sequences[0].output_token_ids[: len(made)] == made
    for request, prompt in ((old, range(15)), (young, range(1, 16))):
        plan = Plan(tuple(token % 8 for token in prompt), max_tokens=20, stops=False)
        assert tuple(request.sequences[0].output_token_ids) == predict_samples(plan, bench.config)[0].tokens


@pytest.mark.parametrize(("has_caching", "lost"), [(True, [2]), (False, [7])])
def test_how_much_of_a_victim_is_lost_is_seen_when_it_comes_back(has_caching: bool, lost: list[int]) -> None:
    bench = Bench(num_blocks=16, max_model_len=64, enable_prefix_caching=has_caching)
    bench.add(range(32), max_tokens=11)
    young = bench.add(range(1, 25), max_tokens=12)
    while young.status is not RequestStatus.PREEMPTED:  # with 7 full blocks, when the first needs its tenth
        bench.step()
    record = bench.scheduler.recovery.log.open_record(young.request_id)
    assert record is not None
    assert record.forecast_evictions == (pytest.approx(2, abs=0.5) if has_caching else math.inf)
    bench.run()  # the first ends with 43 tokens in 11 blocks
    assert bench.scheduler.decider.evictions.expect(7, record.forecast_evictions) == lost


def test_a_request_with_several_sequences_is_preempted_whole() -> None:
    bench = Bench(num_blocks=12, max_model_len=48)
    bench.add(range(16), max_tokens=32)
    young = bench.add(range(1, 9), n=3, max_tokens=24)
    while young.status is not RequestStatus.PREEMPTED:
        bench.step()
    assert not any(seq.block_table or seq.is_in_runner for seq in young.sequences)
    bench.run()
    assert [len(seq.output_token_ids) for seq in young.sequences] == [24, 24, 24]


def test_the_policy_chooses_among_running_requests_that_the_step_does_not_hold_yet() -> None:
    offered: list[list[str]] = []

    class Noting(Recompute):
        def choose_victim(self, running: Seq[Request]) -> Request:
            offered.append([request.request_id for request in running])
            return super().choose_victim(running)

    bench = Bench(num_blocks=9, max_model_len=36)
    bench.scheduler.recovery.policy = Noting()
    for i in range(3):
        bench.add([i] * 11, max_tokens=20)
    bench.run()
    assert all("request-0" not in names for names in offered), "the oldest is never among them"
    assert ["request-1", "request-2"] in offered
    assert ["request-2"] in offered


# -- victims that were coming back -------------------------------------------------------------------------------------


class Scripted(RecoveryPolicy):
    """Preempts the youngest request by a given mode."""

    def __init__(self, mode: RecoveryMode, keep_from: int = 0) -> None:
        self.mode, self.keep_from = mode, keep_from

    def plan(self, victim: Victim, decider: LoadOrCompute) -> RecoveryPlan:
        return RecoveryPlan(self.mode, self.keep_from, {"swap": 1.0})


def bring_to_loading(
    policy: Scripted, num_arrived: int, *, always_loads: bool = True, **limits: int
) -> tuple[Bench, Request]:
    """Bring a request of eight full blocks to loading, with this many of its saved blocks left."""
    bench = Bench(num_swap_slots=64, enable_prefix_caching=False, **limits)
    policy.always_loads = always_loads
    bench.scheduler.recovery.policy = policy
    bench.add([7], max_tokens=60)
    young = bench.add(range(33))
    while young.sequences[0].num_output_tokens == 0:
        bench.step()
    preempt_youngest(bench)
    [seq] = young.sequences
    bench.step()
    num_loads = len(seq.loading.op_ids)
    while num_loads - len(seq.loading.op_ids) < num_arrived:
        bench.step()
    return bench, young


def preempt_youngest(bench: Bench) -> RecoveryRecord:
    """Preempt as the scheduler does without free blocks."""
    scheduler = bench.scheduler
    youngest = scheduler.queue.running[-1]
    scheduler.planner.preempt_for(scheduler.queue.running[0])
    assert youngest.status is RequestStatus.PREEMPTED
    recovery = scheduler.recovery.log.open_record(youngest.request_id)
    assert recovery is not None
    return recovery


def preempt_by(policy: Scripted) -> tuple[Bench, Request, RecoveryRecord]:
    """Return a request of eight full blocks that was just preempted."""
    bench = Bench(num_swap_slots=64, enable_prefix_caching=False)
    bench.scheduler.recovery.policy = policy
    bench.add([7])
    young = bench.add(range(33))
    bench.step(2)
    return bench, young, preempt_youngest(bench)


def test_a_victim_that_is_still_loading_loses_its_blocks_and_keeps_what_was_saved() -> None:
    bench, young = bring_to_loading(Scripted(RecoveryMode.SWAP), 1)
    [seq] = young.sequences
    assert seq.loading.op_ids
    saved = set(seq.block_keys[:8])
    recovery = preempt_youngest(bench)
    assert set(seq.swapped_keys) == saved
    assert recovery.num_freed == 0, "it tells nothing about how many blocks others lose"
    bench.scheduler.check_integrity()
    bench.run()
    plan = Plan(tuple(token % 8 for token in range(33)), max_tokens=32, stops=False)
    assert tuple(seq.output_token_ids) == predict_samples(plan, bench.config)[0].tokens


def test_a_victim_that_still_computes_the_front_saves_nothing_new() -> None:
    bench, young = bring_to_loading(Scripted(RecoveryMode.MIXED, keep_from=5), 0, max_num_batched_tokens=9)
    [seq] = young.sequences
    assert 0 < seq.num_computed_tokens // 4 < 5
    recovery = preempt_youngest(bench)
    assert seq.swapped_keys == seq.block_keys[5:8]
    assert (recovery.num_saved, recovery.num_freed) == (0, 0)
    bench.run()


def test_blocks_that_the_tier_has_need_no_saving() -> None:
    bench = Bench(num_swap_slots=64)
    bench.add([7])
    young = bench.add(range(33))
    bench.step(2)
    scheduler = bench.scheduler
    seq = young.sequences[0]
    scheduler.swap.swap_out([seq], 5, set(seq.block_table))  # the back half
    scheduler.swap.release(seq)
    while scheduler.swap.transfers:
        bench.step()
    victim = scheduler.recovery._describe(young, scheduler.recovery._freed_by(young), math.inf)
    num_later = victim.num_full_blocks - 8  # filled since then
    assert (victim.num_shared, victim.is_unsaved) == (0, [True] * 5 + [False] * 3 + [True] * num_later)


# -- what a returning request really did -------------------------------------------------------------------------------


def test_a_return_that_computes_what_was_saved_is_noted() -> None:
    bench, _, recovery = preempt_by(Scripted(RecoveryMode.SWAP))
    bench.scheduler.recovery.policy.always_loads = False
    bench.scheduler.decider.split_saved = lambda start, tiers: start + len(tiers)  # type: ignore[method-assign]
    bench.run()
    assert recovery.num_saved == 8
    assert recovery.num_loaded == 0
    assert recovery.fell_back


class SecondThoughts:
    """Approves transfers until told otherwise, and records the questions."""

    def __init__(self, bench: Bench) -> None:
        self.is_saving_late = self.is_loading_late = False
        self.asked: list[tuple[str, int, int]] = []
        bench.scheduler.recovery.policy.always_loads = False
        decider = bench.scheduler.decider
        decider.is_load_late, decider.is_save_late = self.is_load_late, self.is_save_late  # type: ignore[method-assign]

    def is_load_late(self, start: int, end: int, tiers: Seq[str]) -> bool:
        self.asked.append(("load", end - 4 * len(tiers), end))
        return self.is_loading_late

    def is_save_late(self, start: int, end: int) -> bool:
        self.asked.append(("save", start, end))
        return self.is_saving_late


def predicted(bench: Bench, request: Request) -> tuple[int, ...]:
    prompt = tuple(request.prompt_token_ids)
    return predict_samples(Plan(prompt, max_tokens=request.max_tokens, stops=False), bench.config)[0].tokens


def test_a_load_is_given_up_while_it_is_under_way_where_computing_has_become_shorter() -> None:
    bench, young = bring_to_loading(Scripted(RecoveryMode.SWAP), 2, always_loads=False)
    thoughts = SecondThoughts(bench)
    [seq] = young.sequences
    scheduler = bench.scheduler
    pending = sorted(seq.loading.op_ids)
    recovery = scheduler.recovery.log.open_record(young.request_id)
    assert recovery is not None
    thoughts.is_loading_late = True
    bench.step()
    assert thoughts.asked[0] == ("load", 32 - 4 * len(pending), 32), "what has not come yet"
    assert sorted(bench.out.cancelled) == pending
    bench.step()
    assert bench.out.cancelled == [], "once is enough"
    assert recovery.fell_back
    bench.run()
    num_cancelled = bench.runner.transfer_worker.num_cancelled
    assert num_cancelled == 8 - recovery.num_loaded > 0
    assert recovery.num_recomputed == 4 * num_cancelled + 1, "no block twice, and the last token"
    assert tuple(seq.output_token_ids) == predicted(bench, young)
    stats = scheduler.recovery.log.take_stats()
    assert stats is not None
    assert stats.cancelled_blocks == {"load": num_cancelled}


def test_a_save_is_given_up_while_it_is_under_way_where_computing_has_become_shorter() -> None:
    bench, young, recovery = preempt_by(Scripted(RecoveryMode.SWAP))
    thoughts = SecondThoughts(bench)
    bench.scheduler.queue.running[0].max_tokens = 60
    thoughts.is_saving_late = True
    bench.scheduler.queue.waiting.remove(young)  # it does not resume at once
    out = bench.scheduler.schedule()
    bench.scheduler.queue.waiting.append(young)
    assert thoughts.asked == [("save", 0, 8)]
    assert len(out.cancelled) == 8
    bench.scheduler.update(bench.runner.execute(out))
    bench.run()
    assert recovery.fell_back
    assert tuple(young.sequences[0].output_token_ids) == predicted(bench, young)


def test_who_leaves_leaves_the_link_nothing_to_do() -> None:
    bench, young = bring_to_loading(Scripted(RecoveryMode.SWAP), 2)
    pending = sorted(young.sequences[0].loading.op_ids)
    bench.scheduler.finish_request(young.request_id, RequestStatus.FINISHED_ABORTED)
    bench.step()
    assert sorted(bench.out.cancelled) == pending
    bench.run()
    assert bench.scheduler.kv.pool.num_used == 0


def test_a_return_after_everything_saved_was_lost_is_noted() -> None:
    bench, _, recovery = preempt_by(Scripted(RecoveryMode.SWAP))
    for key in list(bench.scheduler.swap.tier._entries):
        bench.scheduler.swap.tier.invalidate(key)
    bench.run()
    assert (recovery.num_saved, recovery.num_loaded) == (8, 0)
    assert recovery.fell_back


# -- sharing ----------------------------------------------------------------------------------------------------------


def test_a_common_prefix_is_computed_once_even_in_one_step() -> None:
    bench = Bench()
    first, second = bench.add([*range(16), 1]), bench.add([*range(16), 2])
    bench.step()
    assert (bench.scheduled(first), bench.scheduled(second)) == (17, 1)
    assert (first.num_cached_tokens, second.num_cached_tokens) == (0, 16)
    assert bench.scheduler.kv.pool.num_used == 6
    counts = bench.scheduler.counts
    assert (counts.prefix_queries, counts.prefix_hits) == (34, 16)


def test_without_prefix_caching_it_is_computed_twice() -> None:
    bench = Bench(enable_prefix_caching=False)
    first, second = bench.add([*range(16), 1]), bench.add([*range(16), 2])
    bench.step()
    assert (bench.scheduled(first), bench.scheduled(second)) == (17, 17)


def test_samples_share_the_blocks_of_their_prompt() -> None:
    bench = Bench()
    request = bench.add(range(18), n=4)
    bench.step()
    kv = bench.scheduler.kv
    assert (kv.pool.num_used, kv.num_logical_blocks) == (5, 20)
    bench.step()
    assert (kv.pool.num_used, kv.num_logical_blocks) == (8, 20), "each has a last block of its own now, and no more"
    assert len(bench.out.transfers) == 3
    assert len({tuple(seq.block_table[:4]) for seq in request.sequences}) == 1
    bench.run()


def test_samples_of_a_full_last_block_need_no_copy() -> None:
    bench = Bench()
    bench.add(range(16), n=4)
    bench.step(2)
    assert bench.out.transfers == []


def test_beams_share_what_they_have_in_common() -> None:
    bench = Bench()
    request = bench.add(range(16), beam=BeamSearchParams(4, 12))
    bench.step(12)
    kv = bench.scheduler.kv
    assert kv.num_logical_blocks > kv.pool.num_used
    assert len({tuple(seq.block_table[:4]) for seq in request.sequences}) == 1
    bench.run()
    assert len(request.beams.finished) == 4


def test_a_prompt_whose_log_probabilities_are_wanted_is_computed_in_full() -> None:
    bench = Bench()
    bench.add(range(16))
    second = bench.add(range(16), wants_prompt_logprobs=True)
    bench.step()
    assert (bench.scheduled(second), second.num_cached_tokens) == (16, 0)


def test_a_pinned_prefix_is_found_after_everything_else_was_evicted() -> None:
    bench = Bench(num_blocks=20)
    prefix = bench.add(range(12))
    bench.step(2)
    assert bench.scheduler.pin_prefix(prefix.request_id) == 3
    bench.scheduler.finish_request(prefix.request_id, RequestStatus.FINISHED_ABORTED)
    for i in range(5):
        bench.add([i] * 33, max_tokens=2)
    bench.run()
    later = bench.add([*range(12), 5])
    bench.step()
    assert later.num_cached_tokens == 12


def test_a_prefix_is_not_pinned_where_the_longest_sequence_would_not_fit_beside_it() -> None:
    bench = Bench(num_blocks=20, max_model_len=64)
    for num_tokens, more in ((17, 4), (21, 4)):
        request = bench.add(range(num_tokens))
        bench.step(2)
        if num_tokens == 17:
            assert bench.scheduler.pin_prefix(request.request_id) == more
            assert bench.scheduler.pin_prefix(request.request_id) == more, "again is harmless"
        else:
            with pytest.raises(ValueError, match="15 blocks left beside the pinned ones, too few for max_model_len=64"):
                bench.scheduler.pin_prefix(request.request_id)
        bench.scheduler.check_integrity()
        bench.scheduler.finish_request(request.request_id, RequestStatus.FINISHED_ABORTED)
    longest = bench.add([7] * 40, max_tokens=24)
    bench.run()
    assert longest.status is RequestStatus.FINISHED_LENGTH
    assert len(bench.scheduler.kv.pinned) == 4


# -- ends -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("token", "stop_reason"), [(EOS, None), (STOP, STOP)])
def test_a_stop_token_ends_a_sequence_and_only_the_clients_own_is_named(token: int, stop_reason: int | None) -> None:
    bench = Bench()
    request = bench.add([2, 3], stops=True)
    out = bench.scheduler.schedule()
    [update] = bench.scheduler.update(StepOutput(out.step_id, list(out.seq_ids), [[token]]))
    seq = update.sequence
    assert update.token_ids == [token]
    assert (seq.finish_reason, seq.stop_reason) == (RequestStatus.FINISHED_STOPPED, stop_reason)
    assert request.status is RequestStatus.FINISHED_STOPPED
    assert not bench.scheduler.has_unfinished()


def test_a_sequence_ends_at_the_longest_length_that_the_engine_serves() -> None:
    bench = Bench(max_model_len=16)
    request = bench.add(range(10), max_tokens=1000)
    bench.run()
    assert (request.status, len(request.sequences[0].token_ids)) == (RequestStatus.FINISHED_LENGTH, 16)


def test_samples_end_one_by_one_and_the_request_with_the_last() -> None:
    bench = Bench()
    request = bench.add([2, 3], n=2)
    bench.step(2)
    bench.scheduler.finish_sequence(request.sequences[1], RequestStatus.FINISHED_STOPPED, "a stop string")
    bench.scheduler.finish_sequence(request.sequences[1], RequestStatus.FINISHED_ABORTED)
    bench.scheduler.check_integrity()
    assert request.status is RequestStatus.RUNNING
    bench.run()
    ended, full = request.sequences[1], request.sequences[0]
    assert (ended.finish_reason, ended.stop_reason, ended.num_output_tokens) == (
        RequestStatus.FINISHED_STOPPED, "a stop string", 2,
    )  # fmt: skip
    assert (full.finish_reason, full.num_output_tokens) == (RequestStatus.FINISHED_LENGTH, 32)


STATES = ("waiting", "in chunks", "in flight", "decoding", "forked", "preempted", "parked", "beams", "parked beams")


def bring_to(state: str) -> tuple[Bench, Request]:
    """Bring a request into a state in which its client may leave."""
    if state == "waiting":
        bench = Bench(max_num_seqs=1)
        bench.add(range(4))
        request = bench.add(range(8))
        bench.step()
    elif state == "in chunks":
        bench = Bench(max_num_batched_tokens=8)
        request = bench.add(range(20))
        bench.step()
    elif state == "preempted":
        bench = Bench(num_blocks=9, max_model_len=36)
        bench.add(range(15))
        request = bench.add(range(1, 16))
        while request.status is not RequestStatus.PREEMPTED:
            bench.step()
    elif state in ("parked", "parked beams"):
        bench = Bench(num_blocks=5, max_model_len=20)
        more = {"beam": BeamSearchParams(4, 12)} if state == "parked beams" else {"n": 4}
        request = bench.add(range(6), **more)
        while len({bool(seq.block_table) for seq in request.unfinished}) < 2:
            bench.step()
    elif state == "beams":
        bench = Bench()
        request = bench.add(range(6), beam=BeamSearchParams(4, 12))
        bench.step(5)
    else:
        bench = Bench()
        request = bench.add(range(6), n=3 if state == "forked" else 1)
        bench.step(0 if state == "in flight" else 3)
    return bench, request


@pytest.mark.parametrize("state", STATES)
def test_an_abort_leaves_nothing_behind_in_any_state(state: str) -> None:
    bench, request = bring_to(state)
    scheduler = bench.scheduler
    out = scheduler.schedule() if state == "in flight" else None
    assert scheduler.finish_request(request.request_id, RequestStatus.FINISHED_ABORTED) is request
    assert scheduler.finish_request(request.request_id, RequestStatus.FINISHED_ABORTED) is None
    scheduler.check_integrity()
    if out is not None:
        assert scheduler.update(bench.runner.execute(out)) == []
    assert request.status is RequestStatus.FINISHED_ABORTED
    assert all(seq.finish_reason is not None and not seq.block_table for seq in request.sequences)
    bench.run()
    assert scheduler.kv.pool.num_used == 0
    bench.runner.execute(scheduler.schedule())
    assert not bench.runner.batch.row_of


def test_all_aborted_in_one_moment_leave_nothing_behind() -> None:
    for state in STATES:
        bench, _ = bring_to(state)
        for request_id in list(bench.scheduler.queue.requests):
            bench.scheduler.finish_request(request_id, RequestStatus.FINISHED_ABORTED)
        bench.scheduler.check_integrity()
        assert bench.scheduler.kv.pool.num_used == 0


# -- failures ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["early", "late"])
def test_a_failed_step_ends_its_requests_and_what_it_wrote_is_never_found(how: str) -> None:
    bench = Bench(max_num_seqs=1)
    hit, spared = bench.add(range(16)), bench.add(range(16))
    out = bench.scheduler.schedule()
    with pytest.raises(StepFailed):
        bench.runner.execute(out, fails=how)
    assert bench.scheduler.fail_step("the device is gone") == [hit]
    bench.scheduler.check_integrity()
    assert (hit.status, hit.error) == (RequestStatus.FINISHED_ERROR, "the device is gone")
    bench.step()
    assert spared.num_cached_tokens == 0
    bench.run()
    assert spared.status is RequestStatus.FINISHED_LENGTH


def test_a_sequence_without_numbers_fails_alone_and_its_blocks_are_never_found() -> None:
    bench = Bench()
    hit, spared = bench.add(range(16)), bench.add(range(1, 17))
    out = bench.scheduler.schedule()
    bench.scheduler.update(bench.runner.execute(out, poisoned=[0]))
    bench.scheduler.check_integrity()
    assert (hit.status, hit.error) == (RequestStatus.FINISHED_ERROR, "not numbers")
    assert spared.status is RequestStatus.RUNNING
    later = bench.add(range(16))
    bench.step()
    assert later.num_cached_tokens == 0


def test_a_step_is_taken_in_before_the_next_is_decided() -> None:
    bench = Bench()
    bench.add([1])
    out = bench.scheduler.schedule()
    with pytest.raises(AssertionError, match="neither been updated nor failed"):
        bench.scheduler.schedule()
    with pytest.raises(AssertionError, match="not of the step in flight"):
        bench.scheduler.update(StepOutput(out.step_id + 1))
    bench.scheduler.update(bench.runner.execute(out))
    with pytest.raises(AssertionError, match="no step is in flight"):
        bench.scheduler.fail_step("?")


# -- what can never run -----------------------------------------------------------------------------------------------


def test_what_can_never_run_is_refused_with_the_limit_that_it_breaks() -> None:
    bench = Bench(max_model_len=16, max_num_seqs=4)
    with pytest.raises(ValueError, match=r"the prompt has 16 tokens, and max_model_len=16 leaves room for at most 15"):
        bench.add(range(16))
    with pytest.raises(ValueError, match="the prompt is empty"):
        bench.add([])
    with pytest.raises(ValueError, match="n=5 is more than max_num_seqs=4"):
        bench.add([1], n=5)
    with pytest.raises(ValueError, match="beam_width=5 is more than max_num_seqs=4"):
        bench.add([1], beam=BeamSearchParams(5, 4))
    request = bench.add([1])
    with pytest.raises(ValueError, match=f"request id '{request.request_id}' is in use"):
        bench.scheduler.add(request)
    bench.run()
    bench.scheduler.check_integrity()


# -- messages ---------------------------------------------------------------------------------------------------------


def test_a_decode_step_says_as_little_after_a_long_context_as_after_a_short_one() -> None:
    sizes = []
    for length in (16, 4096):
        bench = Bench(num_blocks=8192, max_model_len=8192, max_num_batched_tokens=32768)
        for i in range(4):
            bench.add([i, *range(length)])
        bench.step(3)
        assert bench.out.new_sequences == []
        sizes.append(len(pickle.dumps(bench.out)))
    assert sizes[0] == sizes[1]


def test_a_schedule_can_be_played_again_to_the_same_steps() -> None:
    """The order of a batch depends on the requests only, not on addresses or hashes."""
    config = SchedulerConfig(num_blocks=12, block_size=4, max_num_seqs=8, max_num_batched_tokens=16, max_model_len=40)
    plans = tuple(Plan(tuple(range(1 + i % 7)), arrives=i % 3, n=1 + i % 3, max_tokens=12) for i in range(6))
    players = [play(Schedule(config, plans)) for _ in range(2)]
    assert players[0].step == players[1].step
    assert players[0].scheduler.counts == players[1].scheduler.counts
