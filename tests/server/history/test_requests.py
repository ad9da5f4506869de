"""GET /v1/requests over a real server: a scripted agent's session, whose every break is explained, and tenants."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from family_templates import QWEN
from quire.server.settings import ServerSettings
from scripted import Script
from serving import MODEL, RunningServer, make_model, running

SCRIPT = Script(block_size=4)
SETTINGS = ServerSettings(api_keys=("ann", "bob", "cid", "dan"), tenant_secret=b"s" * 32)
WHY = {"X-Quire-Why": "1"}
SYSTEM = "You are a careful agent, who works in a small house of text. It is 2026-11-27, and you keep to the rules."
TOOLS = [("read", "Return the text of a file."), ("write", "Replace the text of a file.")]
Turns = list[tuple[str, str]]
#: Sends a conversation for a key, and returns the answer's id, text and usage.
Send = Callable[..., tuple[str, str, dict[str, Any]]]


@pytest.fixture(scope="module")
def server() -> Iterator[RunningServer]:
    with running(make_model(start=SCRIPT, chat_template=QWEN), settings=SETTINGS) as server:
        yield server


def post(server: RunningServer, path: str, key: str, body: dict[str, Any]) -> Any:
    headers = {"Authorization": f"Bearer {key}", **WHY}
    answer = server.send("POST", path, json={"model": MODEL, "max_tokens": 99, **body}, headers=headers)
    assert answer.status_code == 200, answer.text
    return answer.json()


def send_chat(
    server: RunningServer, key: str, system: str, tools: Any, turns: Turns, **body: Any
) -> tuple[str, str, dict[str, Any]]:
    messages = [{"role": role, "content": text} for role, text in [("system", system), *turns]]
    functions = [{"name": name, "description": about, "parameters": {"type": "object"}} for name, about in tools]
    shown = [{"type": "function", "function": function} for function in functions]
    answer = post(server, "/v1/chat/completions", key, {"messages": messages, "tools": shown, **body})
    return answer["id"], answer["choices"][0]["message"]["content"], answer["usage"]


def send_message(
    server: RunningServer, key: str, system: str, tools: Any, turns: Turns, **body: Any
) -> tuple[str, str, dict[str, Any]]:
    messages = [{"role": role, "content": text} for role, text in turns]
    shown = [{"name": name, "description": about, "input_schema": {"type": "object"}} for name, about in tools]
    answer = post(server, "/v1/messages", key, {"messages": messages, "tools": shown, "system": system, **body})
    return answer["id"], answer["content"][0]["text"], answer["usage"]


def shown(server: RunningServer, key: str, path: str = "") -> Any:
    return server.send("GET", f"/v1/requests{path}", headers={"Authorization": f"Bearer {key}"})


@pytest.mark.parametrize(("send", "key"), [(send_chat, "cid"), (send_message, "dan")], ids=["chat", "messages"])
def test_every_break_of_an_agent_s_session_is_explained(server: RunningServer, send: Send, key: str) -> None:
    system, turns, tools = SYSTEM, list[tuple[str, str]](), TOOLS
    known, computed_again, prompt_tokens = 0, 0, 0

    def ask(cause: str | None) -> Any:
        nonlocal known, computed_again, prompt_tokens
        SCRIPT.says = f"Part {len(turns)} is done, and I wrote down what I saw."
        name, text, usage = send(server, key, system, tools, turns)
        record = shown(server, key, f"/{name}").json()
        assert record == usage["why"]
        assert sum(record["found"].values()) == record["prompt_tokens"]
        assert sum(part["tokens"] for part in record["ribbon"]) == record["prompt_tokens"]
        split = record["divergence"]
        assert (split and split["cause"]) == cause, split
        if cause is None:
            new = record["prompt_tokens"] - known
            computed_again += record["found"]["computed"] - new
            prompt_tokens += record["prompt_tokens"]
        known = record["prompt_tokens"] + record["output_tokens"]
        turns.append(("assistant", text))
        return split

    def say(text: str) -> None:
        turns.append(("user", text))

    say("Please begin with the first part of the work.")
    ask("first")
    for number in range(2, 5):
        say(f"Go on with part {number}.")
        ask(None)
    turns[2] = ("user", "Go on with the second part, but slowly.")
    say("Go on.")
    split = ask("history_edited")
    assert split["before"].startswith("part 2.")
    assert split["after"].startswith("the second part, but slo")
    say("And on.")
    ask(None)
    tools = TOOLS[::-1]
    say("Once more.")
    assert ask("tools_reordered")["before"].startswith("read")
    system = system.replace("27", "28")
    say("Once more.")
    split = ask("system_date_or_id")
    assert (split["before"][0], split["after"][0]) == ("7", "8")
    turns[:4] = []
    say("You may forget how it began.")
    ask("history_truncated")
    say("Good.")
    ask(None)
    server.engine.reset_prefix_cache()
    say("Are you still there?")
    split = ask("evicted")
    assert split["token"] == 0
    assert split["before"] == split["after"] != ""
    assert computed_again <= 0.01 * prompt_tokens


def test_nobody_sees_another_key_s_requests(server: RunningServer) -> None:
    SCRIPT.says = "Yes."
    secret = [("user", "The treasure lies below the old oak tree at the river.")]
    name, _, usage = send_chat(server, "ann", "Be kind.", [], secret)
    assert usage["why"]["id"] == name
    bobs, _, usage = send_chat(server, "bob", "Be kind.", [], [("user", "The treasure lies below what tree?")])
    assert usage["why"]["divergence"]["cause"] == "first"
    assert usage["why"]["divergence"]["before"] == ""
    assert [each["id"] for each in shown(server, "bob").json()["data"]] == [bobs]
    assert "oak" not in shown(server, "bob").text
    assert shown(server, "bob", f"/{name}").status_code == 404
    assert shown(server, "ann", f"/{name}").status_code == 200
    assert server.get(f"/v1/requests/{name}").status_code == server.get("/v1/requests").status_code == 401
    missing = shown(server, "bob", "/nothing").json()["error"]
    assert (missing["param"], missing["code"]) == ("request_id", "request_not_found")


def test_usage_explains_itself_to_those_who_ask(server: RunningServer) -> None:
    SCRIPT.says = "Yes."
    body = {"model": MODEL, "prompt": "A text to complete, or to go on with", "max_tokens": 4}
    bob = {"Authorization": "Bearer bob"}
    plain = server.send("POST", "/v1/completions", json=body, headers=bob).json()
    assert "why" not in plain["usage"]
    stream = {**body, "stream": True, "stream_options": {"include_usage": True}}
    assert '"why":{"id":"cmpl-' in server.send("POST", "/v1/completions", json=stream, headers={**bob, **WHY}).text
    two = server.send("POST", "/v1/completions", json={**body, "prompt": ["a", "b"]}, headers={**bob, **WHY}).json()
    assert "why" not in two["usage"], "several prompts have several records"
    ids = [each["id"] for each in shown(server, "bob", "?limit=2").json()["data"]]
    assert sorted(ids) == [f"{two['id']}-0", f"{two['id']}-1"]
    answer = post(server, "/v1/responses", "bob", {"input": "Hello", "max_output_tokens": 9, "max_tokens": None})
    assert answer["usage"]["why"]["id"] == answer["id"]
    salted = {"cache_salt": "s", **body}
    split = server.send("POST", "/v1/completions", json=salted, headers={**bob, **WHY}).json()["usage"]["why"]
    assert split["divergence"]["cause"] == "salt_changed"


def test_a_server_may_keep_no_requests() -> None:
    with running(make_model(start=SCRIPT), settings=ServerSettings(max_stored_requests=0)) as server:
        answer = server.send("POST", "/v1/completions", json={"model": MODEL, "prompt": "Hello"}, headers=WHY)
        assert "why" not in answer.json()["usage"]
        assert server.get("/v1/requests").json() == {"object": "list", "data": []}
