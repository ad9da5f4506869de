"""The simple server: an answer in OpenAI's form, and a refusal by name for everything that it does not do."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi.testclient import TestClient

from quire import LLM, SamplingParams
from quire.server.simple import make_app

MODEL = "random:tiny"
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def llm() -> LLM:
    return LLM(MODEL, num_kv_blocks=64, max_model_len=256, use_tqdm=False)


@pytest.fixture(scope="module")
def client(llm: LLM) -> Iterator[TestClient]:
    with TestClient(make_app(llm, MODEL)) as client:
        yield client


def ask(client: TestClient, **body: Any) -> httpx.Response:
    return client.post("/v1/completions", json={"model": MODEL, "prompt": "Hello", **body})


def test_a_completion_is_what_the_offline_api_gives(client: TestClient, llm: LLM) -> None:
    answer = ask(client, max_tokens=6, temperature=0)
    assert answer.status_code == 200
    expected = llm.generate("Hello", SamplingParams(max_tokens=6, temperature=0), use_tqdm=False)[0].outputs[0]
    body = answer.json()
    choice = {"index": 0, "text": expected.text, "logprobs": None, "finish_reason": expected.finish_reason}
    assert body["choices"] == [choice]
    assert (body["object"], body["model"]) == ("text_completion", MODEL)
    assert body["usage"]["completion_tokens"] == len(expected.token_ids)
    assert body["usage"]["total_tokens"] == body["usage"]["prompt_tokens"] + body["usage"]["completion_tokens"]


def test_token_ids_are_a_prompt_too(client: TestClient) -> None:
    answer = ask(client, prompt=[5, 6, 7], max_tokens=3)
    assert answer.json()["usage"]["prompt_tokens"] == 3


def test_several_prompts_with_several_samples_are_numbered_through(client: TestClient) -> None:
    choices = ask(client, prompt=["a", "b"], n=2, max_tokens=3, ignore_eos=True).json()["choices"]
    assert [choice["index"] for choice in choices] == [0, 1, 2, 3]


def test_the_same_seed_gives_the_same_text(client: TestClient) -> None:
    texts = {ask(client, seed=3, temperature=1.0, max_tokens=8).json()["choices"][0]["text"] for _ in range(2)}
    assert len(texts) == 1


@pytest.mark.parametrize(
    ("body", "param", "words"),
    [
        ({"stream": True}, "stream", "stream=true is not supported"),
        ({"best_of": 2}, "best_of", "'best_of' is not supported"),
        ({"logprobs": 2}, "logprobs", "'logprobs' is not supported"),
        ({"max_tokens": "many"}, "max_tokens", "integer"),
        ({"prompt": []}, "prompt", "prompt"),
        ({"prompt": {}}, "prompt", "prompt"),
        ({"temperature": -1}, None, "temperature=-1"),
        ({"top_p": 0}, None, "top_p=0"),
        ({"prompt": [999_999]}, None, "prompt token 999999"),
        ({"prompt": [1] * 300}, None, "256"),
    ],
)
def test_what_cannot_be_done_is_refused_by_name(
    client: TestClient, body: dict[str, Any], param: str | None, words: str
) -> None:
    answer = ask(client, **body)
    assert answer.status_code == 400
    error = answer.json()["error"]
    assert (error["type"], error["param"]) == ("invalid_request_error", param)
    assert words in error["message"]


def test_a_body_that_is_not_json_is_refused(client: TestClient) -> None:
    answer = client.post("/v1/completions", content="{", headers={"Content-Type": "application/json"})
    assert answer.status_code == 400
    assert answer.json()["error"]["type"] == "invalid_request_error"


def test_another_model_and_another_path_are_not_found(client: TestClient) -> None:
    assert ask(client, model="gpt-4").status_code == 404
    answer = client.post("/v1/chat/completions", json={})
    assert answer.status_code == 404
    assert "/v1/chat/completions" in answer.json()["error"]["message"]


def test_the_model_is_listed_and_the_server_is_healthy(client: TestClient) -> None:
    assert [model["id"] for model in client.get("/v1/models").json()["data"]] == [MODEL]
    assert client.get("/health").json() == {"status": "ok"}


def test_a_failed_step_is_a_server_error() -> None:
    class Failing:
        engine = type("Engine", (), {"default_sampling_params": staticmethod(SamplingParams)})

        def generate(self, *_: Any, **__: Any) -> Any:
            raise RuntimeError("the step failed")

    answer = ask(TestClient(make_app(Failing(), MODEL)))
    assert answer.status_code == 500
    assert answer.json()["error"] == {"message": "the step failed", "type": "server_error", "param": None, "code": None}


def test_serve_says_where_it_is_and_how_to_ask_and_ends_at_ctrl_c() -> None:
    process = subprocess.Popen(
        [sys.executable, "-u", "-m", "quire", "serve", "--port", "0", "--num-kv-blocks", "64", "--no-use-tqdm"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1"},
    )
    try:
        assert process.stdout is not None
        said = [process.stdout.readline() for _ in range(4)]
        assert "Quire serves random:tiny at http://127.0.0.1:" in said[0]
        shown = re.sub(r"127\.0\.0\.1:\d+", "127.0.0.1:8000", "".join(said))
        assert shown in (ROOT / "README.md").read_text()
        url = re.search(r"curl -s (\S+)", said[2])
        body = re.search(r"-d '(.*)'", said[3])
        assert url
        assert body
        answer = httpx.post(url[1], content=body[1], headers={"Content-Type": "application/json"}, timeout=60)
        assert answer.status_code == 200
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=30)
        assert process.returncode == 130
        assert "Traceback" not in errors
    finally:
        process.kill()
        process.wait()
