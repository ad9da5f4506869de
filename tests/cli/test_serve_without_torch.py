"""A server and all of its processes where importing torch is an error."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import torch
from safetensors.torch import save_file

from quire.kernels.loaded import load_kernels
from quire.progressive.packs.pack import pack
from quire.progressive.stage_plan import StagePlan
from test_imports import REFUSE_TORCH
from tiny_bert import write_tiny_bert

pytestmark = pytest.mark.skipif(load_kernels().functions is None, reason="models compute on torch without kernels")

TIMEOUT_S = 100
ABSENT = (12, 13, 14)  #: layers of quire-mini's second stage


def make_pack(directory: Path) -> Path:
    """Pack quire-mini in two stages; the first has an adapter."""
    name = "base_model.model.model.layers.0.self_attn.v_proj"
    halves = {f"{name}.lora_A.weight": torch.ones(2, 256) / 64, f"{name}.lora_B.weight": torch.ones(128, 2) / 64}
    adapter = directory / "adapter"
    adapter.mkdir()
    save_file(halves, adapter / "adapter_model.safetensors")
    config = {"peft_type": "LORA", "r": 2, "lora_alpha": 4, "target_modules": ["v_proj"]}
    (adapter / "adapter_config.json").write_text(json.dumps(config))
    plan = StagePlan(16, (tuple(at for at in range(16) if at not in ABSENT), ABSENT))
    pack("quire-mini", plan, directory / "pack", adapters={1: adapter}, use_tqdm=False)
    return directory / "pack"


@contextmanager
def serving(place: Path, *arguments: str) -> Iterator[httpx.Client]:
    """Start `quire serve` and wait until its models serve; the interpreters of all its processes refuse torch."""
    (place / "sitecustomize.py").write_text(REFUSE_TORCH)
    path = os.pathsep.join([str(place), *sys.path])
    environment = {**os.environ, "PYTHONPATH": path, "XDG_CACHE_HOME": str(place / "cache")}
    command = [sys.executable, "-m", "quire", "serve", *arguments, "--port", "0"]
    with (
        (place / "log").open("w") as log,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True, env=environment) as server,
    ):
        assert server.stdout is not None
        try:
            found = re.search(r"http://\S+", server.stdout.readline())
            assert found, (place / "log").read_text()
            with httpx.Client(base_url=found[0], timeout=TIMEOUT_S) as client:
                yield client
        finally:
            server.terminate()


def test_every_feature_serves_where_torch_cannot_be_imported(tmp_path: Path) -> None:
    write_tiny_bert(tmp_path / "bert")
    directories = ("--rag-dir", str(tmp_path / "rag"), "--kv-dir", str(tmp_path / "kv"))
    models = (f"staged={make_pack(tmp_path)}", "whole=quire-mini", "--embedder", f"bert={tmp_path / 'bert'}")
    options = ("--last-stage", "1", "--num-kv-blocks", "64", "--swap-space", "8MiB", "--kv-dir-keep-prompts")
    with serving(tmp_path, *models, *directories, *options) as client:

        def post(path: str, **body: Any) -> Any:
            answer = client.post(path, json=body)
            assert answer.is_success, answer.text + (tmp_path / "log").read_text()
            return answer.json()

        post("/v1/collections", name="town")
        documents = [{"name": "a", "text": "the cat sat on the mat"}, {"name": "b", "text": "a dog and a mat"}]
        assert post("/v1/collections/town/documents", documents=documents)["added"] == 2
        assert post("/v1/collections/town/search", query="the cat sat")["data"][0]["document"] == "a"
        assert len(post("/v1/embeddings", model="bert", input="a cat")["data"][0]["embedding"]) == 32
        for model in ("staged", "whole"):
            said = post("/v1/completions", model=model, prompt="Hello", max_tokens=4, logprobs=2, n=2, seed=1)
            assert said["usage"]["completion_tokens"] > 0
            messages = [{"role": "user", "content": "Who sat?"}]
            wanted = {"type": "json_schema", "json_schema": {"name": "who", "schema": {"enum": ["cat", "dog"]}}}
            chat = {"model": model, "messages": messages, "max_tokens": 32}
            text = post("/v1/chat/completions", **chat, response_format=wanted)["choices"][0]["message"]["content"]
            assert json.loads(text) in ("cat", "dog")
            answer = post("/v1/chat/completions", **chat, retrieval={"collection": "town", "top_k": 2})
            assert len(answer["retrieval"]["sources"]) == 2
        assert client.post("/v1/collections/town/warm", json={"model": "whole"}).status_code == 202
        until = time.monotonic() + TIMEOUT_S
        while (warmed := client.get("/v1/collections/town/warm").json()["data"][0])["status"] == "running":
            assert time.monotonic() < until
            time.sleep(0.05)
        assert warmed["status"] == "done", warmed
        assert list((tmp_path / "kv").rglob("*")), "no KV was kept"
        ready = client.get("/health").json()
    log = (tmp_path / "log").read_text()
    assert "Traceback" not in log, log
    assert "torch" not in log, log
    assert ready["status"] == "ok"
