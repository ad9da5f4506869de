"""All metrics of a server process: its models', HTTP's, the collections' and the process' own; GET /metrics."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from fastapi import APIRouter
from prometheus_client import CollectorRegistry, Counter, Histogram, Metric, ProcessCollector, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from prometheus_client.metrics_core import InfoMetricFamily
from starlette.responses import PlainTextResponse

from quire.config import SchedulerConfig
from quire.server.bodies.replies import ERROR_RESPONSES
from quire.server.metrics.engine import LifetimeMetrics, StepMetrics
from quire.server.metrics.families import MODEL_LABEL, PHASE_BUCKETS, Families, collect

DOCUMENT_OUTCOMES = ("added", "changed", "unchanged", "removed", "failed")
EMBEDDER_USES = ("search", "ingest", "embeddings")
_METHODS = ("GET", "POST", "DELETE", "OPTIONS")  # HEAD counts as GET


class Metrics:
    """The metrics of one server process. Threads may record concurrently.

    Args:
        models: names to show from the start, at zero; others appear with their first value.

    Attributes:
        steps: registry of the families that `observe_stats` changes, a part of `registry`.
    """

    def __init__(self, models: Iterable[str] = ()) -> None:
        self.registry, self.steps = CollectorRegistry(), CollectorRegistry()
        step_families, families = Families(self.registry, self.steps), Families(self.registry)
        lifetimes = LifetimeMetrics(families)
        self.observe_stats = StepMetrics(step_families).observe
        self.observe_load = lifetimes.observe_load
        self.observe_accepted = lifetimes.observe_accepted
        self.observe_finished = lifetimes.observe_finished
        self._limits: dict[str, SchedulerConfig] = {}
        self._add_http()
        self._add_collections()
        ProcessCollector(registry=self.registry)
        for model in models:
            step_families.show(model)
            families.show(model)

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
        self._searches = Histogram(
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

    def observe_search(self, seconds: float) -> None:
        """Record a search."""
        self._searches.observe(seconds)

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

    def values(self) -> dict[str, dict[str, float]]:
        """Return model -> name -> value, of the series without other labels."""
        found: dict[str, dict[str, float]] = {}
        for metric in self.collect():
            for sample in metric.samples:
                if sample.labels.keys() == {MODEL_LABEL}:
                    found.setdefault(sample.labels[MODEL_LABEL], {})[sample.name] = sample.value
        return found


def metrics_routes(metrics: Metrics) -> APIRouter:
    """GET /metrics."""
    router = APIRouter(tags=["operations"])

    @router.get("/metrics", response_class=PlainTextResponse, responses={"4XX": ERROR_RESPONSES["4XX"]})
    def show_metrics() -> PlainTextResponse:
        """Return counters, gauges and histograms of every model, in Prometheus' text format."""
        return PlainTextResponse(metrics.render(), media_type=CONTENT_TYPE_PLAIN_0_0_4)

    return router
