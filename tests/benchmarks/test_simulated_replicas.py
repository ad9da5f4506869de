"""A simulated fleet loses and repeats no request, is deterministic, and with one replica equals that engine."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.replicas.conversations import draw_conversations
from benchmarks.replicas.replicas import Fleet, FleetFigures, simulate_replicas
from benchmarks.replicas.virtual_replica import ColdStart, VirtualReplica
from quire.routing import SLO
from quire.routing.replicas import POLICIES, Autoscaling
from quire.simulate.hardware import cps_paper
from quire.simulate.paper_policies import make_compared_policy
from quire.simulate.simulation import Arrival, simulate
from simulate.machines import limits, machine

#: Prompts with common prefixes, and answers long enough to continue undisturbed.
LENGTHS = st.tuples(st.floats(0, 60), st.integers(1, 30), st.integers(1, 30), st.sampled_from((0, 1, 2)))
ARRIVALS = st.lists(LENGTHS, min_size=1, max_size=10)
CONFIG = limits(num_blocks=20, enable_prefix_caching=True, max_num_seqs=4)


def load(lengths: list[tuple[float, int, int, int]]) -> list[Arrival]:
    return [Arrival(time_s, size, answer, [1 + kind] * size) for time_s, size, answer, kind in lengths]


def play(arrivals: list[Arrival], num_replicas: int = 1, **given: Any) -> FleetFigures:
    config = given.pop("config", CONFIG)
    return simulate_replicas(arrivals, machine(), config, num_replicas, slo=SLO(ttft_s=10.0), **given)


@settings(max_examples=8, deadline=None)
@given(ARRIVALS, st.sampled_from(("recompute", "swap", "cost")))
def test_one_replica_is_the_plain_simulator_whatever_the_policy(
    lengths: list[tuple[float, int, int, int]], recovery: str
) -> None:
    arrivals = [*load(lengths), Arrival(1.0, 60, 1)]  # one is rejected
    plain = simulate(arrivals, machine(), CONFIG, make_compared_policy(recovery))
    for routing in POLICIES:
        found = play(arrivals, routing=routing, recovery=recovery)
        assert asdict(found.by_replica[0]) == {**asdict(plain), "num_refused": 0}
        assert (found.num_refused, found.makespan_s) == (plain.num_refused, plain.makespan_s)


@settings(max_examples=15, deadline=None)
@given(ARRIVALS, st.integers(1, 4), st.sampled_from(sorted(POLICIES)), st.sampled_from((None, 0.0, 2.0, 20.0)))
def test_every_request_is_answered_once_and_every_time_alike(
    lengths: list[tuple[float, int, int, int]], size: int, routing: str, more_s: float | None
) -> None:
    checked: list[VirtualReplica] = []
    run_until, start = VirtualReplica._run_until, Fleet.start

    def run_and_check(self: VirtualReplica, now: float) -> None:
        run_until(self, now)
        self.simulation.scheduler.check_integrity()
        checked.append(self)

    def start_and_check(self: Fleet, *args: Any, **kwargs: Any) -> None:
        start(self, *args, **kwargs)
        draining = [each for each in self.router.replicas.values() if each.is_draining]
        assert len(self._alive) - len(draining) <= size

    scaled: dict[str, Any] = {}
    if more_s is not None:
        scaled = {"cold_start": ColdStart(1.5, 1.5 + more_s), "scaling": Autoscaling(0, size, 2.0, 5.0, 3.0)}
    arrivals = load(lengths)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(VirtualReplica, "_run_until", run_and_check)
        patch.setattr(Fleet, "start", start_and_check)
        found = play(arrivals, size, routing=routing, **scaled)
    numbers = [number for replica in set(checked) for number in replica.numbers]
    assert sorted(numbers) == list(range(len(arrivals)))
    assert found.num_requests == len(arrivals)
    longest = CONFIG.max_model_len
    assert found.num_output_tokens == sum(
        min(each.num_output_tokens, longest - each.num_prompt_tokens) for each in arrivals
    )
    assert all(not replica.simulation.scheduler.queue.requests for replica in checked)
    if more_s is None:
        assert found.most_replicas == size
    assert asdict(play(arrivals, size, routing=routing, **scaled)) == asdict(found)


def test_a_cold_replica_serves_from_its_first_stage_on() -> None:
    # Started at the first check, it serves 2 s later; 16 tokens take 2 s of the full model, and half of that at first.
    scaling = Autoscaling(0, 1, idle_s=100.0)
    arrivals = [Arrival(0.0, 16, 2), Arrival(20.0, 16, 2)]
    found = play(arrivals, scaling=scaling, cold_start=ColdStart(2.0, 10.0, share=0.5))
    assert found.ttft_s is not None
    assert found.tpot_s is not None
    first_s = found.ttft_s.largest - 2.0 - 1.0
    assert 0 <= first_s <= 0.25, "until the autoscaler looked"
    assert 2 * found.ttft_s.mean - found.ttft_s.largest == 2.0
    assert found.tpot_s.mean == (0.5 + 1) * (1 + 1 / 16) / 2
    assert found.num_started == 1


def test_from_zero_to_zero_and_back() -> None:
    arrivals = [Arrival(at + 0.1 * number, 16, 4) for at in (0.0, 200.0) for number in range(6)]
    found = play(arrivals, scaling=Autoscaling(0, 2, 2.0, idle_s=5.0), cold_start=ColdStart(1.0, 1.0))
    assert (found.num_started, found.most_replicas, found.num_requests) == (4, 2, 12)
    assert found.replica_s < 2 * 60, "idle replicas are stopped"


def test_requests_that_go_where_their_prefix_is_find_it() -> None:
    profile = cps_paper()
    config = limits(
        num_blocks=2048, block_size=16, max_model_len=8192, max_num_batched_tokens=2048, enable_prefix_caching=True
    )
    arrivals = draw_conversations(40, 40.0)
    shares = {
        routing: simulate_replicas(arrivals, profile, config, 3, routing=routing).hit_share
        for routing in ("round-robin", "prefix")
    }
    assert shares["prefix"] > shares["round-robin"] + 0.1
