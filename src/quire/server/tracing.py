"""OpenTelemetry spans of requests, built at the end of each from its recorded times.

Imported with --otlp-traces-endpoint only. The attributes are those of OpenTelemetry's conventions for generative AI;
no span has text of a prompt or an answer.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Any

from opentelemetry import propagate, trace
from opentelemetry.context import Context
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, Tracer

import quire
from quire.outputs import RequestMetrics, RequestOutput
from quire.sampling_params import SamplingParams

_Phase = tuple[str, float, float]  # name, start and end (`time.monotonic`)
_SAMPLING = ("max_tokens", "temperature", "top_p", "top_k")


def otlp_exporter(endpoint: str) -> SpanExporter:
    """Return the exporter of the protocol in the environment, http/protobuf by default. Raises ImportError."""
    protocol = os.environ.get("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", os.environ.get("OTEL_EXPORTER_OTLP_PROTOCOL"))
    kind = "grpc" if protocol == "grpc" else "http"
    exporter: SpanExporter = import_module(f"opentelemetry.exporter.otlp.proto.{kind}.trace_exporter").OTLPSpanExporter(
        endpoint=endpoint
    )
    return exporter


class Tracing:
    """Sends spans to an exporter in the background. The variables OTEL_* of the SDK apply."""

    def __init__(self, exporter: SpanExporter) -> None:
        own = Resource({"service.name": "quire", "service.version": quire.__version__})
        self._provider = TracerProvider(resource=own.merge(OTELResourceDetector().detect()), shutdown_on_exit=False)
        self._provider.add_span_processor(BatchSpanProcessor(exporter))
        self._tracer = self._provider.get_tracer("quire", quire.__version__)

    def begin(self, headers: Mapping[str, str], operation: str) -> RequestTrace:
        """Begin the trace of a request, in the context that its headers carry."""
        return RequestTrace(self._tracer, propagate.extract(dict(headers)), operation)

    def close(self) -> None:
        """Send the last spans."""
        self._provider.shutdown()


class RequestTrace:
    """The spans of one request: one for each prompt, and in it those of its phases."""

    def __init__(self, tracer: Tracer, parent: Context, operation: str) -> None:
        self._tracer, self._parent = tracer, parent
        self._began = self._last = time.monotonic()
        self._shift_ns = time.time_ns() - int(self._began * 1e9)
        self._phases: list[_Phase] = []
        self._name, self._attributes = operation, dict[str, Any]()
        self._num_open = 0  #: prompts

    def lap(self, name: str) -> None:
        """Name the time since the last lap, or since the beginning."""
        now = time.monotonic()
        self._phases.append((name, self._last, now))
        self._last = now

    def describe(self, model: str, params: SamplingParams, request_id: str, num_prompts: int) -> None:
        """Set what all spans of prompts have in common."""
        operation, self._num_open = self._name, num_prompts
        self._name = f"{operation} {model}"
        found = {
            "gen_ai.operation.name": operation,
            "gen_ai.provider.name": "quire",
            "gen_ai.request.model": model,
            "gen_ai.response.model": model,
            "gen_ai.response.id": request_id,
            "gen_ai.request.choice.count": params.n,
            **{f"gen_ai.request.{name}": getattr(params, name) for name in _SAMPLING},
        }
        self._attributes = {name: value for name, value in found.items() if value is not None}

    def end(self, output: RequestOutput) -> None:
        """Export the spans of a finished prompt."""
        self._num_open -= 1
        times = output.metrics or RequestMetrics(self._last)
        self._export(times.finished_time or time.monotonic(), _usage_of(output), output.error, times)

    def close(self, error: Exception | None) -> None:
        """Export a span for each prompt that has not finished: it has failed, or its client has left."""
        kind, why = ("cancelled", "the client has left") if error is None else (type(error).__name__, str(error))
        for _ in range(self._num_open):
            self._export(time.monotonic(), {"error.type": kind}, why, None)

    def _export(self, end: float, found: dict[str, Any], error: str | None, times: RequestMetrics | None) -> None:
        start, attributes = min(self._began, end), {**self._attributes, **found}
        root = self._start(self._name, start, self._parent, kind=SpanKind.SERVER, attributes=attributes)
        if error is not None:
            root.set_status(Status(StatusCode.ERROR, error))
        for name, began, ended in (*self._phases, *(_phases_of(times, end) if times is not None else ())):
            span = self._start(name, began, trace.set_span_in_context(root))
            for after_s, took_s in times.recoveries if times is not None else ():
                if times is not None and began <= (paused := times.arrival_time + after_s) < ended:
                    self._end(self._start("recovery", paused, trace.set_span_in_context(span)), paused + took_s)
            self._end(span, ended)
        self._end(root, end)

    def _start(self, name: str, start: float, parent: Context, **options: Any) -> Span:
        return self._tracer.start_span(name, parent, start_time=int(start * 1e9) + self._shift_ns, **options)

    def _end(self, span: Span, end: float) -> None:
        span.end(int(end * 1e9) + self._shift_ns)


def _phases_of(times: RequestMetrics, end: float) -> Iterator[_Phase]:
    scheduled, first = times.first_scheduled_time, times.first_token_time
    yield "queue", times.arrival_time, scheduled or end
    if scheduled is not None:
        yield "prefill", scheduled, first or end
    if first is not None:
        yield "decode", first, times.last_token_time or end


def _usage_of(output: RequestOutput) -> dict[str, Any]:
    return {
        "gen_ai.usage.input_tokens": len(output.prompt_token_ids),
        "gen_ai.usage.cache_read.input_tokens": sum(output.cached_tokens.values()),
        "gen_ai.usage.output_tokens": sum(len(each.token_ids) for each in output.outputs),
        "gen_ai.response.finish_reasons": [each.finish_reason or "error" for each in output.outputs],
    }
