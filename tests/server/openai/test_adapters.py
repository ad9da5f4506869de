"""LoRA adapters over HTTP: names, loading and unloading, admin keys, restarts."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import httpx

from adapters import NUM_TOKENS, adapted, greedy_with, lora
from engine.harness import PROMPTS, checkpoint
from engines import process_engine, thread_engine
from quire.assembly import start_engine
from quire.async_engine.async_engine import AsyncEngine
from quire.config import EngineConfig
from quire.server.registry import ServedModel
from quire.server.settings import ServerSettings
from serving import RunningServer, running, wait_until

PROMPT = PROMPTS[3]


def model_of(make: Callable[..., AsyncEngine] = thread_engine, **options: Any) -> ServedModel:
    config = EngineConfig(
        str(checkpoint("llama")),
        num_kv_blocks=64,
        skip_tokenizer_init=True,
        use_tqdm=False,
        speculation="off",
        **options,
    )
    return ServedModel("base", make("base", partial(start_engine, config)), 0, source="checkpoint")


def ask(server: RunningServer, model: str, **headers: str) -> httpx.Response:
    body = {"model": model, "prompt": list(PROMPT), "max_tokens": NUM_TOKENS, "temperature": 0, "ignore_eos": True}
    return server.send("POST", "/v1/completions", json={**body, "return_token_ids": True}, headers=headers)


def assert_answers(server: RunningServer, model: str, adapter: str, **headers: str) -> None:
    answer = ask(server, model, **headers).json()
    assert answer["model"] == model
    assert answer["choices"][0]["token_ids"] == list(greedy_with("llama", adapter)[3].token_ids)


def load(server: RunningServer, name: str, adapter: str, **body: Any) -> httpx.Response:
    path = adapted("llama")[1].get(adapter, adapter)
    return server.post("/v1/load_lora_adapter", lora_name=name, lora_path=path, **body)


def test_adapters_are_models_with_a_parent_loaded_and_unloaded_as_in_vllm(tmp_path: Path) -> None:
    with running(model_of()) as server:
        assert ask(server, "mine").status_code == 404
        loaded = load(server, "mine", "first")
        assert (loaded.status_code, loaded.text) == (200, "Success: LoRA adapter 'mine' added successfully.")
        assert_answers(server, "mine", "first")
        assert_answers(server, "base", "")
        base, card = server.get("/v1/models").json()["data"]
        assert "parent" not in base
        assert (card["id"], card["parent"], card["root"]) == ("mine", "base", adapted("llama")[1]["first"])
        assert server.get("/v1/models/mine").json() == card
        again = load(server, "mine", "second")
        assert again.status_code == 400
        assert again.json()["error"]["param"] == "lora_name"
        assert load(server, "base", "second", load_inplace=True).status_code == 400
        assert load(server, "mine", "second", load_inplace=True).status_code == 200
        assert_answers(server, "mine", "second")
        for path, message in (("/nowhere", "no LoRA adapter"), (str(tmp_path), "adapter_config.json")):
            broken = load(server, "other", path)
            assert broken.status_code == 400
            assert message in broken.json()["error"]["message"]
            assert broken.json()["error"]["param"] == "lora_path"
        assert load(server, "a\nb", "first").status_code == 400
        assert load(server, "mine", adapted("gpt2")[1]["first"], load_inplace=True).status_code == 400
        assert_answers(server, "mine", "second")
        removed = server.post("/v1/unload_lora_adapter", lora_name="mine")
        assert (removed.status_code, removed.text) == (200, "Success: LoRA adapter 'mine' removed successfully.")
        assert ask(server, "mine").json()["error"]["code"] == "model_not_found"
        assert server.post("/v1/unload_lora_adapter", lora_name="mine").status_code == 404
        assert server.post("/v1/unload_lora_adapter", lora_name="base").status_code == 404
        server.wait_until_idle()


def test_records_of_requests_keep_adapters_apart() -> None:
    with running(model_of(lora=lora("llama"))) as server:
        registry = server.registry
        for name, directory in adapted("llama")[1].items():
            registry.add(registry.get("base").with_adapter(name, directory))
        for name in ("first", "second", "first"):
            assert_answers(server, name, name)
        newest, other, _ = server.get("/v1/requests").json()["data"]
        assert (newest["model"], newest["found"]["device"]) == ("first", 16)
        assert (other["model"], other["found"]["device"]) == ("second", 0)


def test_only_admins_load_and_unload() -> None:
    settings = ServerSettings(api_keys=("user",), admin_keys=("admin",))
    with running(model_of(), settings=settings) as server:
        bodies = {
            "/v1/load_lora_adapter": {"lora_name": "mine", "lora_path": adapted("llama")[1]["first"]},
            "/v1/unload_lora_adapter": {"lora_name": "mine"},
        }
        for key, status in ((None, 401), ("user", 403), ("admin", 200)):
            headers = {} if key is None else {"Authorization": f"Bearer {key}"}
            for path, body in bodies.items():
                answer = server.send("POST", path, json=body, headers=headers)
                assert answer.status_code == status
                if status == 403:
                    assert answer.json()["error"]["code"] == "not_admin"
                if key == "admin" and "unload" not in path:
                    assert_answers(server, "mine", "first", Authorization="Bearer user")


def test_a_restarted_engine_process_has_the_adapters_again() -> None:
    with running(model_of(process_engine, lora=(f"started={adapted('llama')[1]['third']}",))) as server:
        engine = server.registry.get("base").async_engine
        server.registry.add(server.registry.get("base").with_adapter("started", "directory"))
        assert_answers(server, "started", "third")
        assert load(server, "mine", "first").status_code == 200
        assert load(server, "gone", "second").status_code == 200
        assert server.post("/v1/unload_lora_adapter", lora_name="gone").status_code == 200
        assert_answers(server, "mine", "first")
        pid = engine.pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: engine.pid not in (None, pid) and engine.state == "ready")
        assert_answers(server, "mine", "first")
        assert_answers(server, "started", "third")
        assert ask(server, "gone").status_code == 404
