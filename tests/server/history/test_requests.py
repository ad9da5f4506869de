"""GET /v1/requests over a real server: a scripted agent's session, whose every break is explained, and tenants."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from engines import process_engine
from family_templates import QWEN
from process_pool import fork_children
from quire.loading.presets import preset_config
from quire.server.registry import ServedModel
from quire.server.settings import ServerSettings
from quire.text.tokenizer import Tokenizer
from scripted import Script
from serving import MODEL, SMALL, RunningServer, make_model, running, wait_until

SCRIPT = Script(block_size=4)
KEYS = ("ann", "bob", "cid", "dan")
SETTINGS = ServerSettings(api_keys=KEYS, tenant_secret=b"s" * 32)
WHY = {"X-Quire-Why": "1"}
CALL = '<tool_call>\n{"name": "read", "arguments": {"path": "a"}}\n</tool_call>'
SYSTEM = "You are a careful agent, who works in a small house of text. It is 2026-11-27, and you keep to the rules."
TOOLS = {"read": "Return the text of a file.", "write": "Replace the text of a file."}
Json = dict[str, Any]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """A model in this process, and two in processes that can be unloaded; one of these keeps prompts on disk."""
    long = tmp_path_factory.mktemp("long")  # the same shape for more tokens
    shape = preset_config(MODEL)
    (long / "config.json").write_text(json.dumps({**shape, "max_position_embeddings": 8192}))
    Tokenizer.byte_level(shape["vocab_size"]).save(long)
    config = replace(SMALL, model=str(long), load_format="random")
    agents = Script(CALL, "There is more to do.", max_model_len=8192, block_size=4)
    kept = replace(agents, kv_dir=str(tmp_path_factory.mktemp("kv")))
    with pytest.MonkeyPatch.context() as patch:
        fork_children(patch)
        others = [
            ServedModel(name, process_engine(name, partial(script, config)), 7, QWEN, MODEL)
            for name, script in (("keeps", kept), ("forgets", agents))
        ]
        with running(make_model(start=SCRIPT, chat_template=QWEN), *others, settings=SETTINGS) as server:
            yield server


def post(server: RunningServer, path: str, key: str, body: Json) -> Any:
    headers = {"Authorization": f"Bearer {key}", **WHY}
    answer = server.send("POST", path, json={"model": MODEL, "max_tokens": 99, **body}, headers=headers)
    assert answer.status_code == 200, answer.text
    return answer.json()


def shown(server: RunningServer, key: str, path: str = "") -> Any:
    return server.send("GET", f"/v1/requests{path}", headers={"Authorization": f"Bearer {key}"})


def send_chat(server: RunningServer, key: str, text: str) -> Any:
    messages = [{"role": "system", "content": "Be kind."}, {"role": "user", "content": text}]
    return post(server, "/v1/chat/completions", key, {"messages": messages})


class Agent(ABC):
    """A coding agent, which checks how each of its prompts was read. Its turns are a question, which is answered by a
    call, and the result, which is answered by a text."""

    def __init__(self, server: RunningServer, key: str) -> None:
        self.server = server
        self.key = key
        self.model = "keeps"
        self.system = SYSTEM
        self.tools = TOOLS
        self.messages: list[Json] = []
        self.known = Counter[str]()  #: model -> tokens of the last prompt and answer
        self.num_requests = 0
        self.num_tokens = 0  #: in prompts after which little is read again
        self.num_again = 0  #: of these, computed and not new

    @abstractmethod
    def send(self) -> tuple[Json, Json, str]:
        """Send the conversation. Returns the answer, its message and the id of its call, if any."""

    @abstractmethod
    def result(self, call_id: str) -> Json:
        """Return the message with a call's result."""

    def turn(self, question: str, cause: str | None = None) -> Json:
        """Ask, and check the cause of the break. Returns the record of the question."""
        self.messages.append({"role": "user", "content": question})
        record, call_id = self.ask(cause)
        self.messages.append(self.result(call_id))
        self.ask(None)
        return record

    def ask(self, cause: str | None) -> tuple[Json, str]:
        answer, message, call_id = self.send()
        self.messages.append(message)
        record: Json = shown(self.server, self.key, f"/{answer['id']}").json()
        split, found = record["divergence"], record["found"]
        assert record == answer["usage"]["why"]
        assert (split and split["cause"]) == cause, record
        assert sum(found.values()) == sum(part["tokens"] for part in record["ribbon"]) == record["prompt_tokens"]
        self.num_requests += 1
        if cause is None or found["disk"]:
            self.num_tokens += record["prompt_tokens"]
            self.num_again += found["computed"] - (record["prompt_tokens"] - self.known[self.model])
        self.known[self.model] = record["prompt_tokens"] + record["output_tokens"]
        return record, call_id

    def unload(self) -> None:
        engine = self.server.registry.get(self.model).async_engine
        wait_until(engine.unload)


class ChatAgent(Agent):
    def send(self) -> tuple[Json, Json, str]:
        functions = [{"name": name, "description": text, "parameters": {}} for name, text in self.tools.items()]
        tools = [{"type": "function", "function": function} for function in functions]
        messages = [{"role": "system", "content": self.system}, *self.messages]
        body = {"model": self.model, "messages": messages, "tools": tools}
        answer = post(self.server, "/v1/chat/completions", self.key, body)
        message = answer["choices"][0]["message"]
        return answer, message, message["tool_calls"][0]["id"] if message.get("tool_calls") else ""

    def result(self, call_id: str) -> Json:
        return {"role": "tool", "tool_call_id": call_id, "content": "Some text."}


class MessagesAgent(Agent):
    def send(self) -> tuple[Json, Json, str]:
        tools = [{"name": name, "description": text, "input_schema": {}} for name, text in self.tools.items()]
        body = {"model": self.model, "messages": self.messages, "tools": tools, "system": self.system}
        answer = post(self.server, "/v1/messages", self.key, body)
        message = {"role": "assistant", "content": answer["content"]}
        return answer, message, answer["content"][0].get("id", "")

    def result(self, call_id: str) -> Json:
        block = {"type": "tool_result", "tool_use_id": call_id, "content": "Some text."}
        return {"role": "user", "content": [block]}


@pytest.mark.parametrize(
    ("kind", "key"), [(ChatAgent, "cid"), pytest.param(MessagesAgent, "dan", marks=pytest.mark.slow)]
)
def test_every_break_of_an_agent_s_session_is_explained(server: RunningServer, kind: type[Agent], key: str) -> None:
    agent = kind(server, key)
    agent.turn("Please begin with the first part of the work.", "first")
    for number in range(2, 5):
        agent.turn(f"Go on with part {number}.")
    agent.messages[4]["content"] = "Go on with the second part, but slowly."
    split = agent.turn("Go on.", "history_edited")["divergence"]
    assert split["before"].startswith("part 2.")
    assert split["after"].startswith("the second part, but slo")
    assert split["explanation"] == "Message 5 of the conversation was edited."
    agent.turn("And on.")
    agent.model = "forgets"
    agent.turn("What do you think?", "model_changed")
    agent.turn("And what of the last part?")
    agent.unload()
    assert agent.turn("Are you still there?", "model_reloaded")["found"]["device"] == 0
    agent.model = "keeps"
    agent.turn("Back to work.")
    agent.unload()
    assert agent.turn("Are you back?")["found"]["disk"] > 1500, "with the last answer"
    agent.tools = dict(reversed(TOOLS.items()))
    assert agent.turn("Once more.", "tools_reordered")["divergence"]["before"].startswith("read")
    agent.system = SYSTEM.replace("27", "28")
    split = agent.turn("Good morning.", "system_date_or_id")["divergence"]
    assert (split["before"][0], split["after"][0]) == ("7", "8")
    del agent.messages[:4]
    agent.turn("You may forget how it began.", "history_truncated")
    agent.turn("Good.")
    assert agent.num_requests >= 30
    assert agent.num_again <= 0.01 * agent.num_tokens


def test_what_was_evicted_is_said(server: RunningServer) -> None:
    SCRIPT.says = "Yes."
    send_chat(server, "ann", "Are you there?")
    server.engine.reset_prefix_cache()
    split = send_chat(server, "ann", "Are you there?")["usage"]["why"]["divergence"]
    assert (split["cause"], split["token"]) == ("evicted", 0)
    assert split["before"] == split["after"] != ""


def test_nobody_sees_another_key_s_requests(server: RunningServer) -> None:
    SCRIPT.says = "Yes."
    anns = send_chat(server, "ann", "The treasure lies below the old oak tree at the river.")
    name = anns["id"]
    assert anns["usage"]["why"]["id"] == name
    bobs = send_chat(server, "bob", "The treasure lies below what tree?")
    split = bobs["usage"]["why"]["divergence"]
    assert (split["cause"], split["before"]) == ("first", "")
    assert [each["id"] for each in shown(server, "bob").json()["data"]] == [bobs["id"]]
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
