"""Pages for people: self-contained, correct, and safe for any model name."""

from __future__ import annotations

import re
import shlex
from dataclasses import replace
from html import escape

import pytest
from starlette.applications import Starlette

from quire.server.app import make_app
from quire.server.registry import ModelRegistry
from quire.server.settings import ServerSettings
from server.asgi import ask
from serving import RunningServer, make_model

HOSTILE = "<script>alert('1')</script>"


def app_of(name: str = "mine", **settings: object) -> Starlette:
    model = replace(make_model(name=name), aliases=("second",))
    return make_app(ModelRegistry([model]), ServerSettings(tenant_secret=b"s", **settings))  # type: ignore[arg-type]


def test_the_front_page_says_what_is_served_and_how_to_ask(server: RunningServer) -> None:
    answer = server.get("/")
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert "random:tiny" in answer.text
    assert "ready" in answer.text
    assert f"curl -s {server.url}/v1/chat/completions" in answer.text
    assert f"{server.url}/v1" in answer.text
    for path in re.findall(r'href="([^"]+)"', answer.text):
        if path != "/metrics":  # this server has no such model
            assert server.get(path).status_code == 200, path


@pytest.mark.parametrize("path", ["/", "/docs"])
def test_a_page_takes_nothing_from_elsewhere(path: str) -> None:
    answer = ask(app_of(), path=path)
    assert "default-src 'none'" in answer.headers["content-security-policy"]
    assert not re.search(r"<script|<img|<link|@import|url\(|src=", answer.text)


def test_a_name_is_escaped_for_the_page_and_for_the_shell() -> None:
    text = ask(app_of(HOSTILE), path="/").text
    assert "<script" not in text
    command = text.split("<pre>")[1].split("</pre>")[0]
    command = command.replace("&#x27;", "'").replace("&quot;", '"').replace("&lt;", "<").replace("&gt;", ">")
    assert HOSTILE in shlex.split(command.replace("\\\n", ""))[-1]


def test_a_host_that_is_none_is_not_repeated() -> None:
    assert "evil" not in ask(app_of(), path="/", headers={"Host": "a'; evil"}).text


def test_with_keys_the_page_names_no_model_to_strangers() -> None:
    app = app_of("secret-model", api_keys=("sk-mine",))
    strangers, known = ask(app, path="/"), ask(app, path="/", headers={"x-api-key": "sk-mine"})
    assert strangers.status_code == known.status_code == 200
    assert "secret-model" not in strangers.text
    assert "second" not in strangers.text
    assert "secret-model, second" in known.text
    assert "sk-mine" not in strangers.text + known.text
    assert "Authorization: Bearer KEY" in strangers.text.replace("&#x27;", "'")
    assert ask(app, path="/docs").status_code == 401


def test_the_documentation_lists_every_path_with_its_summary() -> None:
    app = app_of()
    text, document = ask(app, path="/docs").text, ask(app, path="/openapi.json").json()
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            assert f"<td>{method.upper()} {path}</td><td>{escape(operation['summary'])}</td>" in text
