"""Spans of requests: parents, phases whose times add up, attributes; and their absence by default."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from itertools import pairwise
from typing import Any

import httpx
import pytest

from family_templates import QWEN
from quire.config import EngineConfig
from quire.rag.embedder import find_embedder
from quire.server.collections.service import CollectionService
from quire.server.registry import ServedModel
from serving import MODEL, SMALL, RunningServer, make_model, running

pytest.importorskip("opentelemetry.sdk")

from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from quire.server.tracing import Tracing
from server.openai.test_retrieval import BREAD, asked, fill

TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
HEADERS = {"traceparent": f"00-{TRACE}-{PARENT}-01"}
Spans = list[ReadableSpan]


@contextmanager
def traced(spans: Spans, *models: ServedModel, **options: Any) -> Iterator[RunningServer]:
    """Run a server, whose spans are in `spans` after its end."""
    exporter = InMemorySpanExporter()
    with running(*models, tracing=Tracing(exporter), **options) as server:
        yield server
    spans += exporter.get_finished_spans()


def children(spans: Spans, parent: ReadableSpan) -> dict[str, ReadableSpan]:
    assert parent.context is not None
    return {
        each.name: each for each in spans if each.parent is not None and each.parent.span_id == parent.context.span_id
    }


def root_of(spans: Spans) -> ReadableSpan:
    (root,) = (each for each in spans if " " in each.name)
    return root


def seconds(span: ReadableSpan) -> float:
    return ((span.end_time or 0) - (span.start_time or 0)) / 1e9


def check_phases(phases: list[ReadableSpan], root: ReadableSpan) -> None:
    """Check that phases follow each other within their root."""
    times = [root.start_time, *(time for each in phases for time in (each.start_time, each.end_time)), root.end_time]
    assert times == sorted(times)  # type: ignore[type-var]
    assert all(before.end_time == after.start_time for before, after in pairwise(phases))


def test_a_chat_is_a_child_of_its_context_and_its_phases_add_up() -> None:
    spans: Spans = []
    with traced(spans, make_model(chat_template=QWEN)) as server:
        body = {"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 8, "temperature": 0.5}
        answer = server.send("POST", "/v1/chat/completions", json=body, headers=HEADERS).json()
    root = root_of(spans)
    assert root.name == f"chat {MODEL}"
    assert root.context is not None
    assert root.parent is not None
    assert (f"{root.context.trace_id:032x}", f"{root.parent.span_id:016x}") == (TRACE, PARENT)
    phases = children(spans, root)
    assert list(phases) == ["queue", "prefill", "decode"]
    check_phases(list(phases.values()), root)
    assert sum(map(seconds, phases.values())) <= seconds(root)
    found = dict(root.attributes or {})
    names = ("operation.name", "request.model", "request.max_tokens", "request.temperature", "response.id")
    assert [found[f"gen_ai.{name}"] for name in names] == ["chat", MODEL, 8, 0.5, answer["id"]]
    usage = answer["usage"]
    assert found["gen_ai.usage.input_tokens"] == usage["prompt_tokens"]
    assert found["gen_ai.usage.output_tokens"] == usage["completion_tokens"]
    assert found["gen_ai.response.finish_reasons"] == (answer["choices"][0]["finish_reason"],)
    assert (root.resource.attributes["service.name"], root.status.is_unset) == ("quire", True)


def test_a_load_and_a_retrieval_are_phases(tmp_path: Any) -> None:
    fill(tmp_path, {"bread": BREAD})
    spans: Spans = []
    service = CollectionService(tmp_path, find_embedder("hashing"))
    with traced(spans, make_model(), service=service, is_ready=False) as server, ThreadPoolExecutor(1) as threads:
        engine = server.registry.get(None).async_engine
        waiting = threads.submit(server.complete, prompt="Who bakes bread?", **asked())
        while not engine.num_queued:
            pass
        engine.start()
        assert waiting.result().status_code == 200
    root = root_of(spans)
    phases = children(spans, root)
    assert root.name == f"text_completion {MODEL}"
    assert root.parent is None
    assert list(phases) == ["retrieval", "load", "queue", "prefill", "decode"]
    check_phases([phases["retrieval"], phases["load"]], root)
    check_phases([phases[name] for name in ("queue", "prefill", "decode")], root)


def test_each_preemption_is_a_recovery_within_its_phase() -> None:
    config = EngineConfig(model=MODEL, num_kv_blocks=12, max_model_len=128, use_tqdm=False)
    spans: Spans = []
    with traced(spans, make_model(config)) as server, ThreadPoolExecutor(3) as threads:
        body = {"max_tokens": 100, "ignore_eos": True, "temperature": 0}
        for answer in [threads.submit(server.complete, **body) for _ in range(3)]:
            assert answer.result().status_code == 200
    recoveries = [each for each in spans if each.name == "recovery"]
    by_id = {each.context.span_id: each for each in spans if each.context is not None}
    assert recoveries
    for each in recoveries:
        assert each.parent is not None
        phase = by_id[each.parent.span_id]
        assert phase.name in ("prefill", "decode")
        check_phases([each], phase)


def test_a_request_whose_client_leaves_has_a_span_with_the_reason() -> None:
    spans: Spans = []
    config = replace(SMALL, max_model_len=None, num_kv_blocks=256)
    with traced(spans, make_model(config)) as server:
        body = {"model": MODEL, "prompt": "Hello", "stream": True, "max_tokens": 2000, "ignore_eos": True}
        with httpx.stream("POST", f"{server.url}/v1/completions", json=body, timeout=100) as answer:
            next(answer.iter_lines())
        server.wait_until_idle()
    root = root_of(spans)
    assert (root.attributes or {})["error.type"] == "cancelled"
    assert not root.status.is_ok


def test_without_the_exporter_the_error_names_the_extra() -> None:
    code = (
        "import sys; sys.modules['opentelemetry'] = None\n"
        "from quire.cli.main import make_app\n"
        "make_app('serve')(['serve', 'random:tiny', '--port', '0', '--no-engine-process', "
        "'--otlp-traces-endpoint', 'http://127.0.0.1:1/v1/traces'])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 2
    assert "pip install 'quire-llm[otel]'" in done.stderr
