"""The access log: one line per request with operational facts, and no content."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from starlette.responses import JSONResponse
from starlette.types import Message, Receive, Scope, Send

from quire.server.http.keys import key_id
from quire.server.http.middleware import AccessLog, Authenticate, report_usage
from quire.server.log_format import JsonFormatter, TextFormatter
from quire.server.settings import ServerSettings
from server.asgi import ask, send_by_hand


async def answer(scope: Scope, receive: Receive, send: Send) -> None:
    await receive()
    report_usage(scope, model="quire-mini", prompt_tokens=12, completion_tokens=3)
    await JSONResponse({"text": "the secret answer"}, 201)(scope, receive, send)


async def fail(scope: Scope, receive: Receive, send: Send) -> None:
    raise RuntimeError("broken inside")


@pytest.fixture(autouse=True)
def _listen(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="quire.access")


def lines(caplog: pytest.LogCaptureFixture) -> list[dict[str, Any]]:
    return [record.fields for record in caplog.records if record.getMessage() == "request"]  # type: ignore[attr-defined]


def test_a_request_is_one_line_with_how_it_ended_and_what_it_cost(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = SimpleNamespace(perf_counter=iter((10.0, 10.25)).__next__)
    monkeypatch.setattr("quire.server.http.middleware.time", clock)
    settings = ServerSettings(api_keys=("sk-mine",), tenant_secret=b"s")
    app = AccessLog(Authenticate(answer, settings))
    found = ask(app, "POST", "/v1/completions", headers={"Authorization": "Bearer sk-mine"})
    (line,) = lines(caplog)
    assert line == {
        "ms": 250.0,
        "request_id": found.headers["X-Request-Id"],
        "client": "127.0.0.1",
        "key": key_id("sk-mine", b"s"),
        "method": "POST",
        "path": "/v1/completions",
        "status": 201,
        "model": "quire-mini",
        "prompt_tokens": 12,
        "completion_tokens": 3,
    }


def test_neither_prompt_nor_answer_nor_query_nor_key_is_written(caplog: pytest.LogCaptureFixture) -> None:
    settings = ServerSettings(api_keys=("sk-mine",))
    headers = {"Authorization": "Bearer sk-mine", "X-Other": "the secret header"}
    body = {"prompt": "the secret prompt"}
    ask(AccessLog(Authenticate(answer, settings)), "POST", "/v1/x?q=the+secret+query", headers=headers, json=body)
    wrong = {"Authorization": "Bearer sk-wrong"}
    ask(AccessLog(Authenticate(answer, settings)), "POST", "/v1/x", headers=wrong, json=body)
    for formatter in (TextFormatter(), JsonFormatter()):
        written = "".join(map(formatter.format, caplog.records))
        assert "secret" not in written
        assert "sk-" not in written
    assert [line["status"] for line in lines(caplog)] == [201, 401]


def test_the_clients_request_id_is_taken_and_given_back() -> None:
    assert ask(AccessLog(answer), headers={"X-Request-Id": "trace-1.a"}).headers["X-Request-Id"] == "trace-1.a"


@pytest.mark.parametrize("given", ["", "with space", "a" * 129, "ü".encode(), 'quote"'])
def test_an_id_that_is_not_plain_is_replaced(given: str, caplog: pytest.LogCaptureFixture) -> None:
    found = [ask(AccessLog(answer), headers={"X-Request-Id": given}).headers["X-Request-Id"] for _ in range(2)]
    assert all(name.startswith("req-") for name in found)
    assert found[0] != found[1]


def test_an_uncaught_exception_is_a_500_with_an_id_found_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    found = ask(AccessLog(fail), "POST")
    assert found.status_code == 500
    request_id = found.headers["X-Request-Id"]
    assert found.json()["error"]["type"] == "server_error"
    assert request_id in found.json()["error"]["message"]
    assert "broken inside" not in found.text
    assert f"request {request_id} failed" in caplog.text
    assert "RuntimeError: broken inside" in caplog.text
    assert lines(caplog)[0]["status"] == 500


def test_an_answer_that_breaks_off_is_not_made_to_look_whole(caplog: pytest.LogCaptureFixture) -> None:
    async def half(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"half", "more_body": True})
        raise RuntimeError("broken inside")

    with pytest.raises(RuntimeError):
        ask(AccessLog(half))
    assert (lines(caplog)[0]["status"], lines(caplog)[0]["cut_off"]) == (200, True)


def test_a_client_that_leaves_without_an_answer_is_written_as_499(caplog: pytest.LogCaptureFixture) -> None:
    async def give_up(scope: Scope, receive: Receive, send: Send) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass

    async def no_messages() -> AsyncIterator[Message]:
        return
        yield

    asyncio.run(send_by_hand(AccessLog(give_up), no_messages()))
    assert lines(caplog)[0]["status"] == 499


def test_a_task_that_is_cancelled_has_its_line_too(caplog: pytest.LogCaptureFixture) -> None:
    async def hang(scope: Scope, receive: Receive, send: Send) -> None:
        await asyncio.Event().wait()

    async def run() -> None:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(AccessLog(hang)), base_url="http://test") as client:
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(client.get("/"), 0.05)

    asyncio.run(run())
    assert lines(caplog)[0]["status"] == 499


def test_a_path_cannot_fake_a_line(caplog: pytest.LogCaptureFixture) -> None:
    ask(AccessLog(answer), path='/a%0A2031-01-01 00:00:00 INFO request status=200 key="x"')
    (line,) = TextFormatter().format(caplog.records[-1]).splitlines()
    assert r'path="/a\n2031-01-01 00:00:00 INFO request status=200 key=\"x\""' in line
    (line,) = JsonFormatter().format(caplog.records[-1]).splitlines()
    assert json.loads(line)["path"].startswith("/a\n2031")


@pytest.mark.parametrize("path", ["/health", "/livez", "/readyz", "/metrics"])
def test_the_log_leaves_out_what_supervisors_poll_unless_it_was_refused(
    path: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, logger="quire.access")
    for status in (200, 503, 401):
        ask(AccessLog(JSONResponse({}, status)), path=path)
    levels = [record.levelname for record in caplog.records if record.getMessage() == "request"]
    assert levels == ["DEBUG", "DEBUG", "INFO"]
