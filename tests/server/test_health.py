"""Health reflects the engine: a working one answers, a hanging one does not."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from functools import cache
from typing import Any

import httpx
from starlette.applications import Starlette

import quire
from async_engine.harness import collect
from engines import thread_engine
from quire.assembly import LoadedModel, load, make_engine
from quire.async_engine.messages import ModelState
from quire.config import EngineConfig
from quire.engine.engine import Engine
from quire.sampling_params import SamplingParams
from quire.server.health import health_routes
from quire.server.openai.openapi import ApiDescription
from quire.server.registry import ModelRegistry, ServedModel
from quire.server.settings import ServerSettings

TINY = EngineConfig("random:tiny", num_kv_blocks=32, use_tqdm=False, device="cpu")


@cache
def loaded() -> LoadedModel:
    return load(TINY)


def make() -> Engine:
    return make_engine(TINY, loaded())


@asynccontextmanager
async def asking(*makers: Callable[[], Engine], heartbeat_timeout_s: float = 30, **settings: Any) -> AsyncIterator[Any]:
    """Yield a client, with the engines started."""
    engines = [thread_engine(f"m{number}", maker) for number, maker in enumerate(makers)]
    registry = ModelRegistry([ServedModel(engine.name, engine, 0) for engine in engines])
    routes = health_routes(registry, ServerSettings(heartbeat_timeout_s=heartbeat_timeout_s, **settings))
    app = Starlette(routes=list(routes))
    for engine in engines:
        engine.start()
    try:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test") as client:
            yield client, engines
    finally:
        for engine in engines:
            engine.shutdown()


async def health(client: httpx.AsyncClient) -> tuple[int, str]:
    answer = await client.get("/health")
    return answer.status_code, answer.json()["status"]


def run(coroutine: Any) -> Any:
    return asyncio.run(asyncio.wait_for(coroutine, 60))


def test_ready_engines_that_answer_are_ok() -> None:
    async def ask() -> None:
        async with asking(make, make) as (client, engines):
            await asyncio.gather(*(engine.wait_ready() for engine in engines))
            assert await health(client) == (200, "ok")

    run(ask())


def test_loading_and_failed_models_are_not_ok() -> None:
    may_load = threading.Event()

    def slow() -> Engine:
        may_load.wait()
        return make()

    def broken() -> Engine:
        raise ValueError("no such model")

    async def ask() -> None:
        async with asking(make, slow, broken) as (client, engines):
            while engines[2].state is not ModelState.FAILED or engines[0].state is not ModelState.READY:
                await asyncio.sleep(0.01)
            assert await health(client) == (503, "failed"), "the gravest of several"
        async with asking(make, slow) as (client, engines):
            await engines[0].wait_ready()
            assert await health(client) == (503, "loading")
            may_load.set()
            await engines[1].wait_ready()
            assert await health(client) == (200, "ok")

    try:
        run(ask())
    finally:
        may_load.set()


def test_a_model_that_loads_again_leaves_the_others_healthy() -> None:
    async def ask() -> None:
        async with asking(make, make) as (client, engines):
            await asyncio.gather(*(engine.wait_ready() for engine in engines))
            assert await health(client) == (200, "ok")
            engines[1].gate.state = ModelState.LOADING  # as after an unload: only processes are unloaded
            answer = await client.get("/health")
            assert (answer.status_code, answer.json()["status"]) == (200, "ok")
            assert len(answer.json()["loading"]) == 1
            engines[0].gate.state = ModelState.LOADING
            assert await health(client) == (503, "loading")

    run(ask())


def test_an_engine_that_hangs_in_a_step_is_hanging_and_then_well_again() -> None:
    may_go_on, in_step = threading.Event(), threading.Event()

    def make_hanging() -> Engine:
        engine = make()
        execute = engine.runner.execute

        def hang(*args: Any) -> Any:
            in_step.set()
            may_go_on.wait()
            return execute(*args)

        engine.runner.execute = hang  # type: ignore[method-assign]
        return engine

    async def ask() -> None:
        async with asking(make_hanging, heartbeat_timeout_s=0.2) as (client, engines):
            await engines[0].wait_ready()
            assert await health(client) == (200, "ok")
            request = asyncio.create_task(collect(engines[0], [1, 2], SamplingParams(max_tokens=2), request_id="r"))
            await asyncio.to_thread(in_step.wait)
            assert await health(client) == (503, "hanging")
            may_go_on.set()
            await request
            while await health(client) != (200, "ok"):
                await asyncio.sleep(0.01)

    try:
        run(ask())
    finally:
        may_go_on.set()


def test_an_engine_that_is_lost_is_not_waited_for() -> None:
    may_fail, in_step, may_load = threading.Event(), threading.Event(), threading.Event()
    may_load.set()

    def make_failing() -> Engine:
        may_load.wait()
        engine = make()

        def fail(*args: Any) -> Any:
            in_step.set()
            may_fail.wait()
            raise SystemError("the device is gone")

        engine.step = fail  # type: ignore[method-assign]
        return engine

    async def ask() -> None:
        async with asking(make_failing, heartbeat_timeout_s=1000) as (client, engines):
            await engines[0].wait_ready()
            request = asyncio.create_task(collect(engines[0], [1, 2], SamplingParams(max_tokens=2), request_id="r"))
            await asyncio.to_thread(in_step.wait)
            asked = asyncio.create_task(health(client))
            while not engines[0]._replies:
                await asyncio.sleep(0.001)
            may_load.clear()
            may_fail.set()
            assert await asked == (503, "loading")
            request.cancel()
            may_load.set()

    try:
        run(ask())
    finally:
        may_fail.set()
        may_load.set()


def test_the_load_is_what_runs_or_waits() -> None:
    may_go_on, in_step = threading.Event(), threading.Event()

    def make_slow() -> Engine:
        engine = make()
        execute = engine.runner.execute

        def wait(*args: Any) -> Any:
            in_step.set()
            may_go_on.wait()
            return execute(*args)

        engine.runner.execute = wait  # type: ignore[method-assign]
        return engine

    async def ask() -> None:
        async with asking(make_slow) as (client, engines):
            await engines[0].wait_ready()
            assert (await client.get("/load")).json() == {"server_load": 0}
            request = asyncio.create_task(collect(engines[0], [1, 2], SamplingParams(max_tokens=2), request_id="r"))
            await asyncio.to_thread(in_step.wait)
            assert (await client.get("/load")).json() == {"server_load": 1}
            may_go_on.set()
            await request
            assert (await client.get("/load")).json() == {"server_load": 0}

    try:
        run(ask())
    finally:
        may_go_on.set()


def test_an_engine_that_drains_says_so() -> None:
    async def ask() -> None:
        async with asking(make) as (client, engines):
            await engines[0].wait_ready()
            await engines[0].drain(1)
            assert await health(client) == (503, "draining")

    run(ask())


def test_the_version_is_the_packages() -> None:
    async def ask() -> None:
        async with asking(make) as (client, _):
            assert (await client.get("/version")).json() == {"version": quire.__version__}

    run(ask())


def test_a_failed_model_leaves_the_well_ones_healthy_and_ready_shows_each() -> None:
    def broken() -> Engine:
        raise ValueError("no such model")

    async def ask() -> None:
        async with asking(make, broken) as (client, engines):
            while engines[1].state is not ModelState.FAILED or engines[0].state is not ModelState.READY:
                await asyncio.sleep(0.01)
            assert await health(client) == (200, "degraded")
            answer = await client.get("/readyz")
            assert answer.status_code == 200
            ok, failed = answer.json()["models"]
            assert ok == {"state": "ok", "model": "m0"}
            assert (failed["state"], failed["model"]) == ("failed", "m1")
            assert "no such model" in failed["error"]

    run(ask())


def test_a_server_without_a_model_is_alive_and_not_ready() -> None:
    def broken() -> Engine:
        raise ValueError("no such model")

    async def ask() -> None:
        async with asking(broken) as (client, engines):
            while engines[0].state is not ModelState.FAILED:
                await asyncio.sleep(0.01)
            assert (await client.get("/readyz")).status_code == 503
            assert (await client.get("/livez")).json() == {"status": "ok"}

    run(ask())


def test_ready_shows_no_names_to_clients_without_a_key() -> None:
    async def ask() -> None:
        async with asking(make, api_keys=("sk-a",)) as (client, engines):
            await engines[0].wait_ready()
            assert (await client.get("/readyz")).json() == {"status": "ok", "models": [{"state": "ok"}]}

    run(ask())


def test_a_server_whose_prompts_are_not_encoded_is_hanging_and_polls_add_no_work() -> None:
    may_encode = threading.Event()
    num_started = 0

    def hang() -> None:
        nonlocal num_started
        num_started += 1
        may_encode.wait(60)

    async def ask() -> None:
        async with asking(make, heartbeat_timeout_s=0.2) as (client, engines):
            await engines[0].wait_ready()
            assert await health(client) == (200, "ok")
            loop = asyncio.get_running_loop()
            loop.set_default_executor(ThreadPoolExecutor(2))
            stuck = [asyncio.create_task(asyncio.to_thread(hang)) for _ in range(2)]
            for _ in range(5):
                assert await health(client) == (503, "hanging")
            assert (await client.get("/livez")).status_code == 200
            assert loop._default_executor._work_queue.qsize() == 1  # type: ignore[attr-defined]
            may_encode.set()
            await asyncio.gather(*stuck)
            while await health(client) != (200, "ok"):
                await asyncio.sleep(0.01)

    try:
        run(ask())
    finally:
        may_encode.set()


def test_openapi_describes_it() -> None:
    engine = thread_engine("m", make)
    routes = health_routes(ModelRegistry([ServedModel("m", engine, 0)]), ServerSettings())
    description = ApiDescription(routes, root_path="", needs_key=False, chunks=())
    paths = json.loads(run(description.json()))["paths"]
    for path in ("/health", "/readyz", "/version"):
        described = paths[path]["get"]["responses"]
        assert "200" in described
        assert ("503" in described) == (path != "/version")


def test_wrong_kv_degrades_a_model_that_goes_on() -> None:
    async def ask() -> None:
        async with asking(make) as (client, engines):
            await engines[0].wait_ready()
            assert await health(client) == (200, "ok")
            engines[0].has_wrong_kv = True  # as after an audit
            assert await health(client) == (200, "degraded")
            assert (await client.get("/readyz")).json()["models"] == [{"state": "degraded", "model": "m0"}]

    run(ask())
