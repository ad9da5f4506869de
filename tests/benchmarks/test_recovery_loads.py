"""`benchmarks.recovery.loads`: `cost` against the best static policy on simulated loads."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks.recovery.load import make_mix
from benchmarks.recovery.loads import (
    LoadsSettings,
    ScaledLink,
    compare,
    draw_load,
    make_config,
    make_loads,
    summarise,
)
from quire.simulate.hardware import cps_paper
from quire.simulate.paper_policies import make_compared_policy
from quire.simulate.simulation import Arrival, simulate


@pytest.mark.slow
@pytest.mark.parametrize("seed", [4, 21])
def test_cost_with_a_right_profile_is_near_the_best_static_policy_of_a_load(seed: int) -> None:
    load = draw_load(seed)
    load = replace(load, arrivals=load.arrivals[:100])
    rows = list(compare(load, LoadsSettings(wrong=(8.0,))))
    assert [row["profile"] for row in rows] == ["known", "learnt", "link × 8"]
    assert all(row["preemptions"] > 20 for row in rows)
    assert all(row["recovery"] <= 1.05 for row in rows[:2])
    summary = summarise(rows)
    assert [row["count"] for row in summary] == [1, 1, 1]
    assert summary[0]["worst"] == rows[0]["recovery"]


@pytest.mark.parametrize("seed", [0, 3])
def test_cost_spends_less_than_both_static_policies_where_blocks_stay_cached(seed: int) -> None:
    """At a crossing, what pays depends on how many blocks are evicted before a victim resumes."""
    paper = replace(cps_paper(), swap_is_synchronous=False)
    hardware = replace(paper, costs=ScaledLink(paper.costs, 0.5))
    config = make_config(hardware, 512, max_num_batched_tokens=2048, enable_prefix_caching=True)
    requests = make_mix("short", 60, config.max_model_len, seed=seed).requests
    arrivals = [Arrival(0.0, len(each.prompt_token_ids), each.max_tokens, each.prompt_token_ids) for each in requests]
    recompute, swap, cost = (
        simulate(arrivals, hardware, config, make_compared_policy(name)).recovery_s
        for name in ("recompute", "swap", "cost")
    )
    assert 0.8 < recompute / swap < 1.25
    assert cost < min(recompute, swap)


def test_loads_are_the_papers_mix_and_random_ones_on_both_kinds_of_link() -> None:
    kinds = [load.kind for load in make_loads(LoadsSettings(seeds=2, mixes=1, num_blocks=(384, 512)))]
    assert kinds == [
        "the paper's mix, 384 blocks",
        "the paper's mix, 512 blocks",
        "random, synchronous link",
        "random, asynchronous link",
    ]
