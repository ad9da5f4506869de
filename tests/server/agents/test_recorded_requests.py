"""Requests in the form of agents and chat clients are answered: headers, tools, system blocks, streams.

`requests/` has one file per client, written by us after what the client sends. The model calls the first tool that it
sees, and says a sentence once it has a result.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from family_templates import QWEN
from quire.loading.presets import presets
from scripted import Script
from serving import RunningServer, make_model, running

CLIENTS = sorted(Path(__file__).with_name("requests").glob("*.json"))
ARGUMENTS = {"command": "ls"}
SAID = "There are two files."
BLOCK = 16


class Agent(Script):
    def _words_for(self, info: Any, tokenizer: Any) -> str:
        prompt: str = tokenizer.decode(info.token_ids[: info.num_prompt_tokens], skip_special_tokens=False)
        tool = re.search(r'"name": "(\w+)"', prompt)
        if tool is None or "</tool_response>" in prompt:
            return SAID
        call = json.dumps({"name": tool[1], "arguments": ARGUMENTS})
        return f"<think>\nI list them.\n</think>\n\nI look.\n<tool_call>\n{call}\n</tool_call>"


@pytest.fixture(scope="module")
def server() -> Iterator[RunningServer]:
    script = Agent("", texts=[SAID, "arguments", "command"], max_model_len=8192)
    with pytest.MonkeyPatch.context() as patch:  # a byte is a token
        patch.setitem(presets(), "tiny", {**presets()["tiny"], "max_position_embeddings": 8192})
        with running(make_model(name="M", start=script, chat_template=QWEN)) as found:
            yield found


def send(server: RunningServer, headers: dict[str, str], request: dict[str, Any]) -> httpx.Response:
    method, body = request.get("method", "POST"), request.get("body")
    return server.send(method, request["path"], headers=headers, **({} if body is None else {"json": body}))


def events_of(answer: httpx.Response) -> list[Any]:
    """Return a stream's events, or a whole answer as one."""
    if not answer.headers["content-type"].startswith("text/event-stream"):
        return [answer.json()]
    lines = [line.removeprefix("data: ") for line in answer.text.splitlines() if line.startswith("data: ")]
    return [json.loads(line) for line in lines if line != "[DONE]"]


def text_and_arguments(path: str, events: list[Any]) -> tuple[str, str]:
    """Return an answer's text and the arguments of its calls."""
    text, arguments = "", ""
    for event in events:
        if "messages" in path:
            delta = event.get("delta", {})
            blocks = event.get("content", [])
            text += delta.get("text", "") + "".join(block.get("text", "") for block in blocks)
            arguments += delta.get("partial_json", "")
        elif "responses" in path:
            if event.get("type") not in (None, "response.completed"):
                continue
            for item in event.get("response", event)["output"]:
                text += "".join(part["text"] for part in item.get("content", []) if part["type"] == "output_text")
                arguments += item.get("arguments", "")
        else:
            for choice in event["choices"]:
                said = choice.get("delta") or choice.get("message") or {"content": choice.get("text")}
                text += said.get("content") or ""
                arguments += "".join(call["function"].get("arguments", "") for call in said.get("tool_calls") or ())
    return text, arguments


@pytest.mark.parametrize("client", CLIENTS, ids=lambda path: path.stem)
def test_a_client_s_requests_are_answered(server: RunningServer, client: Path) -> None:
    recorded = json.loads(client.read_text())
    for request in recorded["requests"]:
        answer = send(server, recorded["headers"], request)
        assert answer.status_code == 200, answer.text
        match request["expect"]:
            case "count":
                assert answer.json()["input_tokens"] > 0
            case "call":
                text, arguments = text_and_arguments(request["path"], events_of(answer))
                assert (text.strip(), json.loads(arguments)) == ("I look.", ARGUMENTS)
            case "text":
                text, arguments = text_and_arguments(request["path"], events_of(answer))
                assert SAID.startswith(text)
                assert (len(text) > 0, arguments) == (True, "")


def test_the_usage_of_messages_says_what_was_found_and_stored(server: RunningServer) -> None:
    """Also behind a first system block that changes with each request, as Claude Code's does."""
    recorded = json.loads(Path(__file__).with_name("requests").joinpath("claude_code.json").read_text())
    turns = [each["body"] for each in recorded["requests"] if len(each.get("body", {}).get("tools", [])) > 1]
    assert len({turn["system"][0]["text"] for turn in turns}) == len(turns) == 2
    salt, found = "of this test", []
    for turn in turns:
        answer = server.post("/v1/messages", **turn, cache_salt=salt)
        opened, *_, ended, _ = events_of(answer)
        usage = ended["usage"]
        assert {name: count for name, count in opened["message"]["usage"].items() if name != "output_tokens"} == {
            name: count for name, count in usage.items() if name != "output_tokens"
        }
        counted = {name: turn[name] for name in ("messages", "system", "tools", "thinking")}
        total = server.post("/v1/messages/count_tokens", **counted).json()["input_tokens"]
        read, created = usage["cache_read_input_tokens"], usage["cache_creation_input_tokens"]
        assert usage["input_tokens"] + read + created == total
        assert read + created == total // BLOCK * BLOCK
        found.append((read, created, total))
    (read, created, total), (read_later, _, _) = found
    assert (read, created) == (0, total // BLOCK * BLOCK)
    assert read_later >= created, "all of the first prompt"
    unmarked = json.loads(re.sub(r', "cache_control": \{[^}]*\}', "", json.dumps(turns[0])))
    assert "cache_control" not in json.dumps(unmarked)
    usage = events_of(server.post("/v1/messages", **unmarked, cache_salt="another"))[-2]["usage"]
    assert (usage["input_tokens"], usage["cache_creation_input_tokens"]) == (total, 0)
