"""API keys isolate tenants, and the server's load is limited."""

from __future__ import annotations

import logging
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from quire.assembly import start_engine
from quire.config import EngineConfig
from quire.engine.engine import Engine
from quire.server.settings import ServerSettings
from serving import MODEL, SMALL, RunningServer, make_model, running, wait_until


def ask(server: RunningServer, key: str, prompt: str) -> httpx.Response:
    body = {"model": MODEL, "prompt": prompt, "max_tokens": 1}
    return server.send("POST", "/v1/completions", json=body, headers={"Authorization": f"Bearer {key}"})


def test_no_key_finds_the_prefix_of_another_key() -> None:
    settings = ServerSettings(api_keys=("ann", "bob"), tenant_secret=b"secret")
    with running(make_model(), settings=settings) as server:
        prompt = "Something that only Ann knows, and is long enough."

        def cached(key: str) -> int:
            usage = ask(server, key, prompt).json()["usage"]
            return int(usage["prompt_tokens_details"]["cached_tokens"])

        assert cached("ann") == 0
        assert cached("bob") == 0
        assert cached("ann") == cached("bob") == 48


def test_a_salt_narrows_a_key_and_never_stands_for_one() -> None:
    settings = ServerSettings(api_keys=("ann", "bob"), tenant_secret=b"secret")
    with running(make_model(), settings=settings) as server:

        def cached(key: str, **fields: str) -> int:
            body = {"model": MODEL, "prompt": "Something that is long enough for a block.", "max_tokens": 1, **fields}
            answer = server.send(
                "POST", "/v1/completions", json=body, headers={"Authorization": f"Bearer {key}"}
            ).json()
            return int(answer["usage"]["prompt_tokens_details"]["cached_tokens"])

        assert [cached("ann", cache_salt="x") for _ in range(2)] == [0, 32]
        assert cached("ann") == cached("ann", cache_salt="y") == cached("bob", cache_salt="x") == 0


def test_every_key_finds_the_operators_prefix_and_nothing_of_the_others(tmp_path: Path) -> None:
    text = "The operator's own words, which stand in front of all. "
    (tmp_path / "prefix.txt").write_text(text)
    settings = ServerSettings(api_keys=("ann", "bob"), tenant_secret=b"secret")
    config = replace(SMALL, pin_prefix=str(tmp_path / "prefix.txt"))
    with running(make_model(config), settings=settings) as server:

        def cached(key: str) -> int:
            usage = ask(server, key, text + "Something that only Ann knows.").json()["usage"]
            return int(usage["prompt_tokens_details"]["cached_tokens"])

        pinned = cached("ann")
        assert pinned == len(text) // 16 * 16
        assert cached("ann") > pinned
        assert cached("bob") == pinned


def test_every_endpoint_but_health_needs_a_key() -> None:
    with running(make_model(), settings=ServerSettings(api_keys=("ann",), tenant_secret=b"secret")) as server:
        assert ask(server, "eve", "Hello").status_code == 401
        for path in ("/v1/models", "/v1/models/", "/version", "/openapi.json", "/nothing"):
            assert server.get(path).status_code == 401
        for path in ("/health", "/health/"):
            assert server.get(path).status_code == 200
        for no_preflight in ({}, {"Access-Control-Request-Method": "GET"}, {"Origin": "https://page.example"}):
            assert server.send("OPTIONS", "/v1/models", headers=no_preflight).status_code == 401
        document = server.send("GET", "/openapi.json", headers={"Authorization": "Bearer ann"}).json()
        assert document["security"] == [{"key": []}]


def start_slow(config: EngineConfig) -> Engine:
    """Start an engine whose requests last longer than this process may be delayed."""
    engine = start_engine(config)
    execute = engine.runner.execute

    def execute_slowly(*args: Any) -> Any:
        time.sleep(0.02)
        return execute(*args)

    engine.runner.execute = execute_slowly  # type: ignore[method-assign]
    return engine


def test_a_full_queue_answers_with_a_retry_time() -> None:
    config = replace(SMALL, max_num_seqs=1, max_model_len=2048, num_kv_blocks=128)
    with running(make_model(config, max_queue=1, start=start_slow)) as server:
        with server.client() as client:
            long = {"max_tokens": 2000, "stream": True, "extra_body": {"ignore_eos": True}}
            running_one = client.completions.create(model=MODEL, prompt="First", **long)
            next(iter(running_one))
            waiting = client.completions.with_streaming_response.create
            with waiting(model=MODEL, prompt="Second", **long):
                for body in ({}, {"stream": True}):
                    answer = server.complete(**body)
                    assert answer.status_code == 429
                    assert answer.json()["error"]["type"] == "rate_limit_error"
                    assert answer.headers["retry-after"]
            running_one.close()
        server.wait_until_idle()


def test_another_key_is_served_while_one_key_fills_queue_seats_and_priorities() -> None:
    config = replace(SMALL, max_num_seqs=4, max_model_len=2048, num_kv_blocks=1024)
    settings = ServerSettings(api_keys=("ann", "bob"), tenant_secret=b"secret")
    flood = {"model": MODEL, "prompt": "Ann", "max_tokens": 2000, "n": 4, "priority": -(2**31), "ignore_eos": True}
    model = make_model(config, max_queue=4)
    with ThreadPoolExecutor(8) as threads, running(model, settings=settings) as server:
        engine, headers = model.async_engine, {"Authorization": "Bearer ann"}
        for number in range(5):
            threads.submit(server.send, "POST", "/v1/completions", json=flood, headers=headers)
            wait_until(lambda: (engine.num_requests, engine.num_queued) == (number + 1, number))  # noqa: B023
        assert ask(server, "ann", "One more").status_code == 429
        for number in range(3):
            assert ask(server, "bob", f"Question {number}").status_code == 200
        assert engine.num_requests == 5, "none of the flood has ended"


def test_one_key_may_run_no_more_sequences_than_the_operator_says() -> None:
    settings = ServerSettings(api_keys=("ann",), tenant_secret=b"secret", max_concurrent_per_key=3)
    with running(make_model(), settings=settings) as server:
        for fields, status in (({"n": 4}, 400), ({"n": 3}, 200), ({"prompt": ["a", "b"], "n": 2}, 400)):
            body = {"model": MODEL, "prompt": "Hello", "max_tokens": 1, **fields}
            answer = server.send("POST", "/v1/completions", json=body, headers={"Authorization": "Bearer ann"})
            assert answer.status_code == status, answer.text


def test_the_access_log_has_the_tokens_and_none_of_the_words(
    server: RunningServer, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, logger="quire.access"):
        for body in ({}, {"stream": True}):
            caplog.clear()
            server.complete(prompt="A secret", max_tokens=3, ignore_eos=True, **body)
            # The line is written after the answer is sent.
            wait_until(lambda: any(record.name == "quire.access" for record in caplog.records))
            (line,) = [record for record in caplog.records if record.name == "quire.access"]
            noted = line.fields  # type: ignore[attr-defined]
            assert (noted["model"], noted["prompt_tokens"], noted["completion_tokens"]) == (MODEL, 8, 3)
            assert "secret" not in str(noted)


def test_pages_of_other_origins_may_ask_where_the_operator_says_so(server: RunningServer) -> None:
    asked = {"Origin": "https://page.example", "Access-Control-Request-Method": "POST"}
    answer = server.send("OPTIONS", "/v1/completions", headers=asked)
    assert "access-control-allow-origin" not in answer.headers
    settings = ServerSettings(cors_origins=("https://page.example",), api_keys=("ann",))
    with running(make_model(), settings=settings) as open_server:
        answer = open_server.send("OPTIONS", "/v1/completions", headers=asked)
        assert answer.status_code == 200, "without a key, which no browser sends along"
        assert answer.headers["access-control-allow-origin"] == "https://page.example"
