"""A model that loads in stages as clients see it: before the first stage, in each stage, and after unloading."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from engines import process_engine
from process_pool import fork_children
from quire.assembly import start_engine
from quire.async_engine.async_engine import AsyncEngine
from quire.async_engine.event_stream import EventStream
from quire.async_engine.host import ThreadHost
from quire.async_engine.messages import Add, Finished, LoadReport, Report, Started, StateReport, StepReport
from quire.config import EngineConfig
from quire.engine.engine import Engine
from quire.outputs import LoadProgress
from quire.routing import Router, RoutingConfig
from quire.server.registry import ServedModel
from serving import MODEL, PATIENCE_S, SMALL, RunningServer, make_model, running, wait_until

_PROGRESS = LoadProgress(2, 3, 600, 800, 12.34, "no such device", stage_bytes=(300, 600, 800))
GREEDY = {"max_tokens": 6, "ignore_eos": True, "temperature": 0}


class StagedEngine(AsyncEngine):
    """An engine as if in three stages: answers begin on the first, and most tokens come from the second."""

    def __init__(self) -> None:
        super().__init__(ThreadHost(MODEL, partial(start_engine, SMALL)))
        self.min_stages: list[int] = []

    def _send(self, stream: EventStream, number: int, add: Add) -> bool:
        self.min_stages.append(add.processed.min_stage)
        return super()._send(stream, number, replace(add, processed=replace(add.processed, min_stage=1)))

    def _handle_report(self, report: Report) -> None:
        match report:
            case StateReport(input_processor=facts) if facts is not None:
                facts.num_stages = facts.last_stage = 3
                super()._handle_report(LoadReport(_PROGRESS))
            case LoadReport():
                return
            case StepReport():
                for position, (key, event) in enumerate(report.events):
                    if isinstance(event, Started):
                        report.events[position] = key, replace(event, stage=1)
                    elif isinstance(event, Finished):
                        event.output.stages = [(1, 2), (2, 4)]
        super()._handle_report(report)


@pytest.fixture(scope="module")
def staged() -> Iterator[RunningServer]:
    with running(ServedModel(MODEL, StagedEngine(), 1)) as server:
        yield server


def test_a_request_that_has_the_time_waits_for_a_better_stage() -> None:
    router = Router(RoutingConfig("slo", {"only": MODEL}, quality={"only": [50, 76, 79]}))
    engine = StagedEngine()
    with running(ServedModel(MODEL, engine, 1), router=router) as server:
        server.complete(model=MODEL, **GREEDY)
        wait_until(lambda: engine.forecast is not None)
        patient = server.complete(model="auto", slo={"ttft_s": 3600}, **GREEDY).json()
        assert engine.min_stages[-1] == 3
        assert patient["routing"]["why"].endswith("waiting for stage 3")
        assert patient["routing"]["numbers"]["only, stage 3: TTFT s"] > 12.34
        server.complete(model="auto", slo={"ttft_s": 12}, **GREEDY)
        assert engine.min_stages[-1] == 1
        server.complete(model="auto", slo={"ttft_s": 12}, min_stage=2, **GREEDY)
        assert engine.min_stages[-1] == 2


@pytest.mark.parametrize("ask", [RunningServer.complete, RunningServer.chat])
def test_an_answer_says_which_stages_made_it(staged: RunningServer, server: RunningServer, ask: Any) -> None:
    expected = [{"stage": 1, "tokens": 2}, {"stage": 2, "tokens": 4}]
    whole = ask(staged, **GREEDY)
    assert (whole.headers["X-Quire-Stage"], whole.json()["usage"]["stages"]) == ("1", expected)
    stream = {**GREEDY, "stream": True, "stream_options": {"include_usage": True, "continuous_usage_stats": True}}
    streamed = ask(staged, **stream)
    usages = [json.loads(line[6:])["usage"] for line in streamed.text.splitlines() if line.startswith("data: {")]
    assert (streamed.headers["X-Quire-Stage"], usages[-1]["stages"]) == ("1", expected)
    assert "stages" not in usages[0], "a stage's tokens are known at the end"
    for body in (GREEDY, stream):
        plain = ask(server, **body)
        assert "X-Quire-Stage" not in plain.headers
        assert '"stages"' not in plain.text, "clients of plain models see nothing new"


def test_min_stage_goes_to_the_engine_and_must_be_one_of_the_models(staged: RunningServer) -> None:
    asked = staged.registry.get(None).async_engine.min_stages  # type: ignore[attr-defined]
    assert staged.complete(prompt=["a", "b"], min_stage=2).status_code == 200
    assert staged.chat(min_stage=3).status_code == 200
    assert asked[-3:] == [2, 2, 3]
    for wrong in (0, 4):
        refused = staged.complete(min_stage=wrong)
        assert (refused.status_code, refused.json()["error"]["param"]) == (400, "min_stage")
    assert "its stages are 1 to 3" in refused.json()["error"]["message"]


def test_a_model_that_serves_a_stage_is_well_and_its_card_says_how_far_it_is(staged: RunningServer) -> None:
    assert staged.get("/health").json() == {"status": "ok"}
    card = staged.get(f"/v1/models/{MODEL}").json()
    shown = {"state": "ready", "stage": 2, "num_stages": 3, "bytes_loaded": 600, "bytes_total": 800}
    assert card.items() >= {**shown, "seconds_left": 12.3, "load_error": "no such device"}.items()


def test_a_model_without_stages_that_computes_while_it_arrives_says_how_far_it_is(server: RunningServer) -> None:
    for loaded, shown in ((5, {"state": "ready", "stage": 1, "num_stages": 1, "bytes_loaded": 5}), (20, {})):
        server.registry.get(None).async_engine._handle_report(LoadReport(LoadProgress(0, 1, loaded, 20)))
        card = server.get(f"/v1/models/{MODEL}").json()
        assert card.items() >= shown.items()
    assert "bytes_loaded" not in card


def test_requests_wait_for_their_model_and_health_says_how_far_it_is() -> None:
    may_load = threading.Event()

    def load(config: EngineConfig) -> Engine:
        assert may_load.wait(PATIENCE_S)
        return start_engine(config)

    late = make_model(start=load, max_queue=3)
    hurried = make_model(name="hurried", start=load, load_wait_s=0)
    with running(late, hurried, is_ready=False) as server, ThreadPoolExecutor(3) as threads:
        for model in (late, hurried):
            model.async_engine.start()
        assert server.get("/health").json()["loading"] == [{"phase": "imports", "stage": 0, "num_stages": 1}] * 2
        for model in (late, hurried):
            model.async_engine._handle_report(LoadReport(LoadProgress(0, 2, 5, 20, 41.26)))
        progress = {"stage": 0, "num_stages": 2, "bytes_loaded": 5, "bytes_total": 20, "seconds_left": 41.3}
        health = server.get("/health")
        expected = {"status": "loading", "loading": [{"phase": "weights", **progress}] * 2}
        assert (health.status_code, health.json()) == (503, expected)
        assert server.get(f"/v1/models/{MODEL}").json().items() >= {"state": "loading", **progress}.items()

        refused = server.complete(model="hurried")
        assert (refused.status_code, refused.json()["error"]["code"]) == (503, "model_loading")
        assert refused.headers["Retry-After"] == "42"

        whole = threads.submit(server.complete, **GREEDY)
        stream = threads.submit(server.chat, stream=True, **GREEDY)
        tokens = threads.submit(server.post, "/tokenize", prompt="Hello")
        wait_until(lambda: late.async_engine.num_queued == 3)
        assert server.get("/load").json() == {"server_load": 3}
        assert server.complete().status_code == 429
        assert server.complete(prompt="a", stream_options={}, use_beam_search=True, stream=True).status_code == 400
        may_load.set()
        assert whole.result(PATIENCE_S).json()["usage"]["completion_tokens"] == 6
        assert stream.result(PATIENCE_S).text.endswith("data: [DONE]\n\n")
        assert tokens.result(PATIENCE_S).status_code == 200


def test_a_client_that_leaves_waits_no_longer() -> None:
    may_load = threading.Event()

    def load(config: EngineConfig) -> Engine:
        assert may_load.wait(PATIENCE_S)
        raise ValueError("no engine is left")

    with running(make_model(start=load), is_ready=False) as server:
        engine = server.registry.get(None).async_engine
        engine.start()
        host, port = server.url.removeprefix("http://").split(":")
        body = json.dumps({"prompt": "Hello"})
        head = (
            f"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {len(body)}"
        )
        with socket.create_connection((host, int(port))) as client:
            client.sendall(f"{head}\r\n\r\n{body}".encode())
            wait_until(lambda: engine.num_queued == 1)
        wait_until(lambda: engine.num_queued == 0)
        may_load.set()


def test_an_unloaded_model_is_well_keeps_its_facts_and_comes_back_with_a_request(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fork_children(monkeypatch)
    engine = process_engine(MODEL, partial(start_engine, SMALL))
    with running(ServedModel(MODEL, engine, 1)) as server:
        expected = server.complete(**GREEDY).json()["choices"]
        wait_until(lambda: engine.idle_s > 0.01)
        assert engine.unload()
        assert server.get("/health").json() == {"status": "ok"}
        card = server.get(f"/v1/models/{MODEL}").json()
        assert (card["state"], card["max_model_len"], "stage" in card) == ("unloaded", 256, False)
        assert server.post("/tokenize", prompt="a").status_code == server.get("/props").status_code == 200
        assert engine.state == "unloaded", "its tokenizer is known without it"
        assert server.complete(**GREEDY).json()["choices"] == expected
        assert server.get(f"/v1/models/{MODEL}").json()["state"] == "ready"
