"""Documents' KV on a virtual disk: hits and times, compared with hand calculations."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from quire.core.decisions.cost_model import CostModel
from quire.core.decisions.costs import Costs
from quire.core.decisions.recovery_policy import make_policy
from quire.simulate.disk_costs import WithDisk
from quire.simulate.hardware import find_profile, with_disk
from quire.simulate.loads import ask_about_documents, draw_short_long
from quire.simulate.simulation import Arrival, SimulationFigures, simulate
from simulate.machines import BLOCK_BYTES, ExactCosts, limits, machine

DOCUMENT = 32  #: tokens; eight blocks


def about(which: int, time_s: float, num_own: int = 4, num_output: int = 1) -> Arrival:
    prompt = [which] * DOCUMENT + [1000 + int(time_s)] * num_own
    return Arrival(time_s, len(prompt), num_output, prompt, documents=(DOCUMENT,))


def run(
    arrivals: list[Arrival],
    *,
    block_s: float | None = None,
    is_synchronous: bool = False,
    policy: str = "recompute",
    num_blocks: int = 12,
    **more: int | bool,
) -> SimulationFigures:
    """Simulate with a disk that moves a block in `block_s`; None for no disk."""
    hardware = machine(swap_is_synchronous=is_synchronous)
    if block_s is not None:
        hardware = with_disk(hardware, BLOCK_BYTES / block_s, latency_s=0.0)
    config = limits(num_blocks=num_blocks, enable_prefix_caching=True, has_disk_tier=block_s is not None, **more)
    return simulate(arrivals, hardware, config, make_policy(policy))


def ttft_of_last(*arrivals: Arrival, block_s: float | None = None) -> float:
    """Return the TTFT of the last request, which runs alone."""
    found = run(list(arrivals), block_s=block_s)
    return found.makespan_s - arrivals[-1].time_s


FIRST = about(0, 0.0)
FLOOD = Arrival(900.0, 47, 1)  #: of a prompt that needs the whole pool
AGAIN = about(0, 1000.0)
# 16 tokens in 2 s, 16 in 2 s, and the last 4 in 1.25 s.
COMPUTED_S = 5.25


@pytest.mark.parametrize("is_synchronous", [False, True], ids=["beside", "stops"])
def test_a_document_that_the_device_has_lost_takes_the_time_of_its_load(is_synchronous: bool) -> None:
    assert ttft_of_last(FIRST, FLOOD, AGAIN) == COMPUTED_S
    found = run([FIRST, FLOOD, AGAIN], block_s=1 / 64, is_synchronous=is_synchronous)
    assert found.makespan_s == 1000 + 8 / 64 + 1.25
    assert (found.hits_by_tier, found.prefix_ways) == ({"disk": DOCUMENT}, {"load": 1})
    assert (found.wait_s, found.stall_s) == (8 / 64, 0.0)
    assert (found.load_s, found.num_preemptions) == (0.0, 0), "no request recovers"


def test_a_slow_disks_document_is_computed() -> None:
    found = run([FIRST, FLOOD, AGAIN], block_s=64)
    assert found.makespan_s == 1000 + COMPUTED_S
    assert (found.hits_by_tier, found.prefix_ways) == ({}, {"compute": 1})


def test_in_between_the_front_is_computed_while_the_back_is_loaded() -> None:
    # Loading everything takes 4 s, as does computing. With both, four blocks are computed in a step of 16 tokens, while
    # the other four load in 2 s.
    found = run([FIRST, FLOOD, AGAIN], block_s=0.5)
    assert found.makespan_s == 1000 + 2 + 1.25 < 1000 + min(COMPUTED_S, 4 + 1.25)
    assert (found.hits_by_tier, found.prefix_ways) == ({"disk": 16}, {"both": 1})


def test_what_the_device_has_is_not_loaded() -> None:
    found = run([FIRST, AGAIN], block_s=1 / 64)
    assert (found.hits_by_tier, found.prefix_ways) == ({"device": DOCUMENT}, {})


def test_without_a_disk_documents_share_the_devices_cache() -> None:
    found = run([FIRST, AGAIN, FLOOD, about(0, 2000.0)])
    assert (found.hits_by_tier, found.prefix_ways) == ({"device": DOCUMENT}, {})


def test_saves_do_not_delay_steps_nor_who_comes_while_they_go_on() -> None:
    load = [FIRST, about(1, 1.0), about(2, 7.5, num_output=3), Arrival(40.0, 9, 4), Arrival(77.25, 5, 2)]
    without, beside = run(load), run(load, block_s=32)  # the saves take more than ten minutes
    assert beside.makespan_s == without.makespan_s
    assert (beside.ttft_s, beside.tpot_s, beside.itl_s) == (without.ttft_s, without.tpot_s, without.itl_s)


def test_a_save_that_has_not_ended_is_not_found() -> None:
    # Three blocks are saved when the second request arrives; it has to compute the others anyway.
    load = [FIRST, Arrival(20.0, 47, 1), about(0, 32.0)]
    found = run(load, block_s=8)
    assert found.makespan_s == 32 + COMPUTED_S
    assert found.prefix_ways == {"compute": 1}


def test_a_document_that_two_wait_for_is_computed_once() -> None:
    found = run([FIRST, about(0, 0.0, num_output=3)], block_s=64)
    assert found.hits_by_tier == {"device": DOCUMENT}
    assert found.num_scheduled_tokens == DOCUMENT + 4 + 4 + 2


def test_a_document_is_loaded_while_its_request_waits_for_a_seat() -> None:
    # Three successive prompts need more than the pool; then one request has the only seat for twenty steps.
    floods = [FLOOD._replace(time_s=time_s) for time_s in (900.0, 925.0, 950.0)]
    load = [FIRST, *floods, Arrival(1000.0, 4, 20), about(0, 1000.0)]
    seat_s = 1.25 + 19 * 1.0625
    found = {on: run(load, block_s=1 / 8, num_blocks=24, max_num_seqs=1, enable_lookahead=on) for on in (False, True)}
    assert found[False].makespan_s == 1000 + seat_s + 8 / 8 + 1.25
    assert found[True].makespan_s == 1000 + seat_s + 1.25, "nothing is left to do but the question"
    assert found[True].hits_by_tier == found[False].hits_by_tier == {"disk": DOCUMENT}
    assert (found[False].prefix_ways, found[True].prefix_ways) == ({"load": 1}, {"ahead": 1})
    assert found[True].tpot_s == found[False].tpot_s, "who runs goes on as before"


def test_requests_without_documents_are_nothing_to_the_disk() -> None:
    load = draw_short_long(8, prompt_share=(0.001, 0.02))
    load = [each._replace(num_output_tokens=each.num_output_tokens % 9 + 1) for each in load]
    without, beside = run(load, policy="cost"), run(load, block_s=0.5, policy="cost")
    assert beside == without


@pytest.mark.parametrize("policy", ["swap", "cost"])
@pytest.mark.parametrize("block_s", [1 / 64, 0.5])
def test_the_same_documents_give_the_same_figures(policy: str, block_s: float) -> None:
    load = [about(at % 3, at * 1.5, num_own=1 + at % 5, num_output=11) for at in range(12)]
    found = run(load, policy=policy, block_s=block_s, num_blocks=20)
    assert found == run(load[::-1], policy=policy, block_s=block_s, num_blocks=20)
    assert found.num_requests == len(load)
    assert found.hits_by_tier["disk"] > 0
    assert found.num_preemptions > 0


def test_a_disk_needs_a_speed() -> None:
    policy = make_policy("recompute")
    config = limits(enable_prefix_caching=True, has_disk_tier=True)
    with pytest.raises(ValueError, match="exact has no costs of a disk"):
        simulate([FIRST], machine(), config, policy)
    with pytest.raises(ValueError, match="expected a bandwidth above 0"):
        WithDisk(ExactCosts(), 0.0)


def test_a_disk_takes_its_latency_and_its_bytes_and_the_rest_costs_what_it_did() -> None:
    costs = WithDisk(ExactCosts(), 2 * BLOCK_BYTES, latency_s=0.25)
    assert (costs.load(BLOCK_BYTES, "disk"), costs.save(4 * BLOCK_BYTES, "disk")) == (0.75, 2.25)
    assert (costs.load(0, "disk"), costs.load(BLOCK_BYTES), costs.save(BLOCK_BYTES)) == (0.0, 0.5, 0.25)
    assert costs.recompute(20, chunk=16) == ExactCosts().recompute(20, chunk=16)


@pytest.mark.parametrize(
    ("dtype", "bytes_per_s", "expected_s"),
    [("bfloat16", 1e8, 6.7 + 0.33), ("float32", 1e8, 8.3 + 0.17), ("float16", 1e8, 10.0), ("bfloat16", 2e9, 0.5)],
)
def test_kv_on_a_slow_disk_is_coded(dtype: str, bytes_per_s: float, expected_s: float) -> None:
    costs: Costs = with_disk(replace(machine(), kv_dtype=dtype), bytes_per_s, latency_s=0.0).costs
    assert costs.load(10**9, "disk") == costs.save(10**9, "disk") == pytest.approx(expected_s)


@pytest.mark.parametrize(("seconds_per_gb", "share"), [(10.0, 0.67), (0.5, 1.0)])
def test_a_measured_disk_is_read_coded_where_that_pays(seconds_per_gb: float, share: float, tmp_path: Path) -> None:
    model = CostModel()
    for kind, num_bytes in ((kind, num_bytes) for kind in ("save", "load") for num_bytes in (10**6, 10**7, 10**8) * 4):
        model.observe_transfer(kind, num_bytes, num_bytes * seconds_per_gb / 1e9, tier="disk")
    plain_s = model.load(10**8, "disk")
    path = tmp_path / "profile.json"
    path.write_text(json.dumps({"cost_model": model.to_dict(), "bytes_per_token": 64, "kv_dtype": "bfloat16"}))
    found = find_profile(str(path))
    assert found.has_disk
    assert found.costs.load(10**8, "disk") == pytest.approx(share * plain_s + (1 - share) * 0.1, rel=0.02)


def test_documents_come_before_the_prompts_that_were_drawn_and_few_are_asked_about_often() -> None:
    drawn = draw_short_long(400, seed=3)
    load = ask_about_documents(drawn, 10, 64, seed=3)
    prompts = [each.prompt_token_ids or [] for each in load]
    assert [len(prompt) for prompt in prompts] == [each.num_prompt_tokens for each in load]
    assert [each.num_prompt_tokens - 64 for each in load] == [each.num_prompt_tokens for each in drawn]
    assert {each.documents for each in load} == {(64,)}
    asked = Counter(tuple(prompt[:64]) for prompt in prompts)
    assert len(asked) == 10
    often = [count for _, count in asked.most_common()]
    assert 400 / 2.93 * 0.8 < often[0] < 400 / 2.93 * 1.2, "1 / (1 + 1/2 + ... + 1/10) of all"
    assert len({prompt[64] for prompt in prompts}) == 400, "what is asked is everybody's own"
    assert load == ask_about_documents(drawn, 10, 64, seed=3) != ask_about_documents(drawn, 10, 64, seed=4)
