"""`quire serve` as a process of its own, from its options to its exit status."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

TIMEOUT_S = 100
SMALL = ["--model", "small=random:tiny", "--num-kv-blocks", "64", "--device", "cpu"]


@pytest.mark.parametrize("options", [[], ["--engine-process"]], ids=["in this process", "in a process of its own"])
def test_an_engine_is_served_streamed_and_shut_down(options: list[str]) -> None:
    command = [sys.executable, "-m", "quire", "serve", *SMALL, "--port", "0", *options]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert server.stdout is not None
    try:
        banner = server.stdout.readline()
        found = re.search(r"Quire serves small at (http://\S+)", banner)
        assert found, banner
        assert bool(_children(server.pid)) == bool(options)
        body = {"model": "small", "prompt": "Hello", "max_tokens": 9, "temperature": 0, "ignore_eos": True}
        url = f"{found[1]}/v1/completions"
        whole = httpx.post(url, json=body, timeout=TIMEOUT_S).json()
        assert whole["usage"]["completion_tokens"] == 9
        streamed = httpx.post(url, json={**body, "stream": True}, timeout=TIMEOUT_S).text
        assert streamed.endswith("data: [DONE]\n\n")
        text = "".join(json.loads(line[6:])["choices"][0]["text"] for line in _data(streamed))
        assert text == whole["choices"][0]["text"]
        server.send_signal(signal.SIGTERM)
        _, log = server.communicate(timeout=TIMEOUT_S)
        assert server.returncode == 0, log
        assert "Traceback" not in log
    finally:
        server.kill()
        server.communicate()


def _children(pid: int) -> list[str]:
    threads = Path(f"/proc/{pid}/task").iterdir()
    return [child for thread in threads for child in (thread / "children").read_text().split()]


def _data(streamed: str) -> list[str]:
    return [line for line in streamed.splitlines() if line.startswith("data: {")]
