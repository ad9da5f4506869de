"""The virtual clock matches hand calculations."""

from __future__ import annotations

from dataclasses import replace

import pytest

from quire.core.request import EndRules, Order, Request
from quire.core.scheduler import Scheduler
from quire.outputs import BlockTransfer, NewSequence, SchedulerOutput, StoreChanges, TransferReport
from quire.sampling_params import BeamSearchParams, SamplingParams
from quire.simulate.hardware import with_disk
from quire.simulate.paper_policies import make_compared_policy
from quire.simulate.virtual_runner import VirtualLink, VirtualRunner
from simulate.machines import ExactCosts, limits, machine

BLOCK = 1024


def new_sequence(
    seq_id: int, num_tokens: int, *, computed: int = 0, prompt: int | None = None, n: int = 1
) -> NewSequence:
    params = SamplingParams(n=n)
    num_prompt_tokens = num_tokens if prompt is None else prompt
    return NewSequence(seq_id, 0, [1] * num_tokens, num_prompt_tokens, computed, [], params, 0, num_samples=n)


def step(step_id: int, *work: tuple[int, int], **given: object) -> SchedulerOutput:
    seq_ids, counts = [seq_id for seq_id, _ in work], [count for _, count in work]
    return SchedulerOutput(step_id, seq_ids, counts, total_tokens=sum(counts), **given)  # type: ignore[arg-type]


def saves(*op_ids: int) -> list[BlockTransfer]:
    return [BlockTransfer(op_id, "save", op_id, op_id) for op_id in op_ids]


def loads(*op_ids: int) -> list[BlockTransfer]:
    return [BlockTransfer(op_id, "load", op_id, op_id) for op_id in op_ids]


def test_a_step_takes_what_the_profile_says_and_a_sequence_gets_its_token_once_it_is_computed() -> None:
    runner = VirtualRunner(machine(), BLOCK)
    result = runner.execute(step(1, (0, 16), new_sequences=[new_sequence(0, 20)]))
    assert (runner.now, result.seq_ids) == (2.0, [])
    result = runner.execute(step(2, (0, 4)))
    assert (runner.now, result.seq_ids, result.sampled) == (3.25, [0], [[0]])
    for at in range(3):
        result = runner.execute(step(3 + at, (0, 1)))
        assert runner.last.shape.context_decode == 20 + at
    assert (runner.now, result.seq_ids) == (3.25 + 3 * 1.0625, [0])


def test_a_shape_tells_prefill_from_decoding() -> None:
    runner = VirtualRunner(machine(), BLOCK)
    runner.execute(step(1, (0, 8), (1, 6), new_sequences=[new_sequence(0, 8), new_sequence(1, 10)]))
    assert runner.last.shape.attended == 8 * 4 + 6 * 3
    runner.execute(step(2, (0, 1), (1, 4)))
    shape = runner.last.shape
    assert (shape.num_tokens, shape.num_seqs, shape.attended, shape.context_decode) == (5, 2, 4 * (6 + 2), 8)


def test_steps_that_go_on_alike_are_counted_like_any_other() -> None:
    runner = VirtualRunner(machine(), BLOCK)
    runner.execute(step(1, (0, 4), (1, 6), new_sequences=[new_sequence(0, 4), new_sequence(1, 6)]))
    for at in range(5):
        runner.execute(step(2 + at, (0, 1), (1, 1)))
        assert runner.last.shape.context_decode == 10 + 2 * at
    runner.execute(step(7, (1, 1)))
    assert runner.last.shape.context_decode == 11
    runner.execute(step(8, (0, 1), (1, 1)))
    assert runner.last.shape.context_decode == 9 + 12


def test_a_prompt_that_forks_gets_all_its_tokens_at_once() -> None:
    runner = VirtualRunner(machine(), BLOCK)
    result = runner.execute(step(1, (0, 3), new_sequences=[new_sequence(0, 4, n=3)]))
    assert result.seq_ids == []
    assert runner.execute(step(2, (0, 1))).sampled == [[0, 0, 0]]
    assert runner.execute(step(3, (0, 1))).sampled == [[0]]


def test_a_forgotten_sequence_comes_back_as_what_it_is_said_to_be() -> None:
    runner = VirtualRunner(machine(), BLOCK)
    runner.execute(step(1, (0, 4), new_sequences=[new_sequence(0, 4)]))
    again = new_sequence(0, 5, computed=4, prompt=4)
    result = runner.execute(step(2, (0, 1), new_sequences=[again], removed_seq_ids=[0]))
    assert (result.seq_ids, runner.last.shape.context_decode) == ([0], 4)


def of_disk(transfers: list[BlockTransfer]) -> list[BlockTransfer]:
    return [replace(transfer, tier="disk") for transfer in transfers]


def told(reports: list[TransferReport]) -> list[tuple[str, list[int]]]:
    return [(report.kind, report.op_ids) for report in reports]


def test_the_link_serves_first_come_first_served() -> None:
    link = VirtualLink(ExactCosts(save_s=2.0, load_s=0.5), BLOCK)
    link.submit("save", [1], now=1.0)
    link.submit("load", [2], now=1.5)
    assert link.next_end == 3.0
    assert told(link.take_ended(3.25)) == [("save", [1])]
    assert told(link.take_ended(3.5)) == [("load", [2])]
    assert link.next_end is None
    link.submit("load", [3], now=10.0)
    assert link.next_end == 10.5


def test_the_link_tells_of_pieces_as_they_end_and_together_they_cost_what_the_whole_does() -> None:
    link = VirtualLink(ExactCosts(save_s=2**-10), BLOCK)
    link.submit("save", list(range(20)), now=0.0)
    first = link.take_ended(link.next_end or 0.0)
    assert first[0].op_ids == [0]
    reports = first + link.take_ended(1.0)
    sizes = [len(report.op_ids) for report in reports]
    assert sizes == sorted(sizes[:-1]) + sizes[-1:], "they grow, and the last one has the rest"
    assert len(sizes) >= 4
    assert [op_id for report in reports for op_id in report.op_ids] == list(range(20))
    assert sum(report.copy_s for report in reports) == 20 * 2**-10
    assert sum(report.num_bytes for report in reports) == 20 * BLOCK
    assert [report.continues for report in reports] == [False] + [True] * (len(reports) - 1)


def test_what_the_link_has_not_begun_can_be_cancelled() -> None:
    link = VirtualLink(ExactCosts(), BLOCK)
    link.submit("save", [1, 2, 3], now=0.0)
    link.submit("load", [4, 5], now=0.0)
    link.cancel([1, 3, 5, 77])
    assert told(link.take_ended(0.25)) == [("save", [1])], "it had begun"
    link.cancel([1])
    reports = link.take_ended(100.0)
    assert [(r.op_ids, r.is_cancelled, r.num_bytes, r.copy_s) for r in reports] == [
        ([2], False, BLOCK, 0.25),
        ([3], True, 0, 0.0),
        ([4], False, BLOCK, 0.5),
        ([5], True, 0, 0.0),
    ]
    assert link.next_end is None


def test_the_runner_tells_its_link_what_was_given_up() -> None:
    runner = VirtualRunner(machine(), BLOCK)
    runner.execute(step(1, transfers=saves(1, 2, 3)))
    result = runner.execute(step(2, cancelled=[2, 3]))
    assert told(result.transfers) == [("save", [2]), ("save", [3])], "the second had begun when the first one ended"
    assert [report.is_cancelled for report in result.transfers] == [False, True]
    assert runner.now == 0.5


def test_beside_the_steps_a_transfer_is_reported_with_the_step_in_which_it_ends() -> None:
    runner = VirtualRunner(machine(), BLOCK)
    new = [new_sequence(0, 16)]
    result = runner.execute(step(1, (0, 16), new_sequences=new, transfers=[*loads(4, 5, 6), *saves(1, 2, 3)]))
    assert runner.now == 2.0  # a step of 16 tokens; the saves end at 0.75, the later loads at 1.25, 1.75 and 2.25
    assert [kind for kind, _ in told(result.transfers)] == ["save"] * 3 + ["load"] * 2
    assert sum(report.copy_s for report in result.transfers) == 1.75
    result = runner.execute(step(2, (0, 1)))
    assert told(result.transfers) == [("load", [6])]
    assert (runner.now, runner.last.stall_s) == (3.0625, 0.0)


def test_where_swapping_stops_the_engine_a_step_is_longer_by_it() -> None:
    runner = VirtualRunner(machine(swap_is_synchronous=True), BLOCK)
    new = [new_sequence(0, 16)]
    result = runner.execute(step(1, (0, 16), new_sequences=new, transfers=[*saves(1, 2, 3), *loads(4, 5, 6)]))
    assert runner.now == 2.0 + 0.75 + 1.5
    assert [report.kind for report in result.transfers] == ["save", "load"]
    assert runner.last.stall_s == result.stall_s == 2.25


def test_with_nothing_to_compute_the_clock_goes_to_the_next_transfers_end() -> None:
    runner = VirtualRunner(machine(), BLOCK)
    result = runner.execute(step(1, transfers=[*saves(1), *loads(2)]))
    assert (runner.now, [report.kind for report in result.transfers]) == (0.25, ["save"])
    result = runner.execute(step(2))
    assert (runner.now, runner.last.wait_s, [report.kind for report in result.transfers]) == (0.75, 0.5, ["load"])
    assert runner.execute(step(3)).transfers == []
    assert runner.now == 0.75


@pytest.mark.parametrize("swap_is_synchronous", [False, True])
def test_each_tier_has_a_link_of_its_own_and_the_disks_never_stops_the_engine(swap_is_synchronous: bool) -> None:
    hardware = with_disk(machine(swap_is_synchronous=swap_is_synchronous), BLOCK, latency_s=1.0)
    runner = VirtualRunner(hardware, BLOCK)
    result = runner.execute(step(1, transfers=[*of_disk(loads(3)), *saves(1), *of_disk(saves(2))]))
    assert [(report.kind, report.op_ids, report.tier) for report in result.transfers] == [("save", [1], "host")]
    assert runner.now == 0.25
    assert runner.links["disk"].next_end == 2.0
    result = runner.execute(step(2))
    assert [(report.kind, report.op_ids, report.tier, report.copy_s) for report in result.transfers] == [
        ("save", [2], "disk", 2.0)
    ]
    result = runner.execute(step(3))
    assert [(report.kind, report.op_ids, report.tier) for report in result.transfers] == [("load", [3], "disk")]
    assert runner.now == 4.0


def test_a_wait_ends_with_an_arrival() -> None:
    runner = VirtualRunner(with_disk(machine(), BLOCK, latency_s=0.0), BLOCK)
    result = runner.execute(step(1, transfers=of_disk(loads(1))), until=0.5)
    assert (runner.now, runner.last.wait_s, result.transfers) == (0.5, 0.5, [])
    result = runner.execute(step(2), until=9.0)
    assert (runner.now, runner.last.wait_s, told(result.transfers)) == (1.0, 0.5, [("load", [1])])


def test_a_disks_transfers_can_be_cancelled_too() -> None:
    runner = VirtualRunner(with_disk(machine(), BLOCK), BLOCK)
    runner.execute(step(1, transfers=[*saves(1, 2), *of_disk(saves(3, 4))]))
    result = runner.execute(step(2, (0, 16), new_sequences=[new_sequence(0, 16)], cancelled=[2, 4]))
    cancelled = [(report.op_ids, report.tier) for report in result.transfers if report.is_cancelled]
    assert cancelled == [([4], "disk")], "the swap tier's had begun"


def test_claims_are_granted_before_the_next_step_and_no_time_passes() -> None:
    runner = VirtualRunner(machine(), BLOCK)
    assert runner.store.poll() is None
    runner.execute(step(1, claims=[(b"one", 5.0), (b"two", 5.0)], transfers=loads(1)))
    assert runner.now == 0.0
    runner.execute(step(2, claims=[(b"three", 5.0)], dropped_claims=[b"two", b"unknown"]))
    assert runner.store.poll() == StoreChanges(granted=[b"one", b"three"])
    assert runner.store.poll() is None


@pytest.mark.parametrize("policy", ["recompute", "swap", "threshold:12"])
def test_the_runner_sees_the_steps_that_the_scheduler_means(policy: str) -> None:
    scheduler = Scheduler(limits(), recovery=make_compared_policy(policy))
    runner = VirtualRunner(machine(), BLOCK)
    for number in range(8):
        beam = BeamSearchParams(beam_width=2, max_tokens=6) if number == 3 else None
        params = SamplingParams(n=2 if number == 5 else 1, max_tokens=None)
        prompt = [number + 1] * (3 + 2 * number)
        scheduler.add(Request(f"{number}", prompt, params, beam=beam, order=Order(0, number), ends=EndRules(14)))
    while scheduler.has_unfinished():
        out = scheduler.schedule()
        result = runner.execute(out)
        assert runner.last.shape == scheduler.step_shape
        scheduler.update(result)
        scheduler.check_integrity()
    assert scheduler.counts.preemptions > 0
