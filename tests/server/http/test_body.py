"""Bodies that are no JSON, of another type, or large."""

from __future__ import annotations

import asyncio
import json
import operator
import os
import pickle
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from process_pool import fork_children
from quire.server.errors import ApiError
from quire.server.http.body import LARGE_BODY_BYTES, BodyReader, parse
from quire.server.openai.schema import CompletionRequest
from quire.server.settings import ServerSettings
from quire.system.child_process import running_children
from serving import MODEL, PATIENCE_S, RunningServer, make_model, running, wait_until

JSON = {"Content-Type": "application/json"}
KILLED = """
import asyncio, os, pickle, signal
from quire.server.http.body import BodyReader
from quire.server.openai.schema import CompletionRequest

reader = BodyReader()
asyncio.run(reader._ask_child(pickle.dumps((reader._parse, b'{"prompt": "x"}', CompletionRequest)), ""))
print(*(child.pid for child in reader._children if child.pid), flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture(autouse=True)
def _imports_are_done(monkeypatch: pytest.MonkeyPatch) -> None:
    fork_children(monkeypatch)


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
    answer = server.post("/v1/assistants")
    assert answer.status_code == 404
    assert "/v1/assistants" in answer.json()["error"]["message"]
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
        function = {"name": "f", "parameters": {"type": "object", "description": "a" * LARGE_BODY_BYTES}}
        forced = {"tools": [{"type": "function", "function": function}], "tool_choice": "required"}
        error = server.chat(**forced).json()["error"]
        assert error["param"] == "tools"
        assert server.chat(**{**forced, "tool_choice": "none"}).status_code == 200
        assert server.complete(prompt="a" * 5 * LARGE_BODY_BYTES).status_code == 413


def test_a_large_prompt_that_may_fit_comes_back() -> None:
    text = "a" * LARGE_BODY_BYTES
    with running(make_model(), settings=ServerSettings(max_body_bytes=2 * LARGE_BODY_BYTES)) as server:
        assert server.complete(prompt=text, model="other").json()["error"]["code"] == "model_not_found"
        cut = server.complete(prompt=text, truncate_prompt_tokens=5).json()
        assert cut["usage"]["prompt_tokens"] == 5
        error = server.chat(messages=[{"role": "user", "content": text}]).json()["error"]
        assert (error["param"], error["code"]) == ("messages", "context_length_exceeded")


def test_when_the_process_that_reads_large_bodies_dies_its_request_may_come_again() -> None:
    with running(make_model()) as server:
        before = set(running_children())
        assert server.complete(suffix=" " * LARGE_BODY_BYTES).status_code == 400
        (child,) = set(running_children()) - before
        child.kill()
        answers = [server.complete(suffix=" " * LARGE_BODY_BYTES) for _ in range(2)]
        assert {answer.status_code for answer in answers} <= {400, 503}  # an executor may notice earlier
        assert answers[-1].status_code == 400
        assert all(answer.headers["retry-after"] == "1" for answer in answers if answer.status_code == 503)


def test_when_the_server_is_killed_so_ends_the_process_that_reads_large_bodies(tmp_path: Path) -> None:
    (script := tmp_path / "killed.py").write_text(KILLED)
    pid = tmp_path / "pid"
    with pid.open("wb") as out:  # not a pipe, which the child would keep open
        done = subprocess.run(
            [sys.executable, str(script)], stdout=out, timeout=PATIENCE_S,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )  # fmt: skip
    assert done.returncode == -signal.SIGKILL
    child = Path("/proc", pid.read_text().strip(), "stat")
    wait_until(lambda: not child.exists() or child.read_text().split()[2] == "Z")


def test_thousands_of_errors_are_counted_and_not_described() -> None:
    unknown = {f"{number:05}": 1 for number in range(5000)}
    body = {"prompt": "a", "logit_bias": dict.fromkeys(unknown, ""), "stream_options": unknown, "truncation_side": "b"}
    with pytest.raises(ApiError, match="has 10,001 unknown fields or invalid values") as found:
        parse(json.dumps(body).encode(), CompletionRequest)
    assert found.value.status == 400


def test_a_hint_is_accepted_and_not_kept() -> None:
    body = parse(b'{"prompt": "a", "user": [[], []], "metadata": {"a": "b"}}', CompletionRequest)
    assert (body.user, body.metadata) == (None, None)


def test_a_body_of_too_many_parts_is_refused_by_the_child() -> None:
    with running(make_model()) as server:
        answer = server.chat(messages=[{"role": "user", "content": ""}] * 40_000)
        assert answer.status_code == 400
        assert answer.json()["error"]["code"] == "body_too_complex"
        assert server.chat(messages=[{"role": "user", "content": ""}] * 5_000).json()["error"]["param"] == "messages"


def _question(parse: object, raw: object, kind: object) -> bytes:
    return pickle.dumps((parse, raw, kind))


_ENDLESS = _question(re.fullmatch, "(a+)+", "a" * 64 + "b")


def test_a_body_that_takes_too_much_memory_is_refused() -> None:
    async def scene() -> None:
        reader = BodyReader()
        with pytest.raises(ApiError, match="more time or memory") as found:
            await reader._ask_child(_question(operator.mul, b"x", 10**11), "a")
        assert found.value.status == 400
        reader.close()

    asyncio.run(scene())


def test_a_key_uses_one_child_at_a_time_which_ends_with_its_client_or_the_server() -> None:
    async def scene() -> None:
        reader = BodyReader()
        good = _question(parse, b'{"prompt": "x"}', CompletionRequest)
        for _ in range(2):
            await asyncio.gather(*(reader._ask_child(good, key) for key in "ab"))  # both have started
            first, second = (asyncio.ensure_future(reader._ask_child(_ENDLESS, "a")) for _ in range(2))
            await asyncio.sleep(0.05)
            assert len(reader._idle) == 1
            assert pickle.loads(await reader._ask_child(good, "b"))[0].prompt == "x"
            second.cancel()
            first.cancel()
            await asyncio.wait({first, second}, timeout=PATIENCE_S)
            assert len(reader._idle) == 2
        pending = asyncio.ensure_future(reader._ask_child(_ENDLESS, "a"))
        await asyncio.sleep(0.05)
        reader.close()
        with pytest.raises(ApiError, match="try again") as found:
            await asyncio.wait_for(pending, PATIENCE_S)
        assert found.value.status == 503

    asyncio.run(scene())
