"""Bodies that are no JSON, of another type, or large."""

from __future__ import annotations

import json

import pytest

from quire.server.body import LARGE_BODY_BYTES
from quire.server.settings import ServerSettings
from serving import MODEL, RunningServer, make_model, running

JSON = {"Content-Type": "application/json"}


@pytest.mark.parametrize(
    "content",
    [
        b"", b"{", b"null", b"[]", b'"prompt"', b"\xff\xfe", b'{"prompt": "\xff"}', b'{"prompt": "\\ud800"}',
        b"[" * 100_000, b'{"prompt": "a", "seed": ' + b"9" * 5000 + b"}", b'{"prompt": "a", "temperature": NaN}',
    ],
)  # fmt: skip
def test_what_is_no_json_object_is_refused(server: RunningServer, content: bytes) -> None:
    answer = server.send("POST", "/v1/completions", content=content, headers=JSON)
    assert answer.status_code == 400
    assert answer.json()["error"]["type"] == "invalid_request_error"


@pytest.mark.parametrize("kind", [None, "text/plain", "application/x-www-form-urlencoded"])
def test_another_type_is_refused_since_a_foreign_page_could_send_it_unasked(
    server: RunningServer, kind: str | None
) -> None:
    content = json.dumps({"prompt": "Hello"}).encode()
    answer = server.send("POST", "/v1/completions", content=content, headers={"Content-Type": kind} if kind else {})
    assert answer.status_code == 415
    assert "application/json" in answer.json()["error"]["message"]


def test_an_unknown_path_and_another_method_are_errors_in_the_same_form(server: RunningServer) -> None:
    answer = server.post("/v1/embeddings")
    assert answer.status_code == 404
    assert "/v1/embeddings" in answer.json()["error"]["message"]
    answer = server.get("/v1/completions")
    assert answer.status_code == 405
    assert answer.headers["allow"] == "POST"
    assert answer.json()["error"]["type"] == "invalid_request_error"


def test_a_large_body_is_read_like_any_other() -> None:
    with running(make_model(), settings=ServerSettings(max_body_bytes=4 * LARGE_BODY_BYTES)) as server:
        spaces = " " * LARGE_BODY_BYTES
        small = server.complete(temperature=0).json()["choices"]
        body = json.dumps({"model": MODEL, "prompt": "Hello", "max_tokens": 8, "temperature": 0}) + spaces
        answer = server.send("POST", "/v1/completions", content=body, headers=JSON)
        assert answer.json()["choices"] == small
        error = server.complete(prompt=[1] * LARGE_BODY_BYTES).json()["error"]
        assert error["code"] == "context_length_exceeded"
        error = server.complete(suffix=spaces).json()["error"]
        assert (error["param"], error["code"]) == ("suffix", "unknown_parameter")
        error = server.complete(prompt=["a"] * (LARGE_BODY_BYTES // 5) + [1]).json()["error"]
        assert error["param"] == f"prompt[{LARGE_BODY_BYTES // 5}]"
        assert server.complete(prompt="a" * 5 * LARGE_BODY_BYTES).status_code == 413
