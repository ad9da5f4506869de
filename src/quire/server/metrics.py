"""All metrics of a server process: its models', HTTP's, the collections' and the process' own; GET /metrics."""

from __future__ import annotations

import asyncio
import os
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from itertools import product
from typing import Any, TypeVar

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Metric, ProcessCollector, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily
from starlette.responses import PlainTextResponse

from quire.config import SchedulerConfig
from quire.core.decisions.costs import TIERS
from quire.outputs import LoadProgress, RecoveryStats, RequestMetrics, RequestOutput, Stats
from quire.server.bodies.replies import ERROR_RESPONSES
from quire.server.bodies.requests import CAUSES, NEW
from quire.server.http.routes import Routes
from quire.server.recent_steps import RecentSteps
from quire.system.memory import used_by

MODEL_LABEL = "model_name"
M = TypeVar("M", Gauge, Counter, Histogram)
Labels = dict[str, tuple[str, ...]]  #: values by name
# In seconds, from a small model on one GPU to a large one on a busy CPU.
TOKEN_BUCKETS = (
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5, 5, 10,
)  # fmt: skip
PHASE_BUCKETS = (
    0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80, 160, 320, 640,
)  # fmt: skip
REQUEST_BUCKETS = (0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 7.5, 10, 15, 20, 30, 40, 60, 120, 240, 480, 960, 1920)
SIZE_BUCKETS = (
    1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000, 20_000, 50_000, 100_000, 200_000,
)  # fmt: skip
STEP_BUCKETS = (1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16_384)
FEW_BUCKETS = (1, 2, 5, 10, 20)
ERROR_BUCKETS = (0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.3, 0.5, 0.75, 1, 2.5, 5, 10)


class Families:
    """Makes families in some registries. Each has the model as its first label; keyword arguments name further labels
    and their values."""

    def __init__(self, *registries: CollectorRegistry) -> None:
        self._registries = registries
        self._made: list[tuple[Gauge | Counter | Histogram, tuple[str, ...]]] = []  #: family, values of further labels

    def gauge(self, name: str, text: str, **labels: tuple[str, ...]) -> Gauge:
        return self._add(Gauge(f"quire_{name}", text, [MODEL_LABEL, *labels], registry=None), labels)

    def counter(self, name: str, text: str, **labels: tuple[str, ...]) -> Counter:
        return self._add(Counter(f"quire_{name}", text, [MODEL_LABEL, *labels], registry=None), labels)

    def histogram(self, name: str, text: str, buckets: tuple[float, ...], **labels: tuple[str, ...]) -> Histogram:
        family = Histogram(f"quire_{name}", text, [MODEL_LABEL, *labels], registry=None, buckets=buckets)
        return self._add(family, labels)

    def show(self, model: str) -> None:
        """Show a model's series at zero: a rate over a series that appears with its first event misses that event."""
        for family, values in self._made:
            family.labels(model, *values)

    def _add(self, family: M, labels: Labels) -> M:
        for registry in self._registries:
            registry.register(family)
        self._made += [(family, values) for values in product(*labels.values())]
        return family


def collect(registry: CollectorRegistry) -> Iterator[Metric]:
    """Yield the families, without creation times, which would double the number of series."""
    for metric in registry.collect():
        metric.samples = [sample for sample in metric.samples if not sample.name.endswith("_created")]
        yield metric


_BLOCKED_REASONS = ("document", "grammar", "stage")
_BY_SEVERITY = ("stop", "length", "abort", "error")
_DIRECTIONS = {"save": "out", "load": "in"}
_BY_DIRECTION: Labels = {"direction": tuple(_DIRECTIONS.values())}
_BY_MODE: Labels = {"mode": ("recompute", "swap", "mixed")}
_BY_TIER: Labels = {"tier": ("device", *TIERS)}

#: Field of `Stats` -> name and text.
_GAUGES = {
    "num_running": ("num_requests_running", "Running requests."),
    "num_waiting": ("num_requests_waiting", "Waiting requests, preempted ones included."),
    "swap_bytes": ("swap_space_bytes", "Capacity of the swap tier in bytes; 0 without one."),
    "swap_used_bytes": ("swap_space_used_bytes", "Bytes in the swap tier for preempted requests."),
    "num_disk_blocks": ("kv_dir_blocks", "KV blocks of this model in the KV directory."),
    "disk_bytes": ("kv_dir_bytes", "Bytes of these blocks."),
}
#: Field of `Stats`, a number or a `Counter` by label -> name, text and labels.
_COUNTERS: dict[str, tuple[str, str, Labels]] = {
    "prefix_queries": ("prefix_cache_queries", "Tokens looked up in the prefix cache.", {}),
    "prefix_hits": ("prefix_cache_hits", "Tokens found in the prefix cache.", {}),
    "hits_by_tier": ("prefix_cache_hits_by_tier", "Tokens found in the prefix cache, by tier.", _BY_TIER),
    "prefix_ways": (
        "prefix_decisions",
        "Prefixes found in another tier: loaded, computed, or both at once, whichever was predicted to be faster; "
        "and those loaded ahead, in part, while the request waited.",
        {"way": ("load", "compute", "both", "ahead")},
    ),
    "preemptions": ("num_preemptions", "Preemptions.", {}),
    "num_prompt_tokens": ("prompt_tokens", "Prompt tokens of started requests, cached ones included.", {}),
    "num_sampled_tokens": ("generation_tokens", "Generated tokens.", {}),
    "drafts": ("spec_decode_num_drafts", "Drafts that steps verified, one for each sequence.", {}),
    "draft_tokens": ("spec_decode_num_draft_tokens", "Their tokens.", {}),
    "accepted_drafts": (
        "spec_decode_num_accepted_tokens_per_pos",
        "Draft tokens that were confirmed, by position in their draft.",
        {"position": tuple(map(str, range(10)))},
    ),
    "ahead_tokens": ("computed_ahead_tokens", "Tokens of documents computed while their requests waited.", {}),
    "disk_moved": ("kv_dir_moved_blocks", "KV blocks moved to the KV directory (out) and from it (in).", _BY_DIRECTION),
    "disk_failed": (
        "kv_dir_failed_blocks",
        "KV blocks that could not be written (out), or were missing or damaged when read (in).",
        _BY_DIRECTION,
    ),
    "audits": (
        "kv_audits",
        "Audits of KV found in a tier, by result: equal to its computation, or different.",
        {**_BY_TIER, "result": ("equal", "different")},
    ),
}
#: The same for `RecoveryStats`.
_RECOVERY_COUNTERS: dict[str, tuple[str, str, Labels]] = {
    "preemptions": ("recovery_preemptions", "Preemptions by recovery mode.", _BY_MODE),
    "seconds": ("recovery_seconds", "Measured seconds of transfers and steps for recovery, by mode.", _BY_MODE),
    "num_recomputed_tokens": ("recovery_recomputed_tokens", "Tokens computed again.", {}),
    "swapped_blocks": ("swapped_blocks", "KV blocks moved to the swap tier (out) and back (in).", _BY_DIRECTION),
    "swapped_bytes": ("swapped_bytes", "Bytes moved to the swap tier (out) and back (in).", _BY_DIRECTION),
    "cancelled_blocks": (
        "swap_cancelled_blocks",
        "KV blocks whose transfer was cancelled before it started.",
        _BY_DIRECTION,
    ),
}


class StepMetrics:
    """Metrics that each step moves. A step observes a fixed number of values, and one a token: the gap before it."""

    def __init__(self, families: Families) -> None:
        self._gauges = {field: families.gauge(*about) for field, about in _GAUGES.items()}
        self._counters, self._recovery_counters = (
            {field: (families.counter(name, text, **labels), labels) for field, (name, text, labels) in table.items()}
            for table in (_COUNTERS, _RECOVERY_COUNTERS)
        )
        self._waiting_by_reason = families.gauge(
            "num_requests_waiting_by_reason",
            "Waiting requests by reason: first step (capacity), preemption, a document that another process computes, "
            "a grammar, or a later stage of the model.",
            reason=("capacity", "preempted", *_BLOCKED_REASONS),
        )
        usage = "Share of KV blocks that running requests hold; 1 is all."
        self._kv_usage = families.gauge("kv_cache_usage_perc", usage)
        itl = "ITL: each gap between two tokens."
        self._itl = families.histogram("inter_token_latency_seconds", itl, TOKEN_BUCKETS)
        self._step_sizes = families.histogram("iteration_tokens_total", "Tokens computed by a step.", STEP_BUCKETS)
        self._error = families.histogram(
            "recovery_prediction_error_ratio",
            "|predicted - measured| / measured of the seconds that a preemption cost, by mode.",
            ERROR_BUCKETS,
            **_BY_MODE,
        )

    def observe(self, model: str, stats: Stats) -> None:
        """Record a step."""
        for field, gauge in self._gauges.items():
            gauge.labels(model).set(getattr(stats, field))
        num_unstarted = stats.num_waiting - stats.num_preempted - stats.num_blocked.total()
        self._waiting_by_reason.labels(model, "capacity").set(num_unstarted)
        for reason in _BLOCKED_REASONS:
            self._waiting_by_reason.labels(model, reason).set(stats.num_blocked[reason])
        self._waiting_by_reason.labels(model, "preempted").set(stats.num_preempted)
        self._kv_usage.labels(model).set(stats.num_used_blocks / max(1, stats.num_blocks))
        if stats.num_scheduled_tokens:
            self._step_sizes.labels(model).observe(stats.num_scheduled_tokens)
        observe_gap = self._itl.labels(model).observe
        for gap in stats.token_gaps:
            observe_gap(gap)
        _count(model, stats, self._counters)
        if stats.recovery is not None:
            _count(model, stats.recovery, self._recovery_counters)
            for mode, error in stats.recovery.errors:
                self._error.labels(model, mode).observe(error)


def _count(model: str, stats: Stats | RecoveryStats, counters: Mapping[str, tuple[Counter, Labels]]) -> None:
    """Increase the counters by the fields of their names."""
    for field, (counter, labels) in counters.items():
        counts = getattr(stats, field)
        if not labels:
            counter.labels(model).inc(counts)
            continue
        for key, count in counts.items():
            values = key if isinstance(key, tuple) else (_DIRECTIONS[key] if "direction" in labels else key,)
            counter.labels(model, *values).inc(count)


class LifetimeMetrics:
    """Metrics of requests, from arrival to end, and of loading models."""

    def __init__(self, families: Families) -> None:
        gauge, counter, histogram = families.gauge, families.counter, families.histogram
        self._success = counter("request_success", "Finished requests by reason.", finished_reason=_BY_SEVERITY)
        self._resumed = counter("requests_resumed", "Finished requests that were resumed after the loss of an engine.")
        self._ttft = histogram("time_to_first_token_seconds", "TTFT: arrival to first token.", PHASE_BUCKETS)
        self._tpot = histogram(
            "request_time_per_output_token_seconds", "TPOT: mean time a token after the first.", TOKEN_BUCKETS
        )
        self._e2e = histogram("e2e_request_latency_seconds", "E2EL: arrival to end.", REQUEST_BUCKETS)
        self._queue = histogram("request_queue_time_seconds", "Arrival to first step.", PHASE_BUCKETS)
        self._prefill = histogram("request_prefill_time_seconds", "First step to first token.", PHASE_BUCKETS)
        self._decode = histogram("request_decode_time_seconds", "First token to last token.", REQUEST_BUCKETS)
        self._inference = histogram("request_inference_time_seconds", "First step to last token.", REQUEST_BUCKETS)
        self._prompt_sizes = histogram("request_prompt_tokens", "Prompt tokens of a request.", SIZE_BUCKETS)
        self._generation_sizes = histogram(
            "request_generation_tokens", "Generated tokens of a request, all outputs together.", SIZE_BUCKETS
        )
        self._computed = counter(
            "prompt_computed_tokens",
            "Computed prompt tokens of finished requests by cause: new, or why they were read again.",
            cause=(NEW, *CAUSES),
        )
        self._n = histogram("request_params_n", "Requested outputs of a request.", FEW_BUCKETS)
        self._max_tokens = histogram("request_params_max_tokens", "max_tokens of requests that set it.", SIZE_BUCKETS)
        self._num_preemptions = histogram("request_num_preemptions", "Preemptions of a request.", (0, *FEW_BUCKETS))
        self._stage = gauge("model_stage", "Served stage of the model; 0 for none.")
        self._loaded = gauge("model_loaded_bytes", "Loaded bytes of the model's weights.")
        self._weights = gauge("model_bytes", "Bytes of the model's weights; 0 until known.")

    def observe_load(self, model: str, progress: LoadProgress) -> None:
        """Record how far a model has loaded."""
        self._stage.labels(model).set(progress.stage)
        self._loaded.labels(model).set(progress.bytes_loaded)
        self._weights.labels(model).set(progress.bytes_total)

    def observe_accepted(self, model: str, n: int, max_tokens: int | None) -> None:
        """Record what an accepted request asks for."""
        self._n.labels(model).observe(n)
        if max_tokens is not None:
            self._max_tokens.labels(model).observe(max_tokens)

    def observe_causes(self, model: str, causes: Mapping[str, int]) -> None:
        """Record the computed prompt tokens of a finished request by cause."""
        for cause, num_tokens in causes.items():
            self._computed.labels(model, cause).inc(num_tokens)

    def observe_finished(self, model: str, output: RequestOutput) -> None:
        """Record a request that has ended, for any reason."""
        reason = "stop" if output.error is None else "error"  # the most severe of all outputs
        lengths = []
        for completion in output.outputs:
            lengths.append(len(completion.token_ids))
            reason = max(reason, completion.finish_reason or reason, key=_BY_SEVERITY.index)
        is_complete = reason in ("stop", "length")
        self._success.labels(model, reason).inc()
        if is_complete:
            self._prompt_sizes.labels(model).observe(len(output.prompt_token_ids))
            self._generation_sizes.labels(model).observe(sum(lengths))
        if output.metrics is not None:
            self._resumed.labels(model).inc(output.metrics.is_resumed)
            # Several outputs grow side by side: the longest one counts the steps.
            self._observe_times(model, output.metrics, max(lengths, default=0) if is_complete else None)

    def _observe_times(self, model: str, times: RequestMetrics, num_tokens: int | None) -> None:
        """Record the phases that a request has been through; an aborted request waited, too."""
        arrival, scheduled, first = times.arrival_time, times.first_scheduled_time, times.first_token_time
        if scheduled is not None:
            self._queue.labels(model).observe(scheduled - arrival)
        if scheduled is not None and first is not None:
            self._ttft.labels(model).observe(first - arrival)
            self._prefill.labels(model).observe(first - scheduled)
        if num_tokens is None or times.finished_time is None:
            return
        self._num_preemptions.labels(model).observe(times.num_preemptions)
        if scheduled is not None and times.last_token_time is not None:
            self._inference.labels(model).observe(times.last_token_time - scheduled)
        self._e2e.labels(model).observe(times.finished_time - arrival)
        if first is not None and times.last_token_time is not None:
            self._decode.labels(model).observe(times.last_token_time - first)
            if num_tokens > 1:
                self._tpot.labels(model).observe((times.finished_time - first) / (num_tokens - 1))


DOCUMENT_OUTCOMES = ("added", "changed", "unchanged", "removed", "failed")
EMBEDDER_USES = ("search", "ingest", "embeddings")
_METHODS = ("GET", "POST", "DELETE", "OPTIONS")  # HEAD counts as GET


class Metrics:
    """The metrics of one server process. Threads may record concurrently. Those of `models` are shown from the start,
    at zero; others with their first value. `steps` is the part of `registry` that `observe_stats` changes."""

    def __init__(self, models: Iterable[str] = ()) -> None:
        self.registry, self.steps = CollectorRegistry(), CollectorRegistry()
        step_families, families = Families(self.registry, self.steps), Families(self.registry)
        lifetimes = LifetimeMetrics(families)
        self.recent = defaultdict[str, RecentSteps](RecentSteps)  #: by model
        self._steps, self._lifetimes = StepMetrics(step_families), lifetimes
        self.observe_load = lifetimes.observe_load
        self.observe_accepted = lifetimes.observe_accepted
        self.observe_causes = lifetimes.observe_causes
        self.engine_pids: Callable[[], Mapping[str, int | None]] = dict  #: by model; None without a process
        self._limits: dict[str, SchedulerConfig] = {}
        self._add_http()
        self._add_collections()
        ProcessCollector(registry=self.registry)
        for model in models:
            self.recent[model] = RecentSteps()
            step_families.show(model)
            families.show(model)

    def observe_stats(self, model: str, stats: Stats) -> None:
        """Record a step."""
        self._steps.observe(model, stats)
        self.recent[model].observe(stats)

    def observe_finished(self, model: str, output: RequestOutput) -> None:
        """Record a request that has ended, for any reason."""
        self._lifetimes.observe_finished(model, output)
        self.recent[model].observe_finished(output)

    def callbacks(self, model: str) -> dict[str, Any]:
        """Return the callbacks of an `AsyncEngine` that record a model's requests."""
        return {
            "on_finished": partial(self.observe_finished, model),
            "on_ready": partial(self.observe_limits, model),
            "on_accepted": partial(self.observe_accepted, model),
            "on_load": partial(self.observe_load, model),
        }

    def _add_http(self) -> None:
        """HTTP metrics. No label holds a value that clients can invent, which would let them create series."""
        self._http_requests = Counter(
            "quire_http_requests",
            "HTTP requests by path of the route, method and status.",
            ["handler", "method", "status"],
            registry=self.registry,
        )
        self._rejections = Counter(
            "quire_request_rejections",
            "Requests that were rejected or failed before their answer started, by status and error code.",
            ["status", "code"],
            registry=self.registry,
        )

    def _add_collections(self) -> None:
        self.searches = Histogram(
            "quire_collection_search_seconds",
            "Duration of searches, from arrival to passages.",
            registry=self.registry,
            buckets=PHASE_BUCKETS,
        )
        self._documents = Counter(
            "quire_collection_documents", "Uploaded documents by outcome.", ["outcome"], registry=self.registry
        )
        self._embedded = Counter(
            "quire_embedder_tokens", "Tokens read by the embedder, by purpose.", ["use"], registry=self.registry
        )
        for outcome in DOCUMENT_OUTCOMES:
            self._documents.labels(outcome)
        for use in EMBEDDER_USES:
            self._embedded.labels(use)

    def observe_limits(self, model: str, limits: SchedulerConfig) -> None:
        """Record the limits of a loaded engine."""
        self._limits[model] = limits

    def observe_http(self, handler: str, method: str, status: int, code: str | None = None) -> None:
        """Record an answer to an HTTP request, with the code of an error."""
        self._http_requests.labels(handler, method if method in _METHODS else "other", status).inc()
        if code is not None:
            self._rejections.labels(status, code).inc()

    def observe_documents(self, counts: Mapping[str, int]) -> None:
        """Record an upload: `DOCUMENT_OUTCOMES` -> number of documents."""
        for outcome, count in counts.items():
            self._documents.labels(outcome).inc(count)

    def observe_embedded(self, use: str, num_tokens: int) -> None:
        """Record embedded texts; `use` is one of `EMBEDDER_USES`."""
        self._embedded.labels(use).inc(num_tokens)

    def render(self) -> bytes:
        """Return every metric in Prometheus' text format."""
        return generate_latest(self)

    def collect(self) -> Iterator[Metric]:
        """Yield every family."""
        yield from collect(self.registry)
        # Dashboards expect one series whose labels are the values.
        family = InfoMetricFamily("quire_cache_config", "Configuration of the KV cache.", labels=[MODEL_LABEL])
        for model, limits in list(self._limits.items()):
            values = {
                "block_size": str(limits.block_size),
                "num_gpu_blocks": str(limits.num_blocks),
                "num_cpu_blocks": str(limits.num_swap_slots),
                "enable_prefix_caching": str(limits.enable_prefix_caching),
            }
            family.add_metric([model], values)
        yield family
        yield from self._collect_processes()

    def _collect_processes(self) -> Iterator[Metric]:
        labels = ["process", MODEL_LABEL]
        memory = GaugeMetricFamily(
            "quire_process_resident_memory_bytes", "Resident memory of the server and of each engine.", labels=labels
        )
        seconds = CounterMetricFamily(
            "quire_process_cpu_seconds", "Processor time of the server and of each engine's process.", labels=labels
        )
        engines = {("engine", model): pid for model, pid in self.engine_pids().items() if pid is not None}
        for names, pid in {("server", ""): os.getpid(), **engines}.items():
            used = used_by(pid, with_children=names[0] == "engine")
            if used is not None:
                memory.add_metric(names, used[0])
                seconds.add_metric(names, used[1])
        yield from (memory, seconds)

    def values(self) -> dict[str, dict[str, float]]:
        """Return model -> name -> value, of the series without other labels."""
        found: dict[str, dict[str, float]] = {}
        for metric in self.collect():
            for sample in metric.samples:
                if sample.labels.keys() == {MODEL_LABEL}:
                    found.setdefault(sample.labels[MODEL_LABEL], {})[sample.name] = sample.value
        return found


def metrics_routes(metrics: Metrics) -> Routes:
    routes = Routes("operations")

    @routes.get("/metrics", response_class=PlainTextResponse, responses={"4XX": ERROR_RESPONSES["4XX"]})
    async def show_metrics() -> PlainTextResponse:
        """Return counters, gauges and histograms of every model, in Prometheus' text format."""
        return PlainTextResponse(await asyncio.to_thread(metrics.render), media_type=CONTENT_TYPE_PLAIN_0_0_4)

    return routes
