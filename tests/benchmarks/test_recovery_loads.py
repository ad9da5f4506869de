"""`benchmarks.recovery.loads`: `cost` against the best static policy on simulated loads."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks.recovery.loads import LoadsSettings, compare, draw_load, make_loads, summarise


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


def test_loads_are_the_papers_mix_and_random_ones_on_both_kinds_of_link() -> None:
    kinds = [load.kind for load in make_loads(LoadsSettings(seeds=2, mixes=1, num_blocks=(384, 512)))]
    assert kinds == [
        "the paper's mix, 384 blocks",
        "the paper's mix, 512 blocks",
        "random, synchronous link",
        "random, asynchronous link",
    ]
