"""GET /v1/live: what it shows is what the engine has, to each key its own, and nothing is computed unwatched."""

from __future__ import annotations

import asyncio
import json
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from types import SimpleNamespace
from typing import Any

import httpx

from quire.assembly import start_engine
from quire.async_engine.live_view import look
from quire.async_engine.messages import ModelState
from quire.config import EngineConfig
from quire.engine.engine import Engine
from quire.sampling_params import SamplingParams
from quire.server.live import MAX_VIEWERS_PER_KEY, LiveFeed, _describe_engine
from quire.server.metrics import Metrics
from quire.server.settings import ServerSettings
from serving import MODEL, PATIENCE_S, SMALL, RunningServer, make_model, running, wait_until

NUM_BLOCKS = 64
SECRET = "the treasure is buried under the old oak"
Snapshot = dict[str, Any]


@contextmanager
def watching(server: RunningServer, key: str = "none", **query: str) -> Iterator[Iterator[Snapshot]]:
    """Iterate over the snapshots that a client receives."""
    headers = {"Authorization": f"Bearer {key}"}
    with (
        httpx.Client(timeout=PATIENCE_S) as client,
        client.stream("GET", f"{server.url}/v1/live", headers=headers, params=query) as answer,
    ):
        assert answer.status_code == 200, answer.read()
        assert answer.headers["content-type"].startswith("text/event-stream")
        lines = answer.iter_lines()
        yield (json.loads(line.removeprefix("data: ")) for line in lines if line.startswith("data: "))


def until(snapshots: Iterator[Snapshot], condition: Callable[[Snapshot], Any]) -> Snapshot:
    return next(each for each in snapshots if condition(each))


@contextmanager
def stepping(**settings: Any) -> Iterator[tuple[RunningServer, threading.Semaphore]]:
    """A server whose engine makes one step for each release of the semaphore."""
    steps = threading.Semaphore(0)

    def start(config: EngineConfig) -> Engine:
        engine = start_engine(config)
        execute = engine.runner.execute

        def wait(*args: Any) -> Any:
            steps.acquire()
            return execute(*args)

        engine.runner.execute = wait  # type: ignore[method-assign]
        return engine

    with running(make_model(start=start), settings=ServerSettings(tenant_secret=b"s", **settings)) as server:
        try:
            yield server, steps
        finally:
            steps.release(10_000)


def test_a_snapshot_has_the_pool_of_the_engine_and_the_sums_of_its_steps() -> None:
    metrics = Metrics([MODEL])
    model = make_model(on_stats=partial(metrics.observe_stats, MODEL), **metrics.callbacks(MODEL))
    with running(model, metrics=metrics) as server:
        assert server.complete(prompt="Hello " * 20, max_tokens=9).status_code == 200
        server.wait_until_idle()
        with watching(server) as snapshots:
            shown = next(snapshots)
        pool = server.engine.scheduler.kv.pool
        engine, recent = shown["engine"], shown["recent"]
        assert shown["models"][0]["name"] == shown["model"] == MODEL
        assert shown["models"][0]["state"] == "ready"
        assert Counter(engine["cells"]) == {"c": pool.num_cached, "f": NUM_BLOCKS - pool.num_cached}
        assert pool.num_cached == 8
        assert (engine["num_blocks"], engine["num_cached"], engine["num_used"]) == (NUM_BLOCKS, 8, 0)
        assert engine["requests"] == []
        assert recent["sums"]["generated_tokens"] == 9
        assert recent["sums"]["prompt_tokens"] == 120
        assert recent["ttft_s"].keys() == recent["itl_s"].keys() == {"p50", "p95", "p99"}
        assert f'num_gpu_blocks="{NUM_BLOCKS}"' in server.get("/metrics").text


def test_a_key_sees_its_own_requests_and_of_others_only_blocks() -> None:
    with stepping(api_keys=("ann", "bob")) as (server, steps):
        body = {"model": MODEL, "prompt": SECRET, "max_tokens": 100, "ignore_eos": True, "request_id": "treasure"}
        headers = {"Authorization": "Bearer ann"}
        asking = threading.Thread(
            target=partial(server.send, "POST", "/v1/completions", json=body, headers=headers), daemon=True
        )
        asking.start()

        def has_request(shown: Snapshot) -> bool:
            steps.release()  # a running step answers nothing
            return bool(shown["engine"] and any(each["state"] == "running" for each in shown["engine"]["requests"]))

        with watching(server, "ann") as own, watching(server, "bob") as others:
            seen_by_ann, seen_by_bob = until(own, has_request), until(others, has_request)
        (request,) = seen_by_ann["engine"]["requests"]
        assert request["own"]
        assert "treasure" in request["request_id"]
        assert request["num_prompt_tokens"] == len(SECRET)
        assert seen_by_ann["engine"]["cells"].count(request["letter"]) == request["num_blocks"] > 0
        assert seen_by_bob["engine"]["cells"].count("x") == seen_by_bob["engine"]["num_used"] > 0
        (hidden,) = seen_by_bob["engine"]["requests"]
        assert hidden.keys() == {"own", "state", "num_blocks"}
        assert not hidden["own"]
        assert "treasure" not in json.dumps(seen_by_bob)
        steps.release(10_000)
        asking.join()


def test_a_request_keeps_its_letter_when_others_end() -> None:
    engine = start_engine(SMALL)
    for name in ("first", "second", "third"):
        engine.add_request("Hello", SamplingParams(max_tokens=9), request_id=name)
    engine.step()
    view, letters = look(engine.scheduler), dict[str, str]()
    tenant = view.requests[0].tenant
    assert sorted(each["letter"] for each in _describe_engine(view, tenant, letters)["requests"]) == ["A", "B", "C"]
    before = letters["third"]
    engine.abort("first")
    engine.step()
    (kept,) = [
        each["letter"]
        for each in _describe_engine(look(engine.scheduler), tenant, letters)["requests"]
        if each["request_id"] == "third"
    ]
    assert kept == before


def test_without_a_key_nothing_is_shown() -> None:
    with running(make_model(), settings=ServerSettings(api_keys=("ann",), tenant_secret=b"s")) as server:
        assert server.get("/v1/live").status_code == 401
        unknown = server.send("GET", "/v1/live?model=other", headers={"x-api-key": "ann"})
        assert unknown.status_code == 404


def test_the_engine_is_asked_only_while_somebody_watches() -> None:
    with running(make_model()) as server:
        engine = server.registry.get(None).async_engine
        look, asked = engine.look, []

        async def count(timeout_s: float) -> Any:
            asked.append(timeout_s)
            return await look(timeout_s)

        engine.look = count  # type: ignore[method-assign]
        server.complete()
        assert not asked
        with watching(server) as snapshots:
            next(snapshots)
            assert asked
        with watching(server) as snapshots:  # ends after the first one has ended
            next(snapshots)
        many = len(asked)
        server.complete()
        server.complete()
        assert len(asked) <= many + 1


def test_viewers_share_a_look_and_an_expensive_one_is_rare() -> None:
    engine = SimpleNamespace(state=ModelState.READY, num_looks=0)

    async def look(timeout_s: float) -> Any:
        engine.num_looks += 1
        return SimpleNamespace(took_s=1000.0)

    async def watch() -> int:
        feed = LiveFeed(engine)  # type: ignore[arg-type]
        for _ in range(2):
            views = await asyncio.gather(*(feed.view() for _ in range(20)))
            assert all(view is views[0] for view in views)
        return engine.num_looks

    engine.look = look
    assert asyncio.run(watch()) == 1


def test_a_key_cannot_hold_any_number_of_streams() -> None:
    with running(make_model()) as server:
        with httpx.Client(timeout=PATIENCE_S) as client:
            requests = [client.build_request("GET", f"{server.url}/v1/live") for _ in range(MAX_VIEWERS_PER_KEY)]
            answers = [client.send(request, stream=True) for request in requests]
            assert {answer.status_code for answer in answers} == {200}
            assert server.get("/v1/live").status_code == 429
            for answer in answers:
                answer.close()

        def has_room() -> bool:  # once the server has seen them leave
            with httpx.stream("GET", f"{server.url}/v1/live", timeout=PATIENCE_S) as answer:
                return answer.status_code == 200

        wait_until(has_room)


def test_a_model_that_loads_is_shown_without_an_engine() -> None:
    with running(make_model(SMALL), is_ready=False) as server, watching(server) as snapshots:
        shown = next(snapshots)
    assert shown["engine"] is None
    assert shown["models"][0]["state"] == "loading"
