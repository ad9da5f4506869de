"""A model on a server: requests, answers, and every failure."""

from __future__ import annotations

import json
import time
from contextlib import closing
from typing import Any

import httpx
import pytest

from fake_openai import FakeServer, fake_openai
from quire.client.chunk import TokenUsage
from quire.client.errors import RemoteError
from quire.client.remote_model import RemoteModel, read_models
from quire.client.server_address import ServerAddress

HELLO = [{"role": "user", "content": "Hello there"}]


def connect(fake: FakeServer, **options: Any) -> RemoteModel:
    return RemoteModel(ServerAddress.of(fake.url, options.pop("api_key", None)), **options)


@pytest.mark.parametrize(
    ("url", "base"),
    [
        ("http://127.0.0.1:8000", "http://127.0.0.1:8000/v1"),
        ("http://127.0.0.1:8000/", "http://127.0.0.1:8000/v1"),
        ("http://127.0.0.1:8000/v1/", "http://127.0.0.1:8000/v1"),
        ("http://h/v1/chat/completions", "http://h/v1"),
        ("http://h/v1/completions", "http://h/v1"),
        ("https://h/api/openai/v1", "https://h/api/openai/v1"),
        ("http://[::1]:80", "http://[::1]:80/v1"),
    ],
)
def test_a_url_is_taken_as_people_write_it(url: str, base: str) -> None:
    assert ServerAddress.of(url).base_url == base


@pytest.mark.parametrize(
    "url", ["127.0.0.1:8000", "localhost", "ftp://h", "http://", "http://h:port", "http://h:99999"]
)
def test_what_is_no_url_is_refused_with_one_that_is(url: str) -> None:
    with pytest.raises(ValueError, match="write it like http://127"):
        ServerAddress.of(url)


def test_a_key_is_never_shown() -> None:
    assert "secret" not in repr(ServerAddress.of("http://h", "secret"))


def test_a_proxy_is_left_out_on_the_way_to_this_machine_only() -> None:
    local = ["http://localhost:1", "http://127.0.0.1", "http://[::1]:3"]
    assert [ServerAddress.of(url).is_local for url in [*local, "http://example.org"]] == [True, True, True, False]


def test_an_answer_streams_in_pieces_with_its_usage() -> None:
    with fake_openai() as fake, connect(fake) as model:
        chunks = list(model.chat(HELLO, temperature=0.5))
        assert [chunk.text for chunk in chunks if chunk.is_token] == ["Hel", "lo", "!"]
        assert chunks[-1].usage == TokenUsage(9, 3, 0)
        assert [chunk.finish_reason for chunk in chunks if chunk.finish_reason] == ["stop"]
    options = {"stream": True, "stream_options": {"include_usage": True}}
    assert fake.requests == [{"model": "first", "messages": HELLO, "temperature": 0.5, **options}]


def test_an_answer_may_come_whole() -> None:
    with fake_openai() as fake, connect(fake, name="second") as model:
        [chunk] = model.complete("Hello", stream=False)
        assert (chunk.text, chunk.finish_reason, chunk.usage) == ("Hello!", "stop", TokenUsage(2, 3, 0))
    assert fake.requests == [{"model": "second", "prompt": "Hello", "stream": False}]


def test_the_first_model_is_taken_unless_one_is_named() -> None:
    with fake_openai() as fake:
        with connect(fake) as model:
            assert model.name == "first"
        with connect(fake, name="other") as model:
            assert model.name == "other"


def test_the_key_is_sent() -> None:
    with fake_openai(api_key="secret") as fake:
        with pytest.raises(RemoteError, match="HTTP 401: a key is needed"):
            connect(fake)
        with connect(fake, api_key="secret") as model:
            assert model.name == "first"


def test_hanging_up_in_the_middle_reaches_the_server() -> None:
    with fake_openai(hangs_after=2) as fake, connect(fake) as model:
        with closing(model.complete("Hello")) as chunks:
            assert next(chunks).text == "Hel"
        deadline = time.monotonic() + 60
        while not fake.num_gone and time.monotonic() < deadline:
            time.sleep(0.01)
        assert fake.num_gone == 1


@pytest.mark.parametrize(
    ("script", "kind", "words"),
    [
        ({"status": 503}, "http_503", "HTTP 503: no, not like this"),
        ({"said": ["Hel", RuntimeError("the step failed")]}, "stream_error", "the step failed"),
        ({"said": ["Hel", None]}, "truncated", "ended before the answer did"),
    ],
)
def test_an_answer_that_fails_says_how(script: dict[str, Any], kind: str, words: str) -> None:
    with fake_openai(**script) as fake, connect(fake, name="x") as model:
        with pytest.raises(RemoteError, match=words) as caught:
            list(model.complete("Hello"))
        assert caught.value.kind == kind


def test_nobody_there_is_said_with_the_url() -> None:
    with fake_openai() as fake:
        url = fake.url
    with pytest.raises(RemoteError, match=f"{url}/v1/models: cannot connect") as caught:
        RemoteModel(ServerAddress.of(url))
    assert caught.value.kind == "connect"


def test_a_connection_that_breaks_is_an_error_by_kind() -> None:
    def breaks(request: httpx.Request) -> httpx.Response:
        raise httpx.ReadError("reset by peer", request=request)

    model = RemoteModel(ServerAddress.of("http://h"), "x", transport=httpx.MockTransport(breaks))
    with pytest.raises(RemoteError, match="reset by peer") as caught:
        list(model.complete("Hello"))
    assert caught.value.kind == "disconnected"


@pytest.mark.parametrize("body", ["<html>", "{}", "[]", '{"data": [3]}', '{"data": [{"id": null}]}', '{"data": []}'])
def test_what_is_no_list_of_models_is_refused(body: str) -> None:
    with pytest.raises(RemoteError, match="list"):
        read_models(body.encode(), "http://h/v1/models")


def test_models_may_say_how_long_and_how_wide_they_are() -> None:
    entries = [{"id": "a", "max_model_len": 2048}, {"id": "b", "meta": {"n_vocab": 512}}, {"id": "c", "vocab_size": 9}]
    found = read_models(json.dumps({"data": entries}).encode(), "http://h")
    assert [(m.name, m.max_model_len, m.vocab_size) for m in found] == [
        ("a", 2048, None),
        ("b", None, 512),
        ("c", None, 9),
    ]
