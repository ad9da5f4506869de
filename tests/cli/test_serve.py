"""`quire serve` as a process, from its options to its exit status."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from quire.cli.serve.engines import share_threads
from quire.config import EngineConfig

TIMEOUT_S = 100
SMALL = ["--model", "small=random:tiny", "--num-kv-blocks", "64", "--device", "cpu"]


@pytest.mark.parametrize("options", [[], ["--no-engine-process"]], ids=["in a process of its own", "in this process"])
def test_an_engine_is_served_streamed_and_shut_down(options: list[str]) -> None:
    command = [sys.executable, "-m", "quire", "serve", *SMALL, "--port", "0", "--max-answers", "2", *options]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert server.stdout is not None
    try:
        banner = server.stdout.readline()
        found = re.search(r"Quire serves small at (http://\S+)", banner)
        assert found, banner
        assert bool(_children(server.pid)) == (not options)
        body = {"model": "small", "prompt": "Hello", "max_tokens": 9, "temperature": 0, "ignore_eos": True}
        url = f"{found[1]}/v1/completions"
        whole = httpx.post(url, json=body, timeout=TIMEOUT_S).json()
        assert whole["usage"]["completion_tokens"] == 9
        streamed = httpx.post(url, json={**body, "stream": True}, timeout=TIMEOUT_S).text
        assert streamed.endswith("data: [DONE]\n\n")
        text = "".join(json.loads(line[6:])["choices"][0]["text"] for line in _data(streamed))
        assert text == whole["choices"][0]["text"]
        assert "more answers than the 2" in httpx.post(url, json={**body, "n": 3}, timeout=TIMEOUT_S).text
        server.send_signal(signal.SIGTERM)
        _, log = server.communicate(timeout=TIMEOUT_S)
        assert server.returncode == 0, log
        assert "Traceback" not in log
    finally:
        server.kill()
        server.communicate()


def test_a_loading_error_is_reported_once_and_as_clearly_from_a_child_process(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"architectures": ["LlamaForCausalLM"], "vocab_size": "many"}')
    command = [sys.executable, "-m", "quire", "serve", "--model", str(tmp_path), "--port", "0"]
    servers = [
        subprocess.Popen([*command, *options], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        for options in ([], ["--no-engine-process"])
    ]
    said = []
    for server in servers:
        _, log = server.communicate(timeout=TIMEOUT_S)
        assert server.returncode == 2
        assert "Traceback" not in log
        said.append([line.split(" ", 2)[2] for line in log.splitlines() if " ERROR " in line])
    assert said[0] == said[1]
    (line,) = said[0]
    assert "the model could not be loaded" in line
    assert "tokenizer" in line


def test_a_keep_alive_of_no_time_is_refused() -> None:
    command = [sys.executable, "-m", "quire", "serve", *SMALL, "--keep-alive", "0"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    assert (done.returncode, "keep_alive_s=0.0 must be above 0" in done.stderr) == (2, True)


def _refusal(*words: str, **environment: str) -> str:
    """Return the error of `quire serve`, which must end without torch and before it listens."""
    code = f"import sys; from quire.cli.main import make_app\ntry: make_app('serve')({['serve', *words]!r})\n"
    code += "except SystemExit as left: print(left.code, 'torch' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ, **environment}, check=False
    )
    assert done.stdout == "2 False\n", done.stderr
    assert "listening" not in done.stderr
    return done.stderr


def test_a_port_in_use_is_reported_before_models_are_looked_at() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = str(other.getsockname()[1])
        for ray in ([], ["--ray"]):
            said = _refusal("no/such-model", "--port", port, *ray, HF_HUB_OFFLINE="1")
            assert said == (
                f"Error: cannot listen on 127.0.0.1:{port}: Address already in use; choose another --host or --port\n"
            )


def test_a_hub_id_without_network_is_refused_before_the_server_listens(tmp_path: Path) -> None:
    path = tmp_path / "quire.sock"
    with socket.create_server(("127.0.0.1", 0)) as closed:
        hub = f"http://127.0.0.1:{closed.getsockname()[1]}"
    said = _refusal("no/such-model", "--uds", str(path), HF_ENDPOINT=hub, HF_HUB_OFFLINE="0")
    assert said.startswith(
        "Error: no/such-model is neither a directory here nor in the hub's cache, and the hub cannot"
    )
    assert not path.exists()


def test_engine_processes_share_the_cores_by_default(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    configs = {"a": EngineConfig("random:tiny"), "b": EngineConfig("random:tiny", num_threads=5)}
    for num_cores, share in ((8, 4), (1, 1)):
        monkeypatch.setattr("quire.system.threads.num_cores", lambda num_cores=num_cores: num_cores)
        shared = share_threads(configs)
        assert {name: config.num_threads for name, config in shared.items()} == {"a": share, "b": 5}


def _children(pid: int) -> list[str]:
    threads = Path(f"/proc/{pid}/task").iterdir()
    return [child for thread in threads for child in (thread / "children").read_text().split()]


def _data(streamed: str) -> list[str]:
    return [line for line in streamed.splitlines() if line.startswith("data: {")]
