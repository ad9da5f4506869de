"""An exception at each stage of a step: affected clients get a 500, others notice nothing, and the server continues."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import Any

import httpx
import pytest

from engines import process_engine
from process_pool import fork_children
from quire.assembly import start_engine
from quire.async_engine.loop import Failures
from quire.engine.engine import Engine
from quire.server.metrics import Metrics
from quire.server.registry import ServedModel
from server.faults.clients import Stream
from server.faults.faulty import Fault, corrupt_logits, raise_in_answer
from serving import MODEL, PATIENCE_S, SMALL, RunningServer, make_model, running, wait_until

CONFIG = replace(SMALL, num_kv_blocks=128, max_model_len=2048, max_num_seqs=2)
ENDLESS = {"max_tokens": 400, "ignore_eos": True}
GREEDY = {"max_tokens": 12, "ignore_eos": True, "temperature": 0, "prompt": [7, 8, 9]}


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(8) as threads:
        yield threads


def begin_two(server: RunningServer, threads: ThreadPoolExecutor) -> tuple[Stream, Future[httpx.Response]]:
    """Start a stream and a complete answer, which fill the batch."""
    stream = Stream(server.url, threads, {"model": MODEL, "prompt": [5, 6], **ENDLESS})
    whole = threads.submit(server.complete, prompt=[6, 7], **ENDLESS)
    wait_until(lambda: len(server.engine.scheduler.queue.running) == 2)
    async_engine = server.registry.get(None).async_engine
    wait_until(lambda: async_engine.num_queued == 0)  # both have begun
    return stream, whole


def queue_two(server: RunningServer, threads: ThreadPoolExecutor) -> tuple[Stream, Future[httpx.Response]]:
    """Queue the same question behind them, streamed and complete."""
    async_engine = server.registry.get(None).async_engine
    whole = threads.submit(server.complete, **GREEDY)
    stream = Stream(server.url, threads, {"model": MODEL, **GREEDY}, waits=False)
    wait_until(lambda: async_engine.num_queued == 2)
    return stream, whole


def check_that_it_serves(server: RunningServer, expected: str) -> None:
    server.wait_for_state(MODEL, "ready")
    assert server.get("/health").json() == {"status": "ok"}
    (card,) = server.get("/v1/models").json()["data"]
    assert (card["state"], card.get("error")) == ("ready", None)
    assert server.complete(**GREEDY).json()["choices"][0]["text"] == expected
    server.wait_until_idle()
    server.engine.scheduler.check_integrity()


def assert_failed(stream: Stream, whole: Future[httpx.Response]) -> None:
    """Check that both got an error in OpenAI's format."""
    answer = whole.result(PATIENCE_S)
    assert answer.status_code == 500
    events = stream.events()
    assert events[-1] == "[DONE]"
    for error in (answer.json()["error"], events[-2]["error"]):
        assert error["type"] == "server_error"
        assert error["code"] == "request_failed"
        assert "Injected: on purpose" in error["message"]


@pytest.mark.parametrize(
    ("stage", "num_engines"),
    [
        ("execute", 1),
        ("update", 2),
        pytest.param("schedule", 2, marks=pytest.mark.slow),
        pytest.param("figures", 2, marks=pytest.mark.slow),
    ],
)
def test_a_step_that_fails_fails_what_it_computes_and_an_engine_that_fails_fails_nothing(
    stage: str, num_engines: int, threads: ThreadPoolExecutor, caplog: pytest.LogCaptureFixture
) -> None:
    fault = Fault(stage)
    with running(make_model(CONFIG, start=fault)) as server:
        expected = server.complete(**GREEDY).json()["choices"][0]["text"]
        stream, whole = begin_two(server, threads)
        queued_stream, queued_whole = queue_two(server, threads)
        fault.arm()
        if stage == "execute":
            assert_failed(stream, whole)
        else:
            assert whole.result(PATIENCE_S).json()["usage"]["completion_tokens"] == 400
            assert stream.events()[-2]["choices"][0]["finish_reason"] == "length"
        assert queued_whole.result(PATIENCE_S).json()["choices"][0]["text"] == expected
        assert queued_stream.text() == expected
        check_that_it_serves(server, expected)
    assert fault.num_made == num_engines, "after a failed step the engine goes on; after anything else it starts over"
    logged = [
        record for record in caplog.records if record.exc_info and "Injected" in str(record.exc_info[1].__class__)
    ]
    assert logged, "the whole of it is in the log"


@pytest.mark.parametrize(("break_it", "why"), [(corrupt_logits, "not numbers"), (raise_in_answer, "on purpose")])
def test_a_request_that_cannot_be_sampled_or_written_fails_alone(
    break_it: Callable[[Engine, int], None], why: str, threads: ThreadPoolExecutor
) -> None:
    with running(make_model(replace(CONFIG, max_num_seqs=8))) as server:
        expected = server.complete(**{**GREEDY, "max_tokens": 150}).json()["choices"][0]["text"]
        bad = threads.submit(server.complete, prompt=[6, 7], **ENDLESS)
        bad_stream = Stream(server.url, threads, {"model": MODEL, "prompt": [6, 8], **ENDLESS})
        wait_until(lambda: len(server.engine.scheduler.queue.running) == 2)
        good = Stream(server.url, threads, {"model": MODEL, **GREEDY, "max_tokens": 150})
        break_it(server.engine, 6)
        answer = bad.result(PATIENCE_S)
        assert answer.status_code == 500
        for error in (answer.json()["error"], bad_stream.events()[-2]["error"]):
            assert (error["type"], error["code"]) == ("server_error", "request_failed")
            assert why in error["message"]
        assert good.text() == expected
        server.wait_until_idle()
        server.engine.scheduler.check_integrity()


def test_an_engine_that_fails_while_a_client_leaves_starts_over(threads: ThreadPoolExecutor) -> None:
    fault = Fault("abort")
    with running(make_model(CONFIG, start=fault)) as server:
        expected = server.complete(**GREEDY).json()["choices"][0]["text"]
        stream, whole = begin_two(server, threads)
        fault.arm()
        stream.leave()
        assert whole.result(PATIENCE_S).json()["usage"]["completion_tokens"] == 400
        check_that_it_serves(server, expected)
    assert fault.num_made == 2


def test_an_engine_that_fails_again_and_again_has_failed_for_a_while_and_every_endpoint_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fault = Fault("schedule", lasts=True)
    may_load = threading.Event()
    monkeypatch.setattr(Failures, "pause", lambda failures: failures.pause_s > 1 and may_load.wait(PATIENCE_S))
    with running(make_model(CONFIG, start=fault)) as server:
        answers: list[httpx.Response] = []

        def ask() -> bool:  # while restarting it rejects requests, which is not its own failure
            answers.append(server.complete(**GREEDY))
            return server.registry.get(MODEL).async_engine.state == "failed"

        fault.arm()
        wait_until(ask)
        assert {answer.status_code for answer in answers} <= {500, 503}
        late = server.chat()
        assert late.status_code == 503
        assert late.json()["error"]["code"] == "model_failed"
        assert "Retry-After" in late.headers
        assert "3 times within 60 s" in late.json()["error"]["message"]
        assert "it is loaded again in" in late.json()["error"]["message"]
        health = server.get("/health")
        assert (health.status_code, health.json()) == (503, {"status": "failed"})
        (card,) = server.get("/v1/models").json()["data"]
        assert card["state"] == "failed"
        assert "Injected: on purpose" in card["error"]
        assert fault.num_made == 4
        fault.disarm()
        may_load.set()
        wait_until(lambda: server.get("/health").status_code == 200)


def test_while_it_starts_over_new_requests_wait_for_it() -> None:
    may_load = threading.Event()
    fault = Fault("schedule")

    def start(config: Any) -> Engine:
        assert fault.num_made == 0 or may_load.wait(PATIENCE_S)
        return fault(config)

    with running(make_model(CONFIG, start=start)) as server, ThreadPoolExecutor(2) as threads:
        fault.arm()
        waiting = threads.submit(server.complete, **GREEDY)
        server.wait_for_state(MODEL, "loading")
        new = threads.submit(server.chat)
        wait_until(lambda: server.registry.get(MODEL).async_engine.num_queued == 2)
        assert server.get("/health").json()["status"] == "loading"
        assert server.post("/tokenize", prompt="a").status_code == 200, "whose tokenizer is known"
        may_load.set()
        assert new.result(PATIENCE_S).status_code == 200
        assert waiting.result(PATIENCE_S).status_code == 200, "it had not begun, and was sent to the next engine"


def test_a_stream_whose_engine_process_is_killed_goes_on_in_the_next_one(
    threads: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    fork_children(monkeypatch)
    metrics = Metrics([MODEL])
    engine = process_engine(MODEL, partial(start_engine, CONFIG), on_finished=partial(metrics.observe_finished, MODEL))
    with running(ServedModel(MODEL, engine, 1_700_000_000)) as server:
        asked = {**GREEDY, "max_tokens": 250, "temperature": 1.2, "seed": 5, "stream_options": {"include_usage": True}}
        stream = Stream(server.url, threads, {"model": MODEL, **asked})
        process = engine._host._child  # type: ignore[attr-defined]
        process.kill()
        killed_text, killed_events = stream.text(), stream.events()
        assert engine._host._child is not process  # type: ignore[attr-defined]
        assert server.get("/health").json() == {"status": "ok"}
        undisturbed = Stream(server.url, threads, {"model": MODEL, **asked})
        assert killed_text == undisturbed.text()
        assert killed_events[-2]["usage"] == undisturbed.events()[-2]["usage"]
    assert f'quire_requests_resumed_total{{model_name="{MODEL}"}} 1.0' in metrics.render().decode()
