"""`quire serve --config` with more models than fit into memory, whose file changes while it serves."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from kernel_levels import needs_kernels
from quire.cli.serve.memory_need import fit_memory
from quire.config import EngineConfig

TIMEOUT_S = 100
LIMIT_MIB = 600
OPTIONS = f"memory-limit: {LIMIT_MIB}MiB\nnum-kv-blocks: 64\nmax-model-len: 256\nuse-tqdm: false\nport: 0\n"


def wait_for(find: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + TIMEOUT_S
    while not (found := find()):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return found


class Server:
    def __init__(self, directory: Path) -> None:
        self.file, self.log = directory / "serve.yaml", directory / "log"
        self.write(
            "models: [{name: a, model: random:tiny}, {name: b, model: random:tiny}, {name: c, model: random:tiny}]"
        )
        command = [sys.executable, "-m", "quire", "serve", "--config", str(self.file)]
        with self.log.open("w") as log:
            self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
        assert self.process.stdout is not None
        found = re.search(r"at (http://\S+)", self.process.stdout.readline())
        assert found, self.log.read_text()
        self.client = httpx.Client(base_url=found[1], timeout=TIMEOUT_S)

    def write(self, text: str) -> None:
        self.file.write_text(OPTIONS + text)

    def reread(self, text: str, says: str) -> None:
        self.write(text)
        self.process.send_signal(signal.SIGHUP)
        wait_for(lambda: re.search(says, self.log.read_text()))

    def ask(self, model: str) -> int:
        body = {"model": model, "prompt": "Hello", "max_tokens": 3}
        return self.client.post("/v1/completions", json=body).status_code

    def states(self) -> dict[str, str]:
        return {card["id"]: card["state"] for card in self.client.get("/v1/models").json()["data"]}

    def engines_mib(self) -> float:
        text = self.client.get("/metrics").text
        found = re.findall(r'quire_process_resident_memory_bytes{.*process="engine"} (\S+)', text)
        return sum(map(float, found)) / 2**20


def test_models_that_do_not_fit_together_are_served_in_turn_and_changed_by_sighup(tmp_path: Path) -> None:
    server = Server(tmp_path)
    try:
        assert server.states() == {"a": "ready", "b": "ready", "c": "unloaded"}
        for model, unloaded in (("a", "c"), ("b", "c"), ("c", "a"), ("a", "b")):
            assert server.ask(model) == 200
            assert server.states() == {name: "unloaded" if name == unloaded else "ready" for name in "abc"}
            assert 0 < server.engines_mib() < LIMIT_MIB

        server.reread("models: [", "the configuration is not changed: .* is no YAML")
        server.reread("models: [{name: a, model: no/such/directory}]", "the configuration is not changed: no/such")
        assert server.states() == {"a": "ready", "b": "unloaded", "c": "ready"}

        models = "models: [c=random:tiny, d=random:tiny, {name: a, model: random:tiny, "
        server.reread(models + "max-model-len: 128}]\nmax-queue: 7", "added d; removed b; to be reloaded a")
        assert "only a restart changes max-queue" in server.log.read_text()
        assert server.ask("b") == 404
        assert list(server.states()) == ["c", "d", "a"]
        assert [server.ask(model) for model in "dac"] == [200] * 3
        assert server.client.get("/v1/models/a").json()["max_model_len"] == 128
        assert server.engines_mib() < LIMIT_MIB
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(TIMEOUT_S) == 0
        assert "Traceback" not in server.log.read_text()
    finally:
        server.process.kill()
        server.process.communicate()


@needs_kernels  # for int8
def test_a_pool_is_planned_within_the_limit_and_a_model_that_cannot_fit_is_refused() -> None:
    limit = 2**30
    config, num_bytes = fit_memory("m", EngineConfig("random:tiny", max_num_seqs=1000), limit, share=0.5)
    assert config.kv_cache_memory is not None
    assert 2**28 + config.kv_cache_memory < num_bytes < 2**28 + config.kv_cache_memory + 2**23
    assert config.kv_cache_memory <= limit / 4
    larger = fit_memory("m", EngineConfig("random:qwen2.5-0.5b", dtype="float32"), 8 * limit, share=0.5)[1]
    smaller = fit_memory("m", EngineConfig("random:qwen2.5-0.5b", quantization="int8"), 8 * limit, share=0.5)[1]
    assert smaller < larger < 8 * limit
    hybrid = EngineConfig("random:qwen3.5-0.8b", num_kv_blocks=8)
    drafting = replace(hybrid, speculative_model="mtp")
    alone, both = (fit_memory("m", each, 8 * limit, share=1)[1] for each in (hybrid, drafting))
    assert 2**24 < both - alone < 2**28
    with pytest.raises(ValueError, match=r"m does not fit into memory_limit=1.00 GiB: without its KV pool it takes"):
        fit_memory("m", EngineConfig("random:qwen2.5-0.5b", dtype="float32"), limit, share=0.5)
