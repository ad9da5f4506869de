"""Metrics: documented names, and values that match a real engine's work."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from dataclasses import replace
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from starlette.applications import Starlette

from engines import thread_engine
from quire.assembly import LoadedModel, load, make_engine
from quire.config import EngineConfig, SchedulerConfig
from quire.core.decisions.load_or_compute import LoadOrCompute, RecoveryMode, RecoveryPlan, Victim
from quire.core.decisions.recovery_policy import RecoveryPolicy
from quire.engine.engine import Engine
from quire.outputs import CompletionOutput, RecoveryStats, RequestMetrics, RequestOutput, Stats
from quire.sampling_params import SamplingParams
from quire.server.app import make_app
from quire.server.metrics import Metrics, metrics_routes
from quire.server.registry import ModelRegistry, ServedModel
from quire.server.settings import ServerSettings
from quire.system.child_process import ChildProcess
from server.asgi import ask

TINY = EngineConfig("random:tiny", num_kv_blocks=24, block_size=4, use_tqdm=False, device="cpu")
PROMISED = {
    "quire_num_requests_running": "gauge",
    "quire_num_requests_waiting": "gauge",
    "quire_num_requests_waiting_by_reason": "gauge",
    "quire_kv_cache_usage_perc": "gauge",
    "quire_model_stage": "gauge",
    "quire_model_loaded_bytes": "gauge",
    "quire_model_bytes": "gauge",
    "quire_prefix_cache_queries_total": "counter",
    "quire_prefix_cache_hits_total": "counter",
    "quire_num_preemptions_total": "counter",
    "quire_prompt_tokens_total": "counter",
    "quire_prompt_computed_tokens_total": "counter",
    "quire_generation_tokens_total": "counter",
    "quire_request_success_total": "counter",
    "quire_requests_resumed_total": "counter",
    "quire_time_to_first_token_seconds": "histogram",
    "quire_inter_token_latency_seconds": "histogram",
    "quire_request_time_per_output_token_seconds": "histogram",
    "quire_e2e_request_latency_seconds": "histogram",
    "quire_request_queue_time_seconds": "histogram",
    "quire_request_prefill_time_seconds": "histogram",
    "quire_request_decode_time_seconds": "histogram",
    "quire_request_inference_time_seconds": "histogram",
    "quire_request_prompt_tokens": "histogram",
    "quire_request_generation_tokens": "histogram",
    "quire_request_params_n": "histogram",
    "quire_request_params_max_tokens": "histogram",
    "quire_request_num_preemptions": "histogram",
    "quire_iteration_tokens_total": "histogram",
    "quire_cache_config_info": "gauge",
    "quire_http_requests_total": "counter",
    "quire_request_rejections_total": "counter",
    "quire_collection_search_seconds": "histogram",
    "quire_collection_documents_total": "counter",
    "quire_embedder_tokens_total": "counter",
    "quire_process_resident_memory_bytes": "gauge",
    "quire_process_cpu_seconds_total": "counter",
    "quire_recovery_preemptions_total": "counter",
    "quire_recovery_seconds_total": "counter",
    "quire_recovery_recomputed_tokens_total": "counter",
    "quire_recovery_prediction_error_ratio": "histogram",
    "quire_swapped_blocks_total": "counter",
    "quire_swapped_bytes_total": "counter",
    "quire_swap_cancelled_blocks_total": "counter",
    "quire_swap_space_bytes": "gauge",
    "quire_swap_space_used_bytes": "gauge",
    "quire_prefix_cache_hits_by_tier_total": "counter",
    "quire_computed_ahead_tokens_total": "counter",
    "quire_prefix_decisions_total": "counter",
    "quire_kv_dir_moved_blocks_total": "counter",
    "quire_kv_dir_failed_blocks_total": "counter",
    "quire_kv_audits_total": "counter",
    "quire_spec_decode_num_drafts_total": "counter",
    "quire_spec_decode_num_draft_tokens_total": "counter",
    "quire_spec_decode_num_accepted_tokens_per_pos_total": "counter",
    "quire_kv_dir_blocks": "gauge",
    "quire_kv_dir_bytes": "gauge",
}
STATS = Stats(
    step_id=1, num_running=2, num_waiting=3, num_preempted=1, num_scheduled_seqs=2, num_scheduled_tokens=9,
    num_sampled_tokens=2, num_prompt_tokens=7, num_blocks=10, num_used_blocks=4, num_cached_blocks=3,
    num_logical_blocks=5, num_kv_tokens=20, prefix_queries=8, prefix_hits=6, preemptions=1, token_gaps=[0.02, 0.3],
)  # fmt: skip


def samples(metrics: Metrics) -> dict[str, float]:
    """Return name{labels except the model} -> value."""
    found = {}
    for family in text_string_to_metric_families(metrics.render().decode()):
        for sample in family.samples:
            others = {name: value for name, value in sample.labels.items() if name != "model_name"}
            found[sample.name + ("{" + ",".join(others.values()) + "}" if others else "")] = sample.value
    return found


def test_every_documented_metric_exists_from_the_start_with_its_type_and_model() -> None:
    text = Metrics(["quire-mini"]).render().decode()
    types = dict(line.split()[2:4] for line in text.splitlines() if line.startswith("# TYPE quire_"))
    assert types == PROMISED
    for line in text.splitlines():
        assert (
            line.startswith(("#", "process_", "quire_process_", "quire_collection_", "quire_embedder_"))
            or 'model_name="quire-mini"' in line
        )
    assert 'quire_request_success_total{finished_reason="stop",model_name="quire-mini"} 0.0' in text
    for mode in RecoveryMode:
        assert f'quire_recovery_preemptions_total{{mode="{mode.value}",model_name="quire-mini"}} 0.0' in text


def test_where_prefixes_came_from_is_counted_by_tier() -> None:
    metrics = Metrics(["m"])
    stats = replace(
        STATS,
        hits_by_tier=Counter(device=4, disk=2),
        prefix_ways=Counter(both=1),
        ahead_tokens=48,
        disk_moved=Counter(load=5, save=3),
        disk_failed=Counter(load=1),
        num_blocked=Counter(document=2),
        num_disk_blocks=7,
        disk_bytes=70,
    )
    metrics.observe_stats("m", stats)
    found = samples(metrics)
    assert found["quire_prefix_cache_hits_by_tier_total{device}"] == 4
    assert found["quire_prefix_cache_hits_by_tier_total{disk}"] == 2
    assert found["quire_prefix_decisions_total{both}"] == 1
    assert found["quire_computed_ahead_tokens_total"] == 48
    assert found["quire_kv_dir_moved_blocks_total{in}"] == 5
    assert found["quire_kv_dir_moved_blocks_total{out}"] == 3
    assert found["quire_kv_dir_failed_blocks_total{in}"] == 1
    assert (found["quire_kv_dir_blocks"], found["quire_kv_dir_bytes"]) == (7, 70)
    waiting = [found[f"quire_num_requests_waiting_by_reason{{{why}}}"] for why in ("capacity", "preempted", "document")]
    assert waiting == [0, 1, 2]


def test_two_servers_in_one_process_share_no_figures() -> None:
    one, other = Metrics(["m"]), Metrics(["m"])
    one.observe_stats("m", STATS)
    assert samples(other)["quire_prompt_tokens_total"] == 0


def test_a_step_moves_gauges_and_counters_and_every_gap_counts() -> None:
    metrics = Metrics()
    metrics.observe_stats("m", STATS)
    metrics.observe_stats("m", replace(STATS, num_running=0, num_waiting=0, num_used_blocks=0, preemptions=0))
    found = samples(metrics)
    assert found["quire_num_requests_running"] == found["quire_num_requests_waiting"] == 0
    assert found["quire_iteration_tokens_total_count"] == 2
    assert found["quire_iteration_tokens_total_sum"] == 18
    assert found["quire_kv_cache_usage_perc"] == 0
    assert found["quire_prefix_cache_queries_total"] == 16
    assert found["quire_prefix_cache_hits_total"] == 12
    assert found["quire_num_preemptions_total"] == 1
    assert found["quire_prompt_tokens_total"] == 14
    assert found["quire_generation_tokens_total"] == 4
    assert found["quire_inter_token_latency_seconds_count"] == 4
    assert found["quire_inter_token_latency_seconds_sum"] == pytest.approx(0.64)


def test_waiting_requests_are_counted_by_reason() -> None:
    metrics = Metrics(["m"])
    metrics.observe_stats("m", STATS)
    found = samples(metrics)
    assert found["quire_num_requests_waiting"] == 3
    assert found["quire_num_requests_waiting_by_reason{capacity}"] == 2
    assert found["quire_num_requests_waiting_by_reason{preempted}"] == 1


def test_the_cache_is_described_by_labels_once_it_is_known() -> None:
    metrics = Metrics(["m"])
    assert "quire_cache_config_info{" not in metrics.render().decode()
    metrics.observe_limits("m", SchedulerConfig(200, block_size=16, num_swap_slots=7))
    assert (
        'quire_cache_config_info{block_size="16",enable_prefix_caching="True",model_name="m",num_cpu_blocks="7",'
        'num_gpu_blocks="200"} 1.0'
    ) in metrics.render().decode()


def test_the_process_is_described_as_dashboards_know_it() -> None:
    found = samples(Metrics())
    assert found["process_resident_memory_bytes"] > 2**20
    assert {"process_cpu_seconds_total", "process_open_fds", "process_start_time_seconds"} <= found.keys()


def test_what_is_asked_for_counts() -> None:
    metrics = Metrics(["m"])
    for n, max_tokens in ((3, 40), (1, None), (4, 10)):
        metrics.observe_accepted("m", n, max_tokens)
    found = samples(metrics)
    assert (found["quire_request_params_n_count"], found["quire_request_params_n_sum"]) == (3, 8)
    assert (found["quire_request_params_max_tokens_count"], found["quire_request_params_max_tokens_sum"]) == (2, 50)


def test_http_counts_by_route_and_refusals_by_code() -> None:
    registry = ModelRegistry([ServedModel("m", thread_engine("m", lambda: pytest.fail("was started")), 0)])
    metrics = Metrics(["m"])
    settings = ServerSettings(api_keys=("sk",), tenant_secret=b"s", root_path="/llm")
    app = make_app(registry, settings, metrics)
    known = {"x-api-key": "sk"}
    for method, path, headers in (
        ("GET", "/v1/models", known),
        ("HEAD", "/llm/models", known),
        ("GET", "/v1/models/some/thing", known),
        ("GET", "/v1/models/other", known),
        ("GET", "/v1/models", {}),
        ("POST", "/v1/completions", known),
        ("BREW", "/no/such/path", known),
        ("GET", "/health", {}),
    ):
        ask(app, method, path, headers=headers)
    found = samples(metrics)
    head = ask(app, "HEAD", "/metrics", headers=known)
    assert (head.status_code, head.content) == (200, b"")
    assert {name: value for name, value in found.items() if "http" in name or "rejections" in name} == {
        "quire_http_requests_total{/v1/models,GET,200}": 2,
        "quire_http_requests_total{/v1/models/{model},GET,404}": 2,
        "quire_http_requests_total{/v1/models,GET,401}": 1,
        "quire_http_requests_total{/v1/completions,POST,415}": 1,
        "quire_http_requests_total{other,other,404}": 1,
        "quire_http_requests_total{/health,GET,503}": 1,
        "quire_request_rejections_total{model_not_found,404}": 2,
        "quire_request_rejections_total{invalid_api_key,401}": 1,
        "quire_request_rejections_total{other,415}": 1,
        "quire_request_rejections_total{other,404}": 1,
    }


def test_what_recovery_did_in_a_step_adds_up_by_mode() -> None:
    metrics = Metrics(["m"])
    recovery = RecoveryStats(
        preemptions=Counter(swap=2, mixed=1),
        seconds=defaultdict(float, swap=0.5),
        num_recomputed_tokens=7,
        swapped_blocks=Counter(save=3, load=1),
        swapped_bytes=Counter(save=300, load=100),
        cancelled_blocks=Counter(load=4),
        errors=[("swap", 0.25), ("swap", 3.0)],
    )
    metrics.observe_stats("m", replace(STATS, recovery=recovery, swap_bytes=1000, swap_used_bytes=300))
    metrics.observe_stats("m", replace(STATS, recovery=recovery, swap_bytes=1000, swap_used_bytes=200))
    metrics.observe_stats("m", replace(STATS, swap_bytes=1000, swap_used_bytes=100))
    found = samples(metrics)
    for name, value in {
        "recovery_preemptions_total{swap}": 4,
        "recovery_preemptions_total{mixed}": 2,
        "recovery_preemptions_total{recompute}": 0,
        "recovery_seconds_total{swap}": 1.0,
        "recovery_recomputed_tokens_total": 14,
        "recovery_prediction_error_ratio_count{swap}": 4,
        "recovery_prediction_error_ratio_sum{swap}": 6.5,
        "swapped_blocks_total{out}": 6,
        "swapped_blocks_total{in}": 2,
        "swapped_bytes_total{out}": 600,
        "swapped_bytes_total{in}": 200,
        "swap_cancelled_blocks_total{out}": 0,
        "swap_cancelled_blocks_total{in}": 8,
        "swap_space_bytes": 1000,
        "swap_space_used_bytes": 100,
    }.items():
        assert found[f"quire_{name}"] == value


def output(*reasons: str, num_tokens: int = 5, error: str | None = None, **times: Any) -> RequestOutput:
    metrics = RequestMetrics(10.0, **times)
    outputs = [CompletionOutput(i, "", list(range(num_tokens)), finish_reason=r) for i, r in enumerate(reasons)]
    return RequestOutput("r", None, [1, 2], outputs, metrics=metrics, finished=True, error=error)


WHOLE = {"first_scheduled_time": 11.0, "first_token_time": 13.0, "last_token_time": 21.0, "finished_time": 21.0}


def test_a_finished_request_is_split_into_its_phases() -> None:
    metrics = Metrics()
    metrics.observe_finished("m", output("stop", **WHOLE))
    found = samples(metrics)
    for name, seconds in {
        "request_queue_time": 1,
        "request_prefill_time": 2,
        "time_to_first_token": 3,
        "request_decode_time": 8,
        "request_time_per_output_token": 2,  # (11 - 3) / (5 - 1)
        "request_inference_time": 10,
        "e2e_request_latency": 11,
    }.items():
        assert found[f"quire_{name}_seconds_count"] == 1
        assert found[f"quire_{name}_seconds_sum"] == seconds
    assert (found["quire_request_prompt_tokens_sum"], found["quire_request_generation_tokens_sum"]) == (2, 5)
    assert (found["quire_request_num_preemptions_count"], found["quire_request_num_preemptions_sum"]) == (1, 0)


def test_a_single_token_has_no_time_per_output_token() -> None:
    metrics = Metrics(["m"])
    metrics.observe_finished("m", output("length", num_tokens=1, **WHOLE))
    assert samples(metrics)["quire_request_time_per_output_token_seconds_count"] == 0


@pytest.mark.parametrize(
    ("ended", "reason"),
    [
        (output("stop"), "stop"),
        (output("stop", "length"), "length"),
        (output("stop", "abort"), "abort"),
        (output("stop", error="it broke"), "error"),
        (output("error"), "error"),
    ],
)
def test_every_request_is_counted_once_by_how_it_ended(ended: RequestOutput, reason: str) -> None:
    metrics = Metrics(["m"])
    metrics.observe_finished("m", ended)
    found = samples(metrics)
    counts = {r: found[f"quire_request_success_total{{{r}}}"] for r in ("stop", "length", "abort", "error")}
    assert counts == {**dict.fromkeys(counts, 0), reason: 1}


def test_who_gave_up_still_counts_among_those_who_waited() -> None:
    metrics = Metrics(["m"])
    metrics.observe_finished("m", output("abort", finished_time=20.0))  # never scheduled
    metrics.observe_finished("m", output("abort", first_scheduled_time=14.0, finished_time=20.0))
    found = samples(metrics)
    assert found["quire_request_queue_time_seconds_sum"] == 4
    assert found["quire_time_to_first_token_seconds_count"] == 0
    assert found["quire_e2e_request_latency_seconds_count"] == 0


def test_metrics_are_served_in_prometheus_text_format() -> None:
    answer = ask(Starlette(routes=list(metrics_routes(Metrics(["m"])))), path="/metrics")
    assert answer.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert "quire_num_requests_running" in answer.text


# -- a real engine -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def tiny() -> LoadedModel:
    return load(TINY)


def serve_all(engine: Engine, metrics: Metrics, *requests: tuple[list[int], SamplingParams]) -> list[RequestOutput]:
    engine.on_stats.append(lambda stats: metrics.observe_stats("m", stats))
    answers = [engine.add_request(prompt, params) for prompt, params in requests]
    while engine.has_unfinished():
        engine.step()
    outputs = [answer.to_output() for answer in answers]
    for ended in outputs:
        metrics.observe_finished("m", ended)
    return outputs


def test_tokens_and_gaps_add_up_over_samples_and_preemptions(tiny: LoadedModel) -> None:
    engine, metrics = make_engine(TINY, tiny), Metrics(["m"])
    params = SamplingParams(max_tokens=30, ignore_eos=True, seed=1)
    requests = [([n, n + 1, n + 2, n + 3, n + 4], replace(params, n=1 + n % 2)) for n in range(6)]
    outputs = serve_all(engine, metrics, *requests)
    found = samples(metrics)
    num_outputs = sum(len(ended.outputs) for ended in outputs)
    num_tokens = sum(len(completion.token_ids) for ended in outputs for completion in ended.outputs)
    assert num_outputs == 9
    assert found["quire_num_preemptions_total"] > 0, "the pool was meant to be too small"
    assert found["quire_request_num_preemptions_sum"] == found["quire_num_preemptions_total"]
    assert found["quire_request_generation_tokens_sum"] == num_tokens
    assert found["quire_prompt_tokens_total"] == 30
    assert found["quire_generation_tokens_total"] == num_tokens == 270
    assert found["quire_inter_token_latency_seconds_count"] == num_tokens - num_outputs
    assert found["quire_request_success_total{length}"] == 6
    for name in ("time_to_first_token", "e2e_request_latency", "request_queue_time", "request_decode_time"):
        assert found[f"quire_{name}_seconds_count"] == 6
    assert found["quire_num_requests_running"] == found["quire_num_requests_waiting"] == 0


def test_a_prefix_that_is_found_again_is_a_hit(tiny: LoadedModel) -> None:
    engine, metrics = make_engine(TINY, tiny), Metrics(["m"])
    params = SamplingParams(max_tokens=2, ignore_eos=True)
    serve_all(engine, metrics, (list(range(1, 14)), params))
    engine.on_stats.clear()
    serve_all(engine, metrics, (list(range(1, 14)), params))
    found = samples(metrics)
    assert (found["quire_prefix_cache_queries_total"], found["quire_prefix_cache_hits_total"]) == (26, 12)


class InTurns(RecoveryPolicy):
    """Preempts the youngest request by alternating modes, and predicts the costs."""

    def __init__(self) -> None:
        self.count = 0

    def plan(self, victim: Victim, decider: LoadOrCompute) -> RecoveryPlan:
        self.count += 1
        mode = tuple(RecoveryMode)[self.count % 3]
        return RecoveryPlan(mode, victim.num_full_blocks // 2, {each.value: 0.01 for each in RecoveryMode})


def test_what_an_engine_swaps_and_computes_again_is_counted_once(tiny: LoadedModel) -> None:
    engine, metrics = make_engine(replace(TINY, swap_space=2**20), tiny, recovery=InTurns()), Metrics(["m"])
    params = SamplingParams(max_tokens=30, ignore_eos=True, seed=1)
    serve_all(engine, metrics, *(([n, n + 1, n + 2, n + 3, n + 4], params) for n in range(8)))
    found, log, config = samples(metrics), engine.scheduler.recovery.log, engine.scheduler.config
    by_mode = Counter(recovery.mode.value for recovery in log.closed)
    assert all(
        found[f"quire_recovery_preemptions_total{{{mode.value}}}"] == by_mode[mode.value] for mode in RecoveryMode
    )
    assert by_mode.total() == found["quire_num_preemptions_total"]
    assert found["quire_recovery_recomputed_tokens_total"] == engine.scheduler.counts.recomputed_tokens > 0
    for direction, moved in {
        "out": sum(recovery.num_saved for recovery in log.closed),
        "in": sum(recovery.num_loaded for recovery in log.closed),
    }.items():
        assert found[f"quire_swapped_blocks_total{{{direction}}}"] == moved > 0
        assert found[f"quire_swapped_bytes_total{{{direction}}}"] == moved * config.block_bytes
    for mode in RecoveryMode:
        of_mode = [recovery for recovery in log.closed if recovery.mode is mode]
        seconds = sum(recovery.seconds for recovery in of_mode)
        assert found[f"quire_recovery_seconds_total{{{mode.value}}}"] == pytest.approx(seconds)
        as_planned = [recovery for recovery in of_mode if recovery.error is not None]
        assert found[f"quire_recovery_prediction_error_ratio_count{{{mode.value}}}"] == len(as_planned) > 0
    assert found["quire_swap_space_bytes"] == config.num_swap_slots * config.block_bytes > 0
    assert found["quire_swap_space_used_bytes"] == 0, "everyone is back"


def test_memory_and_processor_time_show_for_the_server_and_each_engine_that_has_a_process() -> None:
    metrics = Metrics(("a", "b"))
    child = ChildProcess("engine")
    metrics.engine_pids = lambda: {"a": child.pid, "b": None}
    for name in ("quire_process_resident_memory_bytes", "quire_process_cpu_seconds_total"):
        found = re.findall(rf'^{name}{{model_name="(\w*)",process="(\w+)"}} (\S+)$', metrics.render().decode(), re.M)
        assert [each[:2] for each in found] == [("", "server"), ("a", "engine")]
        assert float(found[0][2]) > 0
    child.close()
    assert 'process="engine"' not in metrics.render().decode()
