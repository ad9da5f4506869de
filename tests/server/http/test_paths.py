"""Unusual requests: a proxy's prefix, an alternative path, HEAD."""

from __future__ import annotations

import re

import pytest
from starlette.types import Receive, Scope, Send

from quire.server.http.middleware import PlainPaths
from quire.server.settings import ServerSettings
from server.asgi import ask, tell_state
from serving import MODEL, RunningServer, make_model, running


@pytest.mark.parametrize(
    ("asked", "path"),
    [
        ("/llm/v1/models", "/v1/models"),
        ("/v1/models", "/v1/models"),
        ("/llm", "/"),
        ("/llm/", "/"),
        ("/llm/models", "/v1/models"),
        ("/llm/models/", "/v1/models"),
        ("/metrics/", "/metrics"),
        ("/llmodels", "/llmodels"),
    ],
)
def test_a_prefix_comes_off_and_an_alias_becomes_its_path(asked: str, path: str) -> None:
    seen = []

    async def note(scope: Scope, receive: Receive, send: Send) -> None:
        seen.append(scope["path"])
        await tell_state(scope, receive, send)

    assert ask(PlainPaths(note, "/llm", {"/models": "/v1/models"}), path=asked).status_code == 200
    assert seen == [path]


@pytest.mark.parametrize("path", ["/", "/docs", "/health", "/ping", "/v1/health", "/version", "/v1/models", "/load"])
def test_head_is_answered_as_get_without_a_body(server: RunningServer, path: str) -> None:
    head, get = server.send("HEAD", path), server.get(path)
    assert (head.status_code, head.content) == (200, b"")
    assert head.headers["content-length"] == str(len(get.content))
    assert head.headers["content-type"] == get.headers["content-type"]


def test_head_on_what_takes_posts_only_is_refused_as_get_is(server: RunningServer) -> None:
    assert server.send("HEAD", "/v1/completions").status_code == 405


def test_a_wrong_method_is_answered_with_all_right_ones(server: RunningServer) -> None:
    right = {"/v1/collections": "GET, HEAD, POST", "/v1/completions": "POST", "/health": "GET, HEAD"}
    for path, methods in right.items():
        refused = server.send("PUT", path)
        assert (refused.status_code, refused.headers["allow"]) == (405, methods)


def test_paths_are_known_without_v1_too(server: RunningServer) -> None:
    chat = {"messages": [{"role": "user", "content": "Hello"}]}
    for path, body in (("/completions", {"prompt": "Hello"}), ("/chat/completions", chat)):
        assert server.post(path, **body, max_tokens=2).json()["usage"]["completion_tokens"] == 2
    assert server.get("/models").json() == server.get("/v1/models").json()
    assert server.get("/ping").json() == server.get("/v1/health").json() == {"status": "ok"}


def test_behind_a_prefix_the_document_and_the_page_name_it() -> None:
    with running(make_model(), settings=ServerSettings(root_path="/llm")) as server:
        assert server.get("/llm/openapi.json").json()["servers"] == [{"url": "/llm"}]
        page = server.get("/llm/").text
        assert page == server.get("/").text
        assert '<base href="/llm/">' in page
        files = re.findall(r'"(/llm/[^"]+\.\w+)"', page)
        assert [server.get(file).status_code for file in files] == [200] * 3
        assert server.get("/llm/v1/models").json()["data"][0]["id"] == MODEL


@pytest.mark.parametrize("prefix", ["llm", "/llm/", "/"])
def test_a_prefix_that_is_none_is_refused(prefix: str) -> None:
    with pytest.raises(ValueError, match="is not a prefix of paths; write it as in /llm"):
        ServerSettings(root_path=prefix)
