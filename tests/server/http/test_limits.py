"""Requests that are too large, too slow or too many are rejected cheaply."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from quire.server.errors import ApiError, ErrorResponse
from quire.server.http.body import BODY_PARSED
from quire.server.http.middleware import MAX_HELD_BODIES, Authenticate, Concurrency, LimitBody, hold_sequences
from quire.server.settings import ServerSettings
from server.asgi import ask, send_by_hand, tell_state

LIMIT = 1000
LIMITED = LimitBody(tell_state, ServerSettings(max_body_bytes=LIMIT))


async def never(scope: Scope, receive: Receive, send: Send) -> None:
    raise AssertionError("the request reached the application")


# -- bodies ------------------------------------------------------------------------------------------------------------


def pieces(num: int, size: int) -> AsyncIterator[bytes]:
    async def iterate() -> AsyncIterator[bytes]:
        for _ in range(num):
            yield b"x" * size

    return iterate()


@pytest.mark.parametrize("size", [0, 1, LIMIT])
def test_a_body_up_to_the_limit_arrives_whole(size: int) -> None:
    assert ask(LIMITED, "POST", content=b"x" * size).json()["size"] == size


def test_a_body_in_pieces_arrives_whole() -> None:
    assert ask(LIMITED, "POST", content=pieces(10, 100)).json()["size"] == 1000


@pytest.mark.parametrize("is_announced", [True, False])
def test_a_body_over_the_limit_is_refused_with_413_that_names_the_limit(is_announced: bool) -> None:
    app = LimitBody(never, ServerSettings(max_body_bytes=LIMIT))
    answer = ask(app, "POST", content=b"x" * (LIMIT + 1) if is_announced else pieces(11, 100))
    assert answer.status_code == 413
    error = answer.json()["error"]
    assert (error["type"], error["code"]) == ("invalid_request_error", "body_too_large")
    assert "1,000 bytes" in error["message"]


def test_an_announced_length_over_the_limit_is_refused_before_a_byte_is_read() -> None:
    async def nothing() -> AsyncIterator[Message]:
        raise AssertionError("the body was read")
        yield

    app = LimitBody(never, ServerSettings(max_body_bytes=LIMIT))
    answers = asyncio.run(send_by_hand(app, nothing(), headers=[(b"content-length", b"50000000")]))
    assert answers[0]["status"] == 413


def test_an_endless_body_is_read_no_further_than_the_limit() -> None:
    num_read = 0

    async def endless() -> AsyncIterator[Message]:
        nonlocal num_read
        while True:
            num_read += 1
            yield {"type": "http.request", "body": b"x" * 100, "more_body": True}

    app = LimitBody(never, ServerSettings(max_body_bytes=LIMIT))
    assert asyncio.run(send_by_hand(app, endless()))[0]["status"] == 413
    assert num_read == 11


def test_large_bodies_find_room_for_so_many_bytes_together_and_small_ones_always() -> None:
    size = 2**20
    app = LimitBody(tell_state, ServerSettings(max_body_bytes=size))

    async def unfinished(done: asyncio.Event) -> AsyncIterator[Message]:
        yield {"type": "http.request", "body": b"x" * size, "more_body": True}
        await done.wait()
        yield {"type": "http.disconnect"}

    async def whole(num_bytes: int) -> AsyncIterator[Message]:
        yield {"type": "http.request", "body": b"x" * num_bytes}

    async def scene() -> None:
        done = asyncio.Event()
        held = [asyncio.create_task(send_by_hand(app, unfinished(done))) for _ in range(MAX_HELD_BODIES)]
        while app.held.total() < MAX_HELD_BODIES * size:
            await asyncio.sleep(0)
        refused = await send_by_hand(app, whole(size))
        assert refused[0]["status"] == 503
        assert (b"retry-after", b"1") in refused[0]["headers"]
        assert b"too_many_large_bodies" in refused[1]["body"]
        assert (await send_by_hand(app, whole(1000)))[0]["status"] == 200
        done.set()
        await asyncio.gather(*held)
        assert (await send_by_hand(app, whole(size)))[0]["status"] == 200
        assert not app.held

    asyncio.run(scene())


def test_one_key_cannot_hold_the_room_of_all_and_gives_it_back_once_its_body_is_parsed() -> None:
    size = 2**20
    settings = ServerSettings(max_body_bytes=size, api_keys=("mine", "yours"))
    end = asyncio.Event()

    async def stream(scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        if scope["path"] == "/parsed":
            scope[BODY_PARSED](10)
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await end.wait()

    app = LimitBody(stream, settings)

    async def post(key: str, path: str) -> list[Message]:
        async def body() -> AsyncIterator[Message]:
            yield {"type": "http.request", "body": b"x" * size}

        headers = [(b"authorization", f"Bearer {key}".encode())]
        return await send_by_hand(Authenticate(app, settings), body(), path=path, headers=headers)

    async def scene() -> None:
        parsed = [asyncio.create_task(post("mine", "/parsed")) for _ in range(2 * MAX_HELD_BODIES)]
        kept = [asyncio.create_task(post("mine", "/")) for _ in range(MAX_HELD_BODIES)]
        num_refused = 0
        while num_refused + app.held.total() // size < MAX_HELD_BODIES:
            num_refused = sum(task.done() for task in kept)
            await asyncio.sleep(0.01)
        assert num_refused > MAX_HELD_BODIES // 2 - 2
        kept.append(yours := asyncio.create_task(post("yours", "/")))
        while len(app.held) < 2:
            await asyncio.sleep(0.01)
        assert not any(task.done() for task in [*parsed, yours])
        end.set()
        answers = await asyncio.gather(*parsed, *kept)
        assert [answer[0]["status"] for answer in answers].count(503) < MAX_HELD_BODIES // 2 + 2
        assert not app.held

    asyncio.run(scene())


def test_a_body_that_dribbles_in_is_given_up_with_408() -> None:
    async def slow() -> AsyncIterator[Message]:
        yield {"type": "http.request", "body": b"{", "more_body": True}
        await asyncio.Event().wait()

    app = LimitBody(never, ServerSettings(), timeout_s=0.05)
    answers = asyncio.run(send_by_hand(app, slow()))
    assert answers[0]["status"] == 408
    assert b"request_timeout" in answers[1]["body"]


def test_a_client_that_leaves_before_its_body_is_complete_is_not_answered() -> None:
    async def broken_off() -> AsyncIterator[Message]:
        yield {"type": "http.request", "body": b"{", "more_body": True}

    assert asyncio.run(send_by_hand(LimitBody(never, ServerSettings()), broken_off())) == []


def test_after_the_body_the_application_hears_when_its_client_leaves() -> None:
    heard: list[str] = []

    async def listen(scope: Scope, receive: Receive, send: Send) -> None:
        heard.extend([(await receive())["type"], (await receive())["type"]])

    async def body() -> AsyncIterator[Message]:
        yield {"type": "http.request", "body": b"{}", "more_body": False}

    asyncio.run(send_by_hand(LimitBody(listen, ServerSettings()), body()))
    assert heard == ["http.request", "http.disconnect"]


# -- requests at once --------------------------------------------------------------------------------------------------


class Held:
    """Answers begin at once and end on demand."""

    def __init__(self) -> None:
        self.num_running = 0
        self.may_end = asyncio.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.num_running += 1
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"begun", "more_body": True})
        try:
            await self.may_end.wait()
        finally:
            self.num_running -= 1
        if scope["path"] == "/fails":
            raise RuntimeError("in the middle")
        await send({"type": "http.response.body", "body": b"", "more_body": False})


def limited(app: ASGIApp, keys: tuple[str, ...] = (), limit: int | None = 2) -> ASGIApp:
    settings = ServerSettings(api_keys=keys, max_concurrent_per_key=limit)
    limit = settings.max_concurrent_per_key
    return Authenticate(app if limit is None else Concurrency(app, limit), settings)


def client_of(app: ASGIApp) -> httpx.AsyncClient:
    return httpx.AsyncClient(transport=httpx.ASGITransport(app, raise_app_exceptions=False), base_url="http://test")


def key(name: str) -> dict[str, dict[str, str]]:
    return {"headers": {"Authorization": f"Bearer {name}"}}


async def begin(client: httpx.AsyncClient, held: Held, *requests: tuple[str, Any]) -> list[asyncio.Task[Any]]:
    expected = held.num_running + len(requests)
    tasks = [asyncio.create_task(client.post(path, **options)) for path, options in requests]
    while held.num_running < expected:
        await asyncio.sleep(0)
    return tasks


def test_a_key_at_its_limit_gets_429_with_a_retry_time_while_others_are_served() -> None:
    async def run() -> None:
        held = Held()
        async with client_of(limited(held, ("mine", "yours"))) as client:
            tasks = await begin(client, held, ("/", key("mine")), ("/", key("mine")))
            refused = await client.post("/", **key("mine"))
            assert refused.status_code == 429
            assert int(refused.headers["Retry-After"]) >= 1
            error = refused.json()["error"]
            assert (error["type"], error["code"]) == ("rate_limit_error", "rate_limit_exceeded")
            tasks += await begin(client, held, ("/", key("yours")))
            held.may_end.set()
            assert [answer.status_code for answer in await asyncio.gather(*tasks)] == [200] * 3
            assert (await client.post("/", **key("mine"))).status_code == 200

    asyncio.run(run())


def test_a_request_counts_with_all_its_sequences() -> None:
    async def generate(scope: Scope, receive: Receive, send: Send) -> None:
        try:
            hold_sequences(scope, int(scope["path"][1:]))
        except ApiError as error:
            await ErrorResponse(error)(scope, receive, send)
            return
        await held(scope, receive, send)

    async def run() -> None:
        async with client_of(limited(generate, ("mine", "yours"), limit=4)) as client:
            tasks = await begin(client, held, ("/3", key("mine")))
            assert (await client.post("/2", **key("mine"))).status_code == 429
            tasks += await begin(client, held, ("/1", key("mine")), ("/4", key("yours")))
            assert (await client.post("/1", **key("mine"))).status_code == 429
            never = await client.post("/5", **key("mine"))
            assert never.status_code == 429, "the key is at its limit"
            held.may_end.set()
            assert [answer.status_code for answer in await asyncio.gather(*tasks)] == [200] * 3
            assert (await client.post("/5", **key("mine"))).status_code == 400, "which no waiting helps"
            assert (await client.post("/4", **key("mine"))).status_code == 200

    held = Held()
    asyncio.run(run())


def test_a_request_gives_its_place_back_however_it_ends() -> None:
    async def run() -> None:
        held = Held()
        concurrency = Concurrency(held, 2)
        async with client_of(concurrency) as client:
            cancelled, _ = await begin(client, held, ("/", {}), ("/fails", {}))
            cancelled.cancel()
            while held.num_running > 1:
                await asyncio.sleep(0)
            held.may_end.set()
            while held.num_running:
                await asyncio.sleep(0)
            assert [(await client.post("/")).status_code for _ in range(3)] == [200] * 3
        assert not concurrency.running

    asyncio.run(run())


def test_looking_is_never_limited_and_without_a_limit_nothing_is() -> None:
    async def run() -> None:
        for limit, num in ((2, 2), (None, 50)):
            held = Held()
            async with client_of(limited(held, limit=limit)) as client:
                tasks = await begin(client, held, *[("/", {})] * num)
                look = asyncio.create_task(client.get("/v1/models"))
                while held.num_running < num + 1:
                    await asyncio.sleep(0)
                held.may_end.set()
                assert {answer.status_code for answer in await asyncio.gather(look, *tasks)} == {200}

    asyncio.run(run())
