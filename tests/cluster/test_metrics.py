"""Metrics of replicas appear among the application's, one series per replica."""

from __future__ import annotations

from collections import Counter, defaultdict
from functools import partial

from prometheus_client.parser import text_string_to_metric_families

from async_engine.harness import finish, greedy, run
from cluster.harness import cluster
from quire.cluster.metrics import ClusterMetrics, metric_values
from quire.outputs import RecoveryStats, Stats
from quire.server.lifecycle import LoadLog
from quire.server.metrics import Metrics

#: Every statistic that a step may have.
STATS = Stats(
    step_id=1, num_running=2, num_waiting=3, num_preempted=1, num_blocked=Counter(grammar=1), num_scheduled_tokens=9,
    num_sampled_tokens=2, num_prompt_tokens=7, num_blocks=10, num_used_blocks=4, num_disk_blocks=7, disk_bytes=70,
    disk_moved=Counter(save=1), disk_failed=Counter(load=1), prefix_ways=Counter(both=1), prefix_queries=8,
    prefix_hits=6, hits_by_tier=Counter(device=6), preemptions=1, token_gaps=[0.02, 0.3], swap_bytes=9,
    swap_used_bytes=3, ahead_tokens=5, drafts=1, draft_tokens=4,
    accepted_drafts=Counter({"0": 1}), audits=Counter({("device", "equal"): 1}),
    recovery=RecoveryStats(
        preemptions=Counter(swap=1), seconds=Counter(swap=1.5), num_recomputed_tokens=4,  # type: ignore[call-arg]
        swapped_blocks=Counter(save=2), swapped_bytes=Counter(save=8), cancelled_blocks=Counter(load=1),
        errors=[("swap", 0.3)],
    ),
)  # fmt: skip


def shown(metrics: Metrics) -> dict[str, dict[str, float]]:
    """Return replica -> sample with its other labels -> value; "" holds samples without a replica."""
    found = defaultdict[str, dict[str, float]](dict)
    for family in text_string_to_metric_families(metrics.render().decode()):
        for sample in family.samples:
            labels = {name: value for name, value in sample.labels.items() if name not in ("model_name", "replica")}
            found[sample.labels.get("replica", "")][" ".join((sample.name, *labels.values()))] = sample.value
    return found


def test_what_a_step_moves_is_told_by_replicas_and_nothing_else_is() -> None:
    still, moved = (Metrics(["m"]) for _ in range(2))
    moved.observe_stats("m", STATS)
    pairs = zip(still.collect(), moved.collect(), strict=True)
    has_moved = {now.name for was, now in pairs if was.samples != now.samples and "process" not in now.name}
    assert has_moved == {metric.name for metric in still.steps.collect()}

    metrics = ClusterMetrics(["other", "m"])
    metrics.observe_replicas("m", {"r1": metric_values(moved), "r2": metric_values(still)})
    found = shown(metrics)
    for name, expected in (("r1", moved), ("r2", still)):
        assert len(found[name]) == len(metric_values(expected))
        assert found[name].items() <= shown(expected)[""].items()


def test_the_replicas_of_a_cluster_tell_what_their_engines_do() -> None:
    async def main() -> None:
        metrics = ClusterMetrics(["tiny"])
        log = LoadLog(metrics)
        async with cluster(on_metrics=partial(metrics.observe_replicas, "tiny")) as (found, engine):
            await found.add("r1")
            for request_id in "ab":  # the first replica's figures arrive with the second's events
                await finish(engine, list(range(40, 60)), greedy(4), request_id=request_id)
            series = shown(metrics)
            assert series["r1"]["quire_generation_tokens_total"] == 4
            assert "quire_generation_tokens_total" not in series[""]
            assert [(line["model"], line["kv_usage"]) for line in log.take()] == [("tiny", "0.0%")]
            await found.add("r2")
            found.kill("r1")
            await finish(engine, list(range(60, 80)), greedy(4), request_id="c")
            assert set(shown(metrics)) == {"", "r2"}

    run(main())
