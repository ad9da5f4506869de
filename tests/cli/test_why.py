"""`quire why` explains in text how a server read prompts, and how to mend what it cannot show."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from typer.testing import CliRunner, Result

from command_line import app
from family_templates import QWEN
from quire.server.metrics import Metrics
from quire.server.settings import ServerSettings
from scripted import Script
from serving import MODEL, RunningServer, make_model, running


@pytest.fixture(scope="module")
def server() -> Iterator[RunningServer]:
    model = make_model(start=Script("Yes.", block_size=4), chat_template=QWEN)
    settings = ServerSettings(api_keys=("ann", "bob"), tenant_secret=b"s" * 32)
    with running(model, settings=settings, metrics=Metrics([MODEL])) as server:
        yield server


def ask(server: RunningServer, *texts: str) -> str:
    messages = [{"role": ("user", "assistant")[number % 2], "content": text} for number, text in enumerate(texts)]
    answer = server.send(
        "POST", "/v1/chat/completions", json={"messages": messages}, headers={"Authorization": "Bearer ann"}
    )
    found: str = answer.json()["id"]
    return found


def why(*arguments: str, key: str = "ann") -> Result:
    return CliRunner().invoke(app, ["why", *arguments], env={"QUIRE_API_KEY": key, "COLUMNS": "200"})


def test_the_list_ends_with_the_latest_break_and_an_id_shows_any_request(server: RunningServer) -> None:
    assert why(server.url).stdout == "The server keeps no request of this key yet.\n"
    first = ask(server, "What do bees make?")
    second = ask(server, "What do bees make?", "Yes.", "And wasps,\x1b[31m what of them?")
    rows = [line.split() for line in why(server.url).stdout.splitlines()[1:]]
    assert [(row[0], row[1], row[-1]) for row in rows] == [(second, MODEL, "?"), (first, MODEL, "first")]
    third = ask(server, "What do bees make?", "Yes.", "And wasps,\x1b[32m what of them?")
    listed, shown = why(server.url).stdout, why(server.url, third).stdout
    assert listed.endswith(f"\n\n{shown}")
    assert re.sub(r"\(.*?\)|[\d.]+ s\b", "_", shown) == (
        f"{third} _: 91 prompt tokens, first token after _\n"
        "  tokens 0 to 60: found on device\n"
        "  tokens 60 to 91: computed\n"
        "  the computed ones cost ? s, as predicted\n"
        "Message 3 of the conversation was edited.\n"
        "  before at token 62: '1m what of them?<|im_end|>\\n<|im_start|>assis'\n"
        "  after  at token 62: '2m what of them?<|im_end|>\\n<|im_start|>assis'\n"
    )
    assert "Nothing was read again." in why(server.url, second).stdout
    counted = server.send("GET", "/metrics", headers={"Authorization": "Bearer ann"}).text
    causes = dict(re.findall(r'quire_prompt_computed_tokens_total\{cause="(\w+)",.*\} ([\d.]+)', counted))
    assert {name: float(value) for name, value in causes.items() if float(value)} == {
        "first": 37,
        "history_edited": 29,
        "new": 53,
    }


def test_errors_say_what_to_do(server: RunningServer) -> None:
    name = ask(server, "Hello")
    for arguments, key, status, text in (
        ((server.url, name), "bob", 1, "this key has none of that id, or it is no longer among the last ones"),
        ((server.url,), "eve", 1, "give the key by --api-key or QUIRE_API_KEY"),
        (("http://127.0.0.1:1",), "ann", 1, "cannot connect"),
        (("somewhere",), "ann", 2, "write it like http://127.0.0.1:8000"),
        ((server.url + "/other",), "ann", 1, "quire why URL lists the requests of a server"),
    ):
        result = why(*arguments, key=key)
        assert result.exit_code == status
        assert text in result.stderr
