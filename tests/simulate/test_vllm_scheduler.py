"""The discipline of vLLM 0.2.4: prompts in steps of their own, swapped-out requests first, copies within steps."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quire.config import SchedulerConfig
from quire.outputs import SchedulerOutput
from quire.simulate.hardware import HardwareProfile, cps_paper
from quire.simulate.paper_policies import make_compared_policy
from quire.simulate.simulation import Arrival, Simulation, SimulationFigures, simulate
from quire.simulate.virtual_runner import VirtualRunner
from quire.simulate.vllm_scheduler import MAX_PADDING, VllmScheduler
from simulate.machines import limits, machine

POLICIES = ["recompute", "swap", "threshold:12", "threshold:12:swap-above", "cost"]
LENGTHS = st.tuples(st.floats(0, 20), st.integers(1, 40), st.integers(1, 20))
ARRIVALS = st.lists(LENGTHS.map(lambda each: Arrival(*each)), min_size=1, max_size=8)
CONFIG = limits(max_model_len=44, max_num_batched_tokens=48)

# Six blocks of four tokens. After one token more than their prompts, both requests hold three.
CROWD = [Arrival(0.0, 8, 12), Arrival(0.0, 8, 8)]
SMALL = limits(num_blocks=6, max_model_len=20, max_num_batched_tokens=48)


def run(load: list[Arrival], config: SchedulerConfig, policy: str) -> SimulationFigures:
    return simulate(load, machine(), config, make_compared_policy(policy), engine="vllm-0.2.4")


def begin(
    load: list[Arrival], config: SchedulerConfig, policy: str, hardware: HardwareProfile | None = None
) -> tuple[VllmScheduler, Simulation]:
    hardware = hardware or machine(swap_is_synchronous=True)
    scheduler = VllmScheduler(config, make_compared_policy(policy), hardware.costs)
    simulation = Simulation(scheduler, VirtualRunner(hardware, config.block_bytes))
    for arrival in load:
        simulation.add(arrival)
    return scheduler, simulation


def steps_of(load: list[Arrival], config: SchedulerConfig, policy: str) -> list[SchedulerOutput]:
    scheduler, simulation = begin(load, config, policy)
    steps = []
    while scheduler.has_unfinished():
        steps.append(simulation.step())
    return steps


def kinds(step: SchedulerOutput) -> str:
    """The kinds of a step's transfers, without repetition."""
    return " ".join(sorted({transfer.kind for transfer in step.transfers}))


def test_prompts_are_whole_and_have_steps_of_their_own() -> None:
    load = [Arrival(0.0, 20, 3), Arrival(0.0, 18, 3), Arrival(0.0, 12, 2)]
    steps = steps_of(load, limits(num_blocks=20, max_model_len=40, max_num_batched_tokens=40), "recompute")
    # Twenty and eighteen tokens, padded to forty, fill the first step; the third prompt comes before any decoding.
    assert [step.num_scheduled_tokens for step in steps] == [[20, 18], [12], [1, 1, 1], [1, 1]]


def test_a_step_pads_its_prompts_to_the_longest() -> None:
    config = limits(num_blocks=400, max_model_len=1500, max_num_batched_tokens=9999)
    steps = steps_of([Arrival(0.0, MAX_PADDING + 1, 1), *[Arrival(0.0, 2, 1)] * 2], config, "recompute")
    assert [step.num_scheduled_tokens for step in steps] == [[MAX_PADDING + 1, 2], [2]]


def test_a_recomputed_request_is_a_prompt_that_takes_its_blocks_back_at_once() -> None:
    steps = [step.num_scheduled_tokens for step in steps_of(CROWD, SMALL, "recompute")]
    # Without a free block the younger request is preempted, though its last block has room. Its three blocks are free
    # then, so it is computed again in the next step, and preempted in the one after, until the older needs a block.
    assert steps[:9] == [[8, 8], [1, 1], [1], [10], [1], [11], [1], [12], [1]]
    assert steps[9:15] == [[1]] * 6
    assert steps[15:] == [[13], [1], [1]]


def test_a_watermark_keeps_it_waiting() -> None:
    config = replace(SMALL, num_blocks=7, watermark_blocks=1)
    steps = [step.num_scheduled_tokens for step in steps_of(CROWD, config, "recompute")]
    assert [step for step in steps if max(step) > 1] == [[8, 8], [13]]


def test_a_swapped_out_request_goes_on_in_the_step_that_loads_it() -> None:
    steps = steps_of(CROWD, SMALL, "swap")
    moved = [(at, kinds(step), step.num_scheduled_tokens) for at, step in enumerate(steps) if step.transfers]
    assert moved == [(2, "save", [1]), (12, "load", [1])]
    assert all(len(step.transfers) in (0, 3) for step in steps), "the last block moves too, though it is not full"
    assert all(max(step.num_scheduled_tokens) == 1 for step in steps[1:])


def test_no_prompt_begins_while_a_request_is_swapped_out() -> None:
    scheduler, simulation = begin(CROWD, SMALL, "swap")
    while not scheduler.swapped:
        simulation.step()
    late = simulation.add(Arrival(0.0, 4, 2))
    assert scheduler.kv.pool.num_available == 3
    while scheduler.swapped:
        assert late not in simulation.step().seq_ids
    assert simulation.step().seq_ids == [late]


def test_copies_stop_the_step_by_hand() -> None:
    found = run(CROWD, SMALL, "swap")
    assert (found.save_s, found.load_s, found.stall_s, found.wait_s) == (3 * 0.25, 3 * 0.5, 2.25, 0)
    num_decodes = 11 + 7 - 1  # one step computes a token of both
    assert found.makespan_s == 2 + num_decodes * 1 + (11 + 7) / 16 + 2.25


def test_cost_takes_the_cheaper_mode() -> None:
    # Ten tokens in a step of their own take 1.625 s, three blocks out and in 2.25 s.
    assert set(run(CROWD, SMALL, "cost").preemptions_by_mode) == {"recompute"}
    cheap = simulate(CROWD, machine(load_s=0.125), SMALL, make_compared_policy("cost"), engine="vllm-0.2.4")
    assert cheap.preemptions_by_mode == {"swap": 1}


def test_without_slots_it_recomputes() -> None:
    found = run(CROWD, replace(SMALL, num_swap_slots=2), "swap")
    assert set(found.preemptions_by_mode) == {"recompute"}


@settings(deadline=None, max_examples=60)
@given(ARRIVALS, st.sampled_from(POLICIES), st.sampled_from([0, 5, 64]), st.integers(0, 2), st.floats(0.001, 2))
def test_steps_keep_the_rules_and_blocks_and_tokens_are_conserved(
    load: list[Arrival], policy: str, num_slots: int, watermark: int, load_s: float
) -> None:
    config = replace(CONFIG, num_blocks=12 + watermark, watermark_blocks=watermark, num_swap_slots=num_slots)
    scheduler, simulation = begin(load, config, policy, machine(swap_is_synchronous=True, load_s=load_s))
    pool = scheduler.kv.pool
    while scheduler.has_unfinished():
        had_swapped = bool(scheduler.swapped)
        out = simulation.step()
        scheduler.check_integrity()
        num_swapped = sum(scheduler.kv.blocks_for(num_tokens) for num_tokens in scheduler.swapped.values())
        assert scheduler.num_free_slots + num_swapped == num_slots
        assert "load save" not in kinds(out)
        begun = {new.seq_id for new in out.new_sequences if new.num_computed_tokens == 0}
        assert begun in (set(), set(out.seq_ids)), "a step computes prompts or single tokens"
        assert not (begun and had_swapped)
        assert begun or set(out.num_scheduled_tokens) <= {1}
    assert (pool.num_available, scheduler.num_free_slots) == (pool.num_blocks, num_slots)
    found = simulation.finish()
    assert found.num_output_tokens == sum(min(each.num_output_tokens, 44 - each.num_prompt_tokens) for each in load)
    needed = found.num_prompt_tokens + found.num_output_tokens - found.num_requests
    assert found.num_scheduled_tokens == needed + found.num_recomputed_tokens
    assert sum(found.preemptions_by_mode.values()) == found.num_preemptions


@pytest.mark.parametrize(
    ("given_limits", "message"),
    [
        ({"max_model_len": 48}, "lower max_model_len=48 to 44, or enlarge the pool"),
        ({"max_model_len": 44, "watermark_blocks": 1}, "lower max_model_len=44 to 40"),
        ({"max_model_len": 44, "max_num_batched_tokens": 43}, "raise max_num_batched_tokens=43 to max_model_len=44"),
        ({"max_model_len": 44, "max_num_batched_tokens": 44, "enable_prefix_caching": True}, "no prefix caching"),
    ],
)
def test_limits_at_which_requests_could_wait_for_ever_are_refused(given_limits: dict[str, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        run(CROWD, limits(**given_limits), "recompute")


def test_the_papers_machine_swaps_short_and_recomputes_long_requests() -> None:
    load = [Arrival(0.0, 60, 900), Arrival(0.0, 60, 900), Arrival(0.0, 1100, 300)]
    config = limits(num_blocks=110, block_size=16, max_model_len=1500, max_num_batched_tokens=8192)
    config = replace(config, num_swap_slots=999, block_bytes=16 * 12_288)
    found = simulate(load, cps_paper(), config, make_compared_policy("threshold:1024"), engine="vllm-0.2.4")
    assert {"recompute", "swap"} == set(found.preemptions_by_mode)
