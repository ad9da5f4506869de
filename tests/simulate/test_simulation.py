"""A simulated run is deterministic and uses the real scheduler to the last request."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quire.core.decisions.cost_model import CostModel
from quire.simulate.hardware import HardwareProfile, cps_paper
from quire.simulate.loads import (
    BOUNDARY,
    CHAT_LONGEST_PROMPT,
    LONGEST,
    SHORTEST,
    arrive,
    draw_chat,
    draw_short_long,
    speed_up,
)
from quire.simulate.paper_policies import make_compared_policy
from quire.simulate.simulation import Arrival, SimulationFigures, simulate
from simulate.machines import limits, machine

POLICIES = ["recompute", "swap", "threshold:12", "threshold:12:swap-above", "cost"]
LENGTHS = st.tuples(st.floats(0, 20), st.integers(1, 40), st.integers(1, 20))
ARRIVALS = st.lists(LENGTHS.map(lambda each: Arrival(*each)), min_size=1, max_size=8)


def run(
    arrivals: list[Arrival], policy: str = "recompute", hardware: HardwareProfile | None = None, **given: int | bool
) -> SimulationFigures:
    hardware = hardware or machine()
    return simulate(arrivals, hardware, limits(**given), make_compared_policy(policy))


def test_one_request_by_hand() -> None:
    found = run([Arrival(5.0, 20, 3)])
    # 16 tokens in 2 s, 4 in 1.25 s, and two more steps of one token
    assert found.ttft_s is not None
    assert found.tpot_s is not None
    assert (found.ttft_s.mean, found.tpot_s.mean, found.makespan_s) == (3.25, 1.0625, 5 + 3.25 + 2 * 1.0625)
    assert (found.num_steps, found.num_scheduled_tokens, found.num_preemptions) == (4, 22, 0)


def test_two_requests_share_a_step() -> None:
    found = run([Arrival(0.0, 8, 2), Arrival(0.0, 8, 2)])
    assert found.itl_s is not None
    assert (found.itl_s.count, found.itl_s.mean) == (2, 1.125)
    assert found.makespan_s == 2 + 1.125


def test_a_request_that_comes_in_the_middle_of_a_step_waits_for_its_end() -> None:
    found = run([Arrival(0.0, 16, 1), Arrival(1.5, 16, 1)])
    assert found.ttft_s is not None
    assert (found.ttft_s.largest, found.makespan_s) == (2.5, 4.0)


# Six blocks; both requests grow beyond three. When the older one needs its fourth block, the younger, with 12 tokens
# computed, is preempted, and resumes after the older one has ended.
CROWD = [Arrival(0.0, 8, 16), Arrival(0.0, 8, 8)]
SMALL = {"num_blocks": 6, "max_model_len": 24}


def test_computing_again_by_hand() -> None:
    found = run(CROWD, "recompute", **SMALL)
    assert found.preemptions_by_mode == {"recompute": 1}
    assert found.num_recomputed_tokens == 12
    assert found.recompute_s == pytest.approx(12 / 16)
    assert (found.save_s, found.load_s, found.stall_s, found.wait_s) == (0, 0, 0, 0)


def test_swapping_beside_the_steps_by_hand() -> None:
    found = run(CROWD, "swap", **SMALL)
    assert found.preemptions_by_mode == {"swap": 1}
    assert (found.save_s, found.load_s, found.stall_s) == (0.75, 1.5, 0)
    assert found.num_recomputed_tokens == 0
    assert found.wait_s == 1.5  # it loads alone


def test_swapping_that_stops_the_engine_by_hand() -> None:
    found = run(CROWD, "swap", machine(swap_is_synchronous=True), **SMALL)
    assert (found.save_s, found.load_s, found.stall_s, found.wait_s) == (0.75, 1.5, 2.25, 0)
    beside = run(CROWD, "swap", **SMALL)
    assert found.makespan_s == beside.makespan_s + 0.75


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("swap_is_synchronous", [False, True])
def test_the_same_load_gives_the_same_figures(policy: str, swap_is_synchronous: bool) -> None:
    hardware = replace(cps_paper(), swap_is_synchronous=swap_is_synchronous)
    load = [Arrival(0.05 * at, 5 + 3 * at % 31, 25) for at in range(12)]
    first, second = run(load, policy, hardware), run(load[::-1], policy, hardware)
    assert first.num_preemptions > 0
    assert first == run(load, policy, hardware)
    assert second.num_output_tokens == first.num_output_tokens


@settings(deadline=None, max_examples=30)
@given(ARRIVALS, st.sampled_from(POLICIES), st.booleans(), st.sampled_from([0, 3, 64]), st.floats(0.001, 20))
def test_every_request_ends_and_every_token_is_accounted_for(
    load: list[Arrival], policy: str, swap_is_synchronous: bool, num_swap_slots: int, load_s: float
) -> None:
    hardware = machine(swap_is_synchronous=swap_is_synchronous, load_s=load_s)
    found = run(load, policy, hardware, num_swap_slots=num_swap_slots)
    assert found.num_requests == len(load)
    assert found.num_refused == 0
    assert found.num_output_tokens == sum(min(each.num_output_tokens, 48 - each.num_prompt_tokens) for each in load)
    assert found.ttft_s is not None
    assert found.ttft_s.count == len(load)
    # The KV of a request's last token is never computed.
    needed = found.num_prompt_tokens + found.num_output_tokens - found.num_requests
    assert found.num_scheduled_tokens == needed + found.num_recomputed_tokens
    assert sum(found.preemptions_by_mode.values()) == found.num_preemptions
    # Apart from computing, stalling and waiting for blocks, the engine was idle before the first request.
    idle_s = found.makespan_s - found.compute_s - found.stall_s - found.wait_s
    assert min(load).time_s - 1e-6 <= idle_s <= max(load).time_s + 1e-6


def test_what_never_fits_is_refused_and_what_is_too_long_is_cut() -> None:
    found = run([Arrival(0.0, 48, 1), Arrival(0.0, 40, 20), Arrival(0.0, 4, 4)])
    assert (found.num_requests, found.num_refused, found.num_cut, found.num_output_tokens) == (2, 1, 1, 8 + 4)
    with pytest.raises(ValueError, match="none of 1 requests fits max_model_len=48"):
        run([Arrival(0.0, 60, 1)])


def test_swapping_needs_to_know_how_large_a_block_is() -> None:
    with pytest.raises(ValueError, match="block_bytes=0"):
        run([Arrival(0.0, 4, 4)], block_bytes=0)


def test_prompts_share_prefixes_only_where_they_are_given() -> None:
    prompt = list(range(100, 132))
    apart = run([Arrival(0.0, 32, 1), Arrival(9.0, 32, 1)], enable_prefix_caching=True)
    alike = [Arrival(0.0, 32, 1, prompt), Arrival(9.0, 32, 1, prompt)]
    assert apart.num_scheduled_tokens - run(alike, enable_prefix_caching=True).num_scheduled_tokens == 28


@pytest.mark.parametrize("policy", ["recompute", "swap"])
def test_prompts_that_share_nothing_need_no_digests(policy: str) -> None:
    config = limits(num_blocks=24, enable_prefix_caching=True, max_num_seqs=4)
    plain = [Arrival(float(at % 5), 3 + 7 * at % 30, 2 + 5 * at % 25) for at in range(20)]
    ordered = sorted(plain, key=lambda arrival: arrival.time_s)
    told = [
        arrival._replace(prompt_token_ids=[at + 1] * arrival.num_prompt_tokens) for at, arrival in enumerate(ordered)
    ]
    found = [simulate(load, machine(), config, make_compared_policy(policy)) for load in (plain, told)]
    assert found[0] == found[1]
    assert found[0].num_preemptions > 0


def test_a_policy_may_believe_something_else_and_learn() -> None:
    hardware = machine()
    learner = CostModel()
    load = [Arrival(0.0, 12, 30) for _ in range(10)]
    found = simulate(load, hardware, limits(), make_compared_policy("cost"), learner=learner)
    assert learner.steps.num_observed == found.num_steps


# -- loads -------------------------------------------------------------------------------------------------------------


def test_half_of_the_mix_is_short_and_half_is_long() -> None:
    load = draw_short_long(200, seed=3)
    totals = [each.num_prompt_tokens + each.num_output_tokens for each in load]
    assert sum(total <= BOUNDARY for total in totals) == 100
    assert min(totals) >= SHORTEST
    assert max(totals) <= LONGEST
    assert all(each.num_prompt_tokens >= 1 and each.num_output_tokens >= 1 and each.time_s == 0 for each in load)
    assert load == draw_short_long(200, seed=3)
    assert load != draw_short_long(200, seed=4)


def test_an_odd_number_has_no_halves() -> None:
    with pytest.raises(ValueError, match="7 requests cannot be half short and half long"):
        draw_short_long(7)


def test_the_prompts_share_can_be_chosen() -> None:
    prompts = draw_short_long(20, prompt_share=(0.0, 0.0))
    assert {each.num_prompt_tokens for each in prompts} == {1}
    with pytest.raises(ValueError, match=r"prompts of 0\.9 to 0\.1 of a request"):
        draw_short_long(20, prompt_share=(0.9, 0.1))


def test_answers_of_chats_are_longer_than_prompts() -> None:
    load = draw_chat(200, seed=3)
    totals = [each.num_prompt_tokens + each.num_output_tokens for each in load]
    assert sum(total <= BOUNDARY for total in totals) == 100
    assert (min(totals) >= SHORTEST, max(totals) <= LONGEST) == (True, True)
    assert max(each.num_prompt_tokens for each in load) <= CHAT_LONGEST_PROMPT
    assert sum(each.num_output_tokens for each in load) > 2 * sum(each.num_prompt_tokens for each in load)
    assert load == draw_chat(200, seed=3) != draw_chat(200, seed=4)


def test_drawn_requests_can_arrive_one_after_another() -> None:
    load = draw_chat(400)
    times = [each.time_s for each in arrive(load, rate=2.0, seed=1)]
    assert times == sorted(times)
    assert times[-1] == pytest.approx(200, rel=0.2)
    assert [each._replace(time_s=0.0) for each in arrive(load, rate=2.0, seed=1)] == load


def test_a_trace_can_be_played_faster() -> None:
    assert [each.time_s for each in speed_up([Arrival(0.0, 1, 1), Arrival(3.0, 1, 1)], 2)] == [0.0, 1.5]
    with pytest.raises(ValueError, match="a speed-up of 0"):
        speed_up([], 0)


def test_scaled_decode_steps_make_a_decoding_run_longer_and_nothing_else() -> None:
    load = [Arrival(0.0, 16, 40)]
    config = replace(limits(max_model_len=48), block_bytes=12_288 * 4)
    slow, usual = (simulate(load, cps_paper(s), config, make_compared_policy("recompute")) for s in (2.0, 1.0))
    assert slow.tpot_s is not None
    assert usual.tpot_s is not None
    assert slow.tpot_s.mean == pytest.approx(2 * usual.tpot_s.mean)


# -- hours of load -----------------------------------------------------------------------------------------------------

HOUR_S = 3600.0


def stream(every_s: float, until_s: float, priority: int = 0) -> list[Arrival]:
    """Evenly spaced requests of about two seconds each on an idle machine."""
    count = int(until_s / every_s)
    return [Arrival(every_s * number, 8, 4, priority=priority) for number in range(count)]


def longest_wait(arrivals: list[Arrival], **given: int | bool) -> float:
    found = run(arrivals, "cost", **given)
    assert found.num_requests == len(arrivals)
    assert found.ttft_s is not None
    return found.ttft_s.largest


def test_over_hours_below_capacity_no_request_waits_long_at_any_priority() -> None:
    urgent, patient = stream(4.0, 2 * HOUR_S), stream(9.0, 2 * HOUR_S, priority=1)
    assert longest_wait([*urgent, *patient], **SMALL) < 60


def test_larger_priorities_wait_as_long_as_smaller_ones_leave_no_room_and_no_longer() -> None:
    urgent, patient = stream(1.5, HOUR_S / 3), stream(60.0, HOUR_S / 3, priority=1)
    alone = run(urgent, "cost", **SMALL)
    assert alone.makespan_s > HOUR_S / 2  # they arrive faster than they are served
    waited = longest_wait([*urgent, *patient], **SMALL)
    assert alone.makespan_s - 60 < waited < alone.makespan_s + 60


def test_among_equals_no_request_waits_for_a_later_one() -> None:
    crowd = stream(1.5, HOUR_S / 3)
    backlog_s = run(crowd, "cost", **SMALL).makespan_s - crowd[-1].time_s
    assert HOUR_S / 6 < longest_wait(crowd, **SMALL) < backlog_s
