"""Models are loaded, unloaded and reloaded over HTTP, by admins only; no running request is cut off."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import httpx
import pytest
from typer.testing import CliRunner

from async_engine.child_engines import treacherous
from command_line import app
from engines import process_engine
from process_pool import fork_children
from quire.assembly import start_engine
from quire.config import EngineConfig
from quire.loading.save import save_model
from quire.loading.source import resolve_model
from quire.server.registry import ServedModel
from quire.server.settings import ServerSettings
from quire.text.tokenizer import Tokenizer
from serving import RunningServer, make_model, running
from weights import age

ADMIN, USER = "an-admin", "a-user"
SETTINGS = ServerSettings(api_keys=(USER,), admin_keys=(ADMIN,), tenant_secret=b"s" * 32)
PATHS = [f"{prefix}/models/{change}" for prefix in ("", "/v1") for change in ("load", "reload", "unload")]
SLOW = [69]  #: a prompt of which each token takes 30 ms


def write_weights(directory: Path, *, seed: int) -> Path:
    shutil.rmtree(directory, ignore_errors=True)
    source = resolve_model("random:tiny")
    save_model(source, directory, dtype="float32", seed=seed, use_tqdm=False)
    Tokenizer.byte_level(source.config.vocab_size).save(directory)
    age(directory)
    return directory


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_weights(tmp_path_factory.mktemp("model") / "files", seed=0)


@pytest.fixture(scope="module")
def server(directory: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    with pytest.MonkeyPatch.context() as patch:
        fork_children(patch)
        kept = str(tmp_path_factory.mktemp("kv"))  # with a KV directory, the weights' digest is known from the start
        config = EngineConfig(str(directory), num_kv_blocks=64, max_model_len=128, use_tqdm=False, kv_dir=kept)
        models = [
            ServedModel(name, process_engine(name, make), 1, source=str(directory))
            for name, make in (("files", partial(start_engine, config)), ("slow", treacherous))
        ]
        with running(*models, make_model(name="thread"), settings=SETTINGS) as server:
            yield server


def send(server: RunningServer, path: str, key: str = ADMIN, **body: object) -> httpx.Response:
    return server.send("POST", path, json=body, headers={"Authorization": f"Bearer {key}"})


def complete(server: RunningServer, model: str, **body: object) -> httpx.Response:
    return send(server, "/v1/completions", USER, model=model, temperature=0, ignore_eos=True, **body)


def state_of(server: RunningServer, model: str) -> str:
    return server.registry.get(model).async_engine.state.value


def models(change: str, server: RunningServer, key: str) -> tuple[int, str]:
    done = CliRunner().invoke(app, ["models", change, "files", "--url", server.url, "--api-key", key])
    return done.exit_code, done.output


@pytest.mark.parametrize("path", PATHS)
def test_only_admins_change_models(path: str, server: RunningServer) -> None:
    assert server.send("POST", path, json={"model": "files"}).status_code == 401
    refused = send(server, path, USER, model="files")
    assert (refused.status_code, refused.json()["error"]["code"]) == (403, "not_admin")
    assert send(server, path, model="another").status_code == 404
    assert state_of(server, "files") == "ready"


def test_a_model_without_a_process_stays_loaded(server: RunningServer) -> None:
    for change in ("unload", "reload"):
        assert send(server, f"/models/{change}", model="thread").json()["error"]["code"] == "cannot_unload"
    assert send(server, "/models/load", model="thread").json()["state"] == "ready"


def test_the_command_line_unloads_and_loads(server: RunningServer) -> None:
    status, said = models("unload", server, USER)
    assert (status, "HTTP 403" in said) == (1, True)
    assert models("unload", server, ADMIN) == (0, "files: unloaded\n")
    assert state_of(server, "files") == "unloaded"
    assert models("load", server, ADMIN) == (0, "files: ready\n")
    assert models("unload", server, ADMIN) == (0, "files: unloaded\n")
    assert complete(server, "files", prompt="Hello", max_tokens=2).status_code == 200
    assert state_of(server, "files") == "ready"


def test_a_reload_reads_new_weights_into_another_namespace(server: RunningServer, directory: Path) -> None:
    seen = []
    for seed in (0, 1, 1):
        write_weights(directory, seed=seed)
        assert send(server, "/models/reload", model="files").json()["success"]
        answer = complete(server, "files", prompt="Hello", max_tokens=12).json()
        seen.append((answer["system_fingerprint"], answer["choices"][0]["text"]))
    assert seen[0][0] != seen[1][0]
    assert seen[0][1] != seen[1][1]
    assert seen[1] == seen[2]


def test_requests_finish_before_an_unload_and_later_ones_wait(server: RunningServer) -> None:
    headers = {"Authorization": f"Bearer {USER}"}
    body = {"model": "slow", "prompt": SLOW, "max_tokens": 40, "ignore_eos": True, "stream": True}
    options = {"stream_options": {"include_usage": True}}
    with ThreadPoolExecutor(2) as threads, httpx.Client(base_url=server.url, timeout=100, headers=headers) as client:
        with client.stream("POST", "/v1/completions", json={**body, **options}) as answer:
            lines = filter(None, answer.iter_lines())
            next(lines)
            process = server.registry.get("slow").async_engine.pid
            unloaded = threads.submit(send, server, "/models/unload", model="slow")
            gate = server.registry.get("slow").async_engine.gate
            while not gate.is_pending:
                next(lines)
            later = threads.submit(complete, server, "slow", prompt=[70], max_tokens=2)
            rest = list(lines)
        assert rest[-1] == "data: [DONE]"
        assert json.loads(rest[-2].removeprefix("data: "))["usage"]["completion_tokens"] == 40
        assert unloaded.result().json()["success"]
        assert later.result().status_code == 200
    assert server.registry.get("slow").async_engine.pid != process


def test_a_model_that_has_failed_is_loaded_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fork_children(monkeypatch)
    config = EngineConfig(str(tmp_path), num_kv_blocks=64, max_model_len=128, use_tqdm=False)
    engine = process_engine("late", partial(start_engine, config))
    with running(ServedModel("late", engine, 1)) as server:
        assert server.post("/models/load", model="late").json()["error"]["code"] == "model_failed"
        write_weights(tmp_path, seed=0)
        assert server.post("/models/load", model="late").json()["state"] == "ready"
        assert server.complete(model="late").status_code == 200
