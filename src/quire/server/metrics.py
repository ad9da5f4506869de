"""Prometheus' counters, gauges and histograms of each model, of HTTP and of the server's process.

In seconds and tokens. Dashboards of other engines use the same names and meanings, without our prefix.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import product
from typing import TypeVar

from fastapi import APIRouter
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Metric, ProcessCollector, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from prometheus_client.metrics_core import InfoMetricFamily
from starlette.responses import PlainTextResponse

from quire.config import SchedulerConfig
from quire.core.decisions.costs import TIERS
from quire.outputs import LoadProgress, RecoveryStats, RequestMetrics, RequestOutput, Stats
from quire.server.bodies.replies import ERROR_RESPONSES

MODES = ("recompute", "swap", "mixed")
_ASIDE = ("document", "grammar", "stage")  #: why requests wait beside the queue
_DIRECTIONS = {"save": "out", "load": "in"}
MODEL_LABEL = "model_name"
AnyMetric = Gauge | Counter | Histogram
M = TypeVar("M", Gauge, Counter, Histogram)
# Upper ends in seconds: from a small model on one GPU to a large one on a busy CPU.
_TOKEN_BUCKETS = (
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5, 5, 10,
)  # fmt: skip
_PHASE_BUCKETS = (
    0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80, 160, 320, 640,
)  # fmt: skip
_REQUEST_BUCKETS = (0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 7.5, 10, 15, 20, 30, 40, 60, 120, 240, 480, 960, 1920)
_SIZE_BUCKETS = (
    1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000, 20_000, 50_000, 100_000, 200_000,
)  # fmt: skip
_STEP_BUCKETS = (1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16_384)
_FEW_BUCKETS = (1, 2, 5, 10, 20)
DOCUMENT_OUTCOMES = ("added", "changed", "unchanged", "removed", "failed")
EMBEDDER_USES = ("search", "ingest", "embeddings")
_METHODS = ("GET", "POST", "DELETE", "OPTIONS")  # HEAD counts as GET
_OTHER = "other"
_ERROR_BUCKETS = (0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.3, 0.5, 0.75, 1, 2.5, 5, 10)


class Metrics:
    """The metrics of one server process, in a registry of their own. Each model's may come from another thread.

    What is observed of a step is a fixed number of figures, and none a token but the gaps between them.

    Args:
        models: names that are shown from the start, at zero; others appear with their first value.

    Attributes:
        steps: of the registry's metrics, those that `observe_stats` moves.
    """

    def __init__(self, models: Iterable[str] = ()) -> None:
        self.registry = CollectorRegistry()
        self._series: list[tuple[AnyMetric, tuple[str, ...]]] = []  #: with the values of labels other than the model
        self._num_running = self._gauge("num_requests_running", "Requests that are running.")
        self._num_waiting = self._gauge("num_requests_waiting", "Requests that wait, preempted ones among them.")
        self._waiting_by_reason = self._gauge(
            "num_requests_waiting_by_reason",
            "Of the requests that wait, those for their first step (capacity), preempted ones, those for a "
            "document that another process computes, for a grammar, and for a later stage of the model.",
            reason=("capacity", "preempted", *_ASIDE),
        )
        self._kv_usage = self._gauge(
            "kv_cache_usage_perc", "Share of the KV blocks that running requests hold; 1 is all."
        )
        self._prefix_queries = self._counter("prefix_cache_queries", "Tokens looked up in the prefix cache.")
        self._prefix_hits = self._counter("prefix_cache_hits", "Tokens found in the prefix cache.")
        self._num_preemptions = self._counter("num_preemptions", "Preemptions.")
        self._prompt_tokens = self._counter(
            "prompt_tokens", "Tokens of prompts that were begun, cached ones among them."
        )
        self._generation_tokens = self._counter("generation_tokens", "Tokens that were generated.")
        self._success = self._counter(
            "request_success", "Requests that ended, by reason.", finished_reason=("stop", "length", "abort", "error")
        )
        self._resumed = self._counter(
            "requests_resumed", "Of these, requests that went on in another engine, since their own was lost."
        )
        self._ttft = self._histogram("time_to_first_token_seconds", "TTFT: arrival to first token.", _PHASE_BUCKETS)
        self._itl = self._histogram("inter_token_latency_seconds", "ITL: every gap between two tokens.", _TOKEN_BUCKETS)
        self._tpot = self._histogram(
            "request_time_per_output_token_seconds",
            "TPOT: a request's mean time a token after its first.",
            _TOKEN_BUCKETS,
        )
        self._e2e = self._histogram("e2e_request_latency_seconds", "E2EL: arrival to end.", _REQUEST_BUCKETS)
        self._queue = self._histogram(
            "request_queue_time_seconds", "Arrival to the first step that it takes part in.", _PHASE_BUCKETS
        )
        self._prefill = self._histogram("request_prefill_time_seconds", "First step to first token.", _PHASE_BUCKETS)
        self._decode = self._histogram("request_decode_time_seconds", "First token to last token.", _REQUEST_BUCKETS)
        self._inference = self._histogram(
            "request_inference_time_seconds", "First step to last token.", _REQUEST_BUCKETS
        )
        self._add_sizes()
        self._stage = self._gauge("model_stage", "The stage of the model that is served; 0 is none.")
        self._loaded = self._gauge("model_loaded_bytes", "Bytes of the model's weights that are loaded.")
        self._weights = self._gauge("model_bytes", "Bytes of the model's weights; 0 is not known yet.")
        self._add_recovery()
        self._add_tiers()
        self._add_http()
        self._add_collections()
        self.steps = self._steps_alone()
        self._limits: dict[str, SchedulerConfig] = {}
        ProcessCollector(registry=self.registry)
        for model in models:
            self._show(model)

    def _steps_alone(self) -> CollectorRegistry:
        steps = CollectorRegistry()
        for metric in (
            self._num_running, self._num_waiting, self._waiting_by_reason, self._kv_usage, self._prefix_queries,
            self._prefix_hits, self._hits_by_tier, self._prefix_ways, self._num_preemptions, self._prompt_tokens,
            self._generation_tokens, self._itl, self._step_sizes, self._preemptions, self._recovery_seconds,
            self._recomputed, self._error, self._swapped_blocks, self._swapped_bytes, self._cancelled,
            self._swap_space, self._swap_used, self._disk_moved, self._disk_failed, self._disk_blocks,
            self._disk_bytes,
        ):  # fmt: skip
            steps.register(metric)
        return steps

    def _add_sizes(self) -> None:
        self._prompt_sizes = self._histogram("request_prompt_tokens", "Tokens of a request's prompt.", _SIZE_BUCKETS)
        self._generation_sizes = self._histogram(
            "request_generation_tokens", "Tokens of a request's outputs together.", _SIZE_BUCKETS
        )
        self._n = self._histogram("request_params_n", "Outputs that a request asked for.", _FEW_BUCKETS)
        self._max_tokens = self._histogram(
            "request_params_max_tokens", "max_tokens of the requests that have one.", _SIZE_BUCKETS
        )
        self._request_preemptions = self._histogram(
            "request_num_preemptions", "How often a request was preempted.", (0, *_FEW_BUCKETS)
        )
        self._step_sizes = self._histogram("iteration_tokens_total", "Tokens that a step computed.", _STEP_BUCKETS)

    def _add_http(self) -> None:
        """By nothing that a client can make up, so that nobody can make their number grow."""
        self._http_requests = Counter(
            "quire_http_requests",
            "HTTP requests, by the route's path, method and status.",
            ["handler", "method", "status"],
            registry=self.registry,
        )
        self._rejections = Counter(
            "quire_request_rejections",
            "Requests that were refused or failed before their answer began, by status and the error's code.",
            ["status", "code"],
            registry=self.registry,
        )

    def _add_collections(self) -> None:
        """All zero without --rag-dir and --embedder."""
        self._searches = Histogram(
            "quire_collection_search_seconds",
            "Searches, from their arrival to their passages: the wait, the query's vector and the look at all others.",
            registry=self.registry,
            buckets=_PHASE_BUCKETS,
        )
        self._documents = Counter(
            "quire_collection_documents",
            "Documents that clients sent, by what became of them.",
            ["outcome"],
            registry=self.registry,
        )
        self._embedded = Counter(
            "quire_embedder_tokens", "Tokens that the embedder read, by what for.", ["use"], registry=self.registry
        )
        for outcome in DOCUMENT_OUTCOMES:
            self._documents.labels(outcome)
        for use in EMBEDDER_USES:
            self._embedded.labels(use)

    def observe_search(self, seconds: float) -> None:
        """Take in a search that found its passages, be they none."""
        self._searches.observe(seconds)

    def observe_documents(self, counts: Mapping[str, int]) -> None:
        """Take in an upload, by `DOCUMENT_OUTCOMES`."""
        for outcome, count in counts.items():
            self._documents.labels(outcome).inc(count)

    def observe_embedded(self, use: str, num_tokens: int) -> None:
        """Take in texts that were embedded, by `EMBEDDER_USES`."""
        self._embedded.labels(use).inc(num_tokens)

    def _add_recovery(self) -> None:
        """All zero where nobody is preempted."""
        self._preemptions = self._counter("recovery_preemptions", "Preemptions, by the mode back.", mode=MODES)
        self._recovery_seconds = self._counter(
            "recovery_seconds", "Measured seconds of the link and of steps that recovery took, by mode.", mode=MODES
        )
        self._recomputed = self._counter("recovery_recomputed_tokens", "Tokens that were computed again.")
        directions = tuple(_DIRECTIONS.values())
        self._swapped_blocks = self._counter(
            "swapped_blocks", "KV blocks moved to the swap tier (out) and back (in).", direction=directions
        )
        self._swapped_bytes = self._counter(
            "swapped_bytes", "Bytes moved to the swap tier (out) and back (in).", direction=directions
        )
        self._cancelled = self._counter(
            "swap_cancelled_blocks",
            "KV blocks whose transfer was given up before it began: computing them was shorter, or nobody waited.",
            direction=directions,
        )
        self._swap_space = self._gauge("swap_space_bytes", "Bytes that the swap tier holds at most; 0 is no tier.")
        self._swap_used = self._gauge("swap_space_used_bytes", "Bytes in the swap tier for preempted requests.")
        self._error = self._histogram(
            "recovery_prediction_error_ratio",
            "|predicted - measured| / measured of the seconds that a preemption cost, by mode.",
            _ERROR_BUCKETS,
            mode=MODES,
        )

    def _add_tiers(self) -> None:
        """Where prefixes were found, and the KV directory; all zero without one."""
        self._hits_by_tier = self._counter(
            "prefix_cache_hits_by_tier", "Tokens found in the prefix cache, by where.", tier=("device", *TIERS)
        )
        self._prefix_ways = self._counter(
            "prefix_decisions",
            "Prefixes that another tier had: loaded, computed all the same, or both at once, whatever was sooner; and "
            "those of which some was loaded ahead, while the request waited for its turn.",
            way=("load", "compute", "both", "ahead"),
        )
        directions = tuple(_DIRECTIONS.values())
        self._disk_moved = self._counter(
            "kv_dir_moved_blocks", "KV blocks moved to the KV directory (out) and from it (in).", direction=directions
        )
        self._disk_failed = self._counter(
            "kv_dir_failed_blocks",
            "KV blocks that were not written (out), or that were gone or damaged when they were read (in).",
            direction=directions,
        )
        self._disk_blocks = self._gauge("kv_dir_blocks", "KV blocks of this model in the KV directory.")
        self._disk_bytes = self._gauge("kv_dir_bytes", "Bytes of these blocks.")

    def observe_stats(self, model: str, stats: Stats) -> None:
        """Take in one step."""
        self._num_running.labels(model).set(stats.num_running)
        self._num_waiting.labels(model).set(stats.num_waiting)
        num_blocked = stats.num_blocked.total()
        self._waiting_by_reason.labels(model, "capacity").set(stats.num_waiting - stats.num_preempted - num_blocked)
        for reason in _ASIDE:
            self._waiting_by_reason.labels(model, reason).set(stats.num_blocked[reason])
        self._waiting_by_reason.labels(model, "preempted").set(stats.num_preempted)
        self._kv_usage.labels(model).set(stats.num_used_blocks / max(1, stats.num_blocks))
        self._generation_tokens.labels(model).inc(stats.num_sampled_tokens)
        self._prompt_tokens.labels(model).inc(stats.num_prompt_tokens)
        self._prefix_queries.labels(model).inc(stats.prefix_queries)
        self._prefix_hits.labels(model).inc(stats.prefix_hits)
        self._num_preemptions.labels(model).inc(stats.preemptions)
        if stats.num_scheduled_tokens:
            self._step_sizes.labels(model).observe(stats.num_scheduled_tokens)
        observe_gap = self._itl.labels(model).observe
        for gap in stats.token_gaps:
            observe_gap(gap)
        self._swap_space.labels(model).set(stats.swap_bytes)
        self._swap_used.labels(model).set(stats.swap_used_bytes)
        if stats.recovery is not None:
            self._observe_recovery(model, stats.recovery)
        self._observe_tiers(model, stats)

    def _observe_tiers(self, model: str, stats: Stats) -> None:
        for tier, count in stats.hits_by_tier.items():
            self._hits_by_tier.labels(model, tier).inc(count)
        for way, count in stats.prefix_ways.items():
            self._prefix_ways.labels(model, way).inc(count)
        for kind, direction in _DIRECTIONS.items():
            self._disk_moved.labels(model, direction).inc(stats.disk_moved[kind])
            self._disk_failed.labels(model, direction).inc(stats.disk_failed[kind])
        self._disk_blocks.labels(model).set(stats.num_disk_blocks)
        self._disk_bytes.labels(model).set(stats.disk_bytes)

    def _observe_recovery(self, model: str, stats: RecoveryStats) -> None:
        for mode, count in stats.preemptions.items():
            self._preemptions.labels(model, mode).inc(count)
        for mode, seconds in stats.seconds.items():
            self._recovery_seconds.labels(model, mode).inc(seconds)
        self._recomputed.labels(model).inc(stats.num_recomputed_tokens)
        for kind, direction in _DIRECTIONS.items():
            self._swapped_blocks.labels(model, direction).inc(stats.swapped_blocks[kind])
            self._swapped_bytes.labels(model, direction).inc(stats.swapped_bytes[kind])
            self._cancelled.labels(model, direction).inc(stats.cancelled_blocks[kind])
        for mode, error in stats.errors:
            self._error.labels(model, mode).observe(error)

    def observe_limits(self, model: str, limits: SchedulerConfig) -> None:
        """Take in what a model's engine was loaded with."""
        self._limits[model] = limits

    def observe_load(self, model: str, progress: LoadProgress) -> None:
        """Take in how far a model has arrived."""
        self._stage.labels(model).set(progress.stage)
        self._loaded.labels(model).set(progress.bytes_loaded)
        self._weights.labels(model).set(progress.bytes_total)

    def observe_accepted(self, model: str, n: int, max_tokens: int | None) -> None:
        """Take in what a request asks for."""
        self._n.labels(model).observe(n)
        if max_tokens is not None:
            self._max_tokens.labels(model).observe(max_tokens)

    def observe_http(self, handler: str, method: str, status: int, code: str | None = None) -> None:
        """Take in an answer to an HTTP request; `code` where it was an error."""
        self._http_requests.labels(handler, method if method in _METHODS else _OTHER, status).inc()
        if code is not None:
            self._rejections.labels(status, code).inc()

    def observe_finished(self, model: str, output: RequestOutput) -> None:
        """Take in a request that has ended, well or not."""
        reason = _finished_reason(output)
        self._success.labels(model, reason).inc()
        if reason in ("stop", "length"):
            self._prompt_sizes.labels(model).observe(len(output.prompt_token_ids))
            self._generation_sizes.labels(model).observe(sum(len(each.token_ids) for each in output.outputs))
        if output.metrics is not None:
            self._resumed.labels(model).inc(output.metrics.is_resumed)
            self._observe_times(model, output.metrics, _num_steps(output) if reason in ("stop", "length") else None)

    def _observe_times(self, model: str, times: RequestMetrics, num_tokens: int | None) -> None:
        """Phases that a request has been through count even if it was then aborted: those who gave up had waited."""
        arrival, scheduled, first = times.arrival_time, times.first_scheduled_time, times.first_token_time
        if scheduled is not None:
            self._queue.labels(model).observe(scheduled - arrival)
        if scheduled is not None and first is not None:
            self._ttft.labels(model).observe(first - arrival)
            self._prefill.labels(model).observe(first - scheduled)
        if num_tokens is None or times.finished_time is None:
            return
        self._request_preemptions.labels(model).observe(times.num_preemptions)
        if scheduled is not None and times.last_token_time is not None:
            self._inference.labels(model).observe(times.last_token_time - scheduled)
        self._e2e.labels(model).observe(times.finished_time - arrival)
        if first is not None and times.last_token_time is not None:
            self._decode.labels(model).observe(times.last_token_time - first)
            if num_tokens > 1:
                self._tpot.labels(model).observe((times.finished_time - first) / (num_tokens - 1))

    def render(self) -> bytes:
        """Every metric in Prometheus' text format."""
        return generate_latest(self)

    def collect(self) -> Iterator[Metric]:
        """Every series."""
        yield from collect(self.registry)
        yield self._cache_config()

    def _cache_config(self) -> Metric:
        """As dashboards know it: a series whose labels are the figures."""
        family = InfoMetricFamily("quire_cache_config", "What the KV cache was made with.", labels=[MODEL_LABEL])
        for model, limits in list(self._limits.items()):
            figures = {
                "block_size": str(limits.block_size),
                "num_gpu_blocks": str(limits.num_blocks),
                "num_cpu_blocks": str(limits.num_swap_slots),
                "enable_prefix_caching": str(limits.enable_prefix_caching),
            }
            family.add_metric([model], figures)
        return family

    def values(self) -> dict[str, dict[str, float]]:
        """Model -> name -> value, of the series with no other label."""
        found: dict[str, dict[str, float]] = {}
        for metric in self.collect():
            for sample in metric.samples:
                if sample.labels.keys() == {MODEL_LABEL}:
                    found.setdefault(sample.labels[MODEL_LABEL], {})[sample.name] = sample.value
        return found

    def _gauge(self, name: str, text: str, **others: tuple[str, ...]) -> Gauge:
        return self._noted(Gauge(f"quire_{name}", text, [MODEL_LABEL, *others], registry=self.registry), **others)

    def _counter(self, name: str, text: str, **others: tuple[str, ...]) -> Counter:
        """By model, and by other labels, with the values that they may have."""
        return self._noted(Counter(f"quire_{name}", text, [MODEL_LABEL, *others], registry=self.registry), **others)

    def _histogram(self, name: str, text: str, buckets: tuple[float, ...], **others: tuple[str, ...]) -> Histogram:
        labels = [MODEL_LABEL, *others]
        return self._noted(Histogram(f"quire_{name}", text, labels, registry=self.registry, buckets=buckets), **others)

    def _noted(self, metric: M, **others: tuple[str, ...]) -> M:
        self._series += [(metric, values) for values in product(*others.values())]
        return metric

    def _show(self, model: str) -> None:
        """Rates over a series need its zero: one that appears with its first event hides that event."""
        for metric, values in self._series:
            metric.labels(model, *values)


def collect(registry: CollectorRegistry) -> Iterator[Metric]:
    """Its series but the times at which series were made, which would double their number."""
    for metric in registry.collect():
        metric.samples = [sample for sample in metric.samples if not sample.name.endswith("_created")]
        yield metric


def metrics_routes(metrics: Metrics) -> APIRouter:
    """GET /metrics."""
    router = APIRouter(tags=["operations"])

    @router.get("/metrics", response_class=PlainTextResponse, responses={"4XX": ERROR_RESPONSES["4XX"]})
    def show_metrics() -> PlainTextResponse:
        """Counters, gauges and histograms of every model, in Prometheus' text format."""
        return PlainTextResponse(metrics.render(), media_type=CONTENT_TYPE_PLAIN_0_0_4)

    return router


def _finished_reason(output: RequestOutput) -> str:
    """How a request ended; of several outputs, what cut one short says more than that another was complete."""
    if output.error is not None:
        return "error"
    reasons = {completion.finish_reason for completion in output.outputs}
    return next((reason for reason in ("error", "abort", "length") if reason in reasons), "stop")


def _num_steps(output: RequestOutput) -> int:
    """The tokens of the longest output: the other outputs are made beside it."""
    return max((len(completion.token_ids) for completion in output.outputs), default=0)
